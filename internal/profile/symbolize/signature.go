package symbolize

import (
	"fmt"
	"io"
	"strings"

	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/unwind"
)

// Prototypes finds the parameters of functions by name, such as prototypes.Kernel: "" if they are not known.
type Prototypes interface {
	// Object reads those of an object; nil if there are none.
	Object(r io.ReaderAt) (func(function string) string, error)
	// Parameters returns those of a function of the running kernel or, if module is not "", of a module.
	Parameters(module, function string) string
	// Err returns why the kernel's can't be read.
	Err() error
}

// signature is the parameters of the function of a symbol, for which the DWARF of its object has
// none: those of its BTF, or what a mangled name says. "" where none does.
func (n *Namer) signature(o *unwind.Object, symbol string) string {
	if !n.opt.Signatures {
		return ""
	}
	if parameters := n.prototypes(o); parameters != nil {
		if s := parameters(source(symbol)); s != "" {
			return s
		}
	}
	return n.mangledParameters(symbol)
}

// kernelSignature returns the signature of a function of the kernel or a module; "" if BTF, which is the running
// kernel's, need not be the recorded one's.
func (n *Namer) kernelSignature(symbol, module string) string {
	if !n.opt.Signatures || n.opt.Prototypes == nil || n.running.Other != nil || !n.opt.HostKernel {
		return ""
	}
	return n.opt.Prototypes.Parameters(module, source(symbol))
}

// mangledParameters are those that the name of a C++ function says.
func (n *Namer) mangledParameters(symbol string) string {
	if !n.opt.Signatures || n.opt.Mangled {
		return ""
	}
	return symbols.DemangleParameters(symbol)
}

// source is the name in the source of a function of which a compiler has put a part elsewhere: f.cold of GCC's
// hot/cold splitting, f.part.0 of its partial inlining. Other suffixes, such as .constprop.0, mark copies with other
// parameters.
func source(symbol string) string {
	name, suffix, _ := strings.Cut(symbol, ".")
	if suffix == "cold" || strings.HasPrefix(suffix, "part.") {
		return name
	}
	return symbol
}

// prototypes returns what finds the parameters of an object's functions; nil where none are known.
func (n *Namer) prototypes(o *unwind.Object) func(string) string {
	if n.opt.Prototypes == nil {
		return nil
	}
	n.mu.Lock()
	e := n.types[o]
	if e == nil {
		e = new(once[func(string) string])
		n.types[o] = e
	}
	n.mu.Unlock()
	return e.get(func() func(string) string {
		file, _, err := o.Open()
		if err != nil {
			return nil // the object's own error says it
		}
		defer file.Close()
		parameters, err := n.opt.Prototypes.Object(file)
		if err != nil {
			n.warn(fmt.Errorf("%s: types: %w", o.Name, err))
			return nil
		}
		return parameters
	})
}
