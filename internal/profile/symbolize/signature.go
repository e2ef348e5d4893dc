package symbolize

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ehasm/ehasm/internal/debuginfo/prototypes"
	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/unwind"
)

// signature is the parameters of the function of a symbol, for which the DWARF of its object has
// none: those of its BTF, or what a mangled name says. "" where none does.
func (n *Namer) signature(o *unwind.Object, symbol string) string {
	if !n.opt.Signatures {
		return ""
	}
	if s := n.prototypes(o).Parameters(source(symbol)); s != "" {
		return s
	}
	return n.mangledParameters(symbol)
}

// kernelSignature returns the signature of a function of the kernel or a module.
func (n *Namer) kernelSignature(symbol, module string) string {
	if !n.opt.Signatures || n.running.Other != nil || !n.opt.HostKernel {
		return ""
	}
	return n.KernelTypes(module).Parameters(source(symbol))
}

// KernelTypes are the prototypes of the running kernel's functions, or of those of a module; nil
// where it has none.
func (n *Namer) KernelTypes(module string) *prototypes.Table { return n.kernelTypes.Table(module) }

// mangledParameters are those that the name of a C++ function says.
func (n *Namer) mangledParameters(symbol string) string {
	if !n.opt.Signatures || n.opt.Mangled {
		return ""
	}
	return symbols.DemangleParameters(symbol)
}

// source is the name in the source of a function of which a compiler has put a part elsewhere.
func source(symbol string) string {
	name, suffix, _ := strings.Cut(symbol, ".")
	if suffix == "cold" || strings.HasPrefix(suffix, "part.") {
		return name
	}
	return symbol
}

// prototypes returns the table of an object's BTF; nil where it has none.
func (n *Namer) prototypes(o *unwind.Object) *prototypes.Table {
	n.mu.Lock()
	e := n.types[o]
	if e == nil {
		e = new(once[*prototypes.Table])
		n.types[o] = e
	}
	n.mu.Unlock()
	return e.get(func() *prototypes.Table {
		file, _, err := o.Open()
		if err != nil {
			return nil // the object's own error says it
		}
		defer file.Close()
		t, err := prototypes.OfFile(file)
		if err != nil && !errors.Is(err, prototypes.ErrNone) {
			n.warn(fmt.Errorf("%s: types: %w", o.Name, err))
		}
		return t
	})
}
