package prototypes

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ehasm/ehasm/internal/debuginfo/cdecl"

	"github.com/cilium/ebpf/btf"
)

// This file reads BTF by cilium/ebpf's package btf, and describes its types to cdecl. btfgraph.go
// checks beforehand what that package would do with hostile input.

// openBTF reads a .BTF section.
func openBTF(b []byte) (*Table, error) {
	k, err := readBTF(b, nil)
	if err != nil {
		return nil, err
	}
	return &Table{types: k, mu: new(sync.Mutex)}, nil
}

// types is BTF with its reader. spec and graph number types alike.
type types struct {
	spec  *btf.Spec // reads types
	graph *graph    // says what the reader would do, before it does
}

// readBTF reads raw BTF; base has the types that it goes on from, nil for all.
// Raw BTF begins with its magic number. Split BTF, as modules have it, numbers its types after
// those of base.
func readBTF(b []byte, base *types) (*types, error) {
	// The package would look for a section in an ELF file; this is for raw BTF.
	if bytes.HasPrefix(b, []byte(elf.ELFMAG)) {
		return nil, errors.New("not BTF")
	}
	t := &types{}
	err := try(func() (err error) {
		if base == nil {
			if t.graph, err = newGraph(b, nil); err == nil {
				t.spec, err = btf.LoadSpecFromReader(bytes.NewReader(b))
			}
			return err
		}
		if t.graph, err = newGraph(b, base.graph); err == nil {
			t.spec, err = btf.LoadSplitSpecFromReader(bytes.NewReader(b), base.spec)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// functions finds those of a name: several static functions may have one.
func (t *types) functions(name string) (list []btfFunction, err error) {
	for _, id := range t.graph.functions[name] {
		// enter fails for types that would take the reader too deep.
		if err := t.graph.enter(id); err != nil {
			return nil, err
		}
		of, err := t.spec.TypeByID(btf.TypeID(id))
		if err != nil {
			t.graph.failed(err)
			return nil, err
		}
		// Only functions are asked for by name; other kinds cannot come back.
		if f, ok := of.(*btf.Func); ok {
			list = append(list, btfFunction{f})
		}
	}
	return list, nil
}

// btfFunction is a function whose types have not been written yet.
type btfFunction struct{ *btf.Func }

// Parameters returns the parameters in parentheses.
func (f btfFunction) Parameters() (string, error) { return cdecl.Parameters(btfType, f.Type) }

// Declaration returns the whole prototype.
func (f btfFunction) Declaration() (string, error) { return cdecl.Declare(btfType, f.Type, f.Name) }

// btfType describes a type. The last parameter of a function with variable arguments has the
// type void.
func btfType(of btf.Type) (t cdecl.Type[btf.Type], err error) {
	switch x := of.(type) {
	case nil, *btf.Void:
		// A pointer to void has no target type, or Void.
		t.Name = "void"
	case *btf.Int:
		t.Name = x.Name
	case *btf.Float:
		t.Name = x.Name
	case *btf.Typedef:
		t.Name = x.Name
	case *btf.Struct:
		t.Name = tagged("struct", x.Name)
	case *btf.Union:
		t.Name = tagged("union", x.Name)
	case *btf.Enum:
		t.Name = tagged("enum", x.Name)
	case *btf.Fwd:
		t.Name = tagged(x.Kind.String(), x.Name)
	case *btf.Pointer:
		t.Kind, t.Of = cdecl.Pointer, x.Target
	case *btf.Const:
		t.Kind, t.Name, t.Of = cdecl.Qualified, "const", x.Type
	case *btf.Volatile:
		t.Kind, t.Name, t.Of = cdecl.Qualified, "volatile", x.Type
	case *btf.Restrict:
		t.Kind, t.Name, t.Of = cdecl.Qualified, "restrict", x.Type
	case *btf.TypeTag:
		t.Kind, t.Of = cdecl.Qualified, x.Type // its name is of attributes, which say nothing of C's type
	case *btf.Array:
		t.Kind, t.Of, t.Count = cdecl.Array, x.Type, int64(x.Nelems)
	case *btf.FuncProto:
		// An empty list of parameters is written as (void).
		t.Kind, t.Of, t.Empty = cdecl.Function, x.Return, "void"
		for i, p := range x.Params {
			// The last parameter without a type stands for the dots.
			if _, void := p.Type.(*btf.Void); void && i == len(x.Params)-1 {
				t.Varargs = true
				break
			}
			t.Params = append(t.Params, cdecl.Param[btf.Type]{Name: p.Name, Of: p.Type})
		}
	default:
		return t, fmt.Errorf("a value of type %T", of)
	}
	// A named kind without a name: a typedef or base type of a damaged file.
	if t.Kind == cdecl.Named && t.Name == "" {
		err = errors.New("a type has no name")
	}
	return t, err
}

// tagged is the name of a type with a tag.
func tagged(word, tag string) string {
	if tag == "" {
		tag = "{...}"
	}
	return word + " " + tag
}

// Kernel holds the prototypes of a running kernel and its modules. They are read when they are
// first needed.
type Kernel struct {
	dir  string                 // as KernelDir, or a copy
	base func() (*types, error) // of vmlinux; read once

	reading sync.Mutex // of all tables

	mu     sync.Mutex
	tables map[string]*Table // by module; "" is the kernel itself
	err    error             // first error
}

// KernelDir is the folder in which Linux shows them.
const KernelDir = "/sys/kernel/btf"

// NewKernel returns the prototypes in a folder like KernelDir.
func NewKernel(dir string) *Kernel {
	k := &Kernel{dir: dir, tables: make(map[string]*Table)}
	// The kernel's types are needed for each module's.
	k.base = sync.OnceValues(func() (*types, error) { return k.read("vmlinux", nil) })
	return k
}

// read reads a file of the folder; base has the kernel's types for a module's.
func (k *Kernel) read(name string, base *types) (*types, error) {
	b, err := os.ReadFile(filepath.Join(k.dir, name))
	if err != nil {
		return nil, err
	}
	read, err := readBTF(b, base)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(k.dir, name), err)
	}
	return read, nil
}

// Table returns the functions of a module, as kallsyms calls it, in brackets or not, or of the
// kernel itself for ""; nil where there are none.
func (k *Kernel) Table(module string) *Table {
	module = strings.Trim(module, "[]")
	k.mu.Lock()
	defer k.mu.Unlock()
	t, ok := k.tables[module]
	if ok {
		return t
	}
	read, err := k.base()
	if err == nil && module != "" && module == filepath.Base(module) { // a name with a slash is no module
		read, err = k.read(module, read)
	}
	switch {
	case err == nil:
		// All share a lock: the reader of a module's types goes into the kernel's without theirs.
		t = &Table{types: read, mu: &k.reading}
	// A kernel without BTF is no error.
	case !errors.Is(err, os.ErrNotExist) && k.err == nil:
		k.err = err
	}
	// nil is kept as well: a module without BTF is looked for once.
	k.tables[module] = t
	return t
}

// Err returns the first error other than of files that are not there.
func (k *Kernel) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// Parameters returns the parameters of a function of a module, or of the kernel itself for "", in parentheses; "" where
// they are not known.
func (k *Kernel) Parameters(module, function string) string {
	return k.Table(module).Parameters(function)
}

// Object returns a function that has the parameters of an object's functions, by name, from its BTF; nil where it has
// none.
func (k *Kernel) Object(r io.ReaderAt) (func(function string) string, error) {
	t, err := OfFile(r)
	if errors.Is(err, ErrNone) {
		return nil, nil
	}
	return t.Parameters, err
}
