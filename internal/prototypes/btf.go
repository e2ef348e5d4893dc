package prototypes

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ehasm/ehasm/internal/cdecl"

	"github.com/cilium/ebpf/btf"
)

// Bounds of the number of types. The reader of BTF takes 2 KB of stack for each type on the way to
// another, and nobody recovers from a stack that is too large: 512 MB. A kernel has 150,000
// types.
const (
	maxFileTypes   = 1 << 15
	maxKernelTypes = 200_000
)

// checkBTF counts the types in raw BTF: include/uapi/linux/btf.h.
func checkBTF(b []byte, most int) error {
	const header, typeSize = 24, 12
	le := binary.LittleEndian
	if len(b) < header || le.Uint16(b) != magicBTF {
		return errors.New("not BTF of this machine's byte order")
	}
	from := uint64(le.Uint32(b[4:])) + uint64(le.Uint32(b[8:]))
	to := from + uint64(le.Uint32(b[12:]))
	if to > uint64(len(b)) {
		return errors.New("types go beyond the end")
	}
	count := 0
	for b = b[from:to]; len(b) >= typeSize; count++ {
		if count == most {
			return fmt.Errorf("more than %d types", most)
		}
		info := le.Uint32(b[4:])
		n, size := uint64(info&0xffff), uint64(typeSize)
		switch info >> 24 & 0x1f {
		case 1, 14, 17: // int, variable, declaration tag
			size += 4
		case 3: // array
			size += 12
		case 4, 5, 15, 19: // struct, union, data section, enum of 64 bits
			size += 12 * n
		case 6, 13: // enum, parameters
			size += 8 * n
		}
		b = b[min(size, uint64(len(b))):]
	}
	return nil
}

// openBTF reads a .BTF section.
func openBTF(_ *elf.File, b []byte) (*Table, error) { return openTypes(b, maxFileTypes) }

func openTypes(b []byte, most int) (*Table, error) {
	if err := checkBTF(b, most); err != nil {
		return nil, err
	}
	spec, err := readBTF(b, nil)
	if err != nil {
		return nil, err
	}
	return newBTF(spec), nil
}

// readBTF reads raw BTF; base has the types that it goes on from, nil for all.
func readBTF(b []byte, base *btf.Spec) (spec *btf.Spec, err error) {
	if bytes.HasPrefix(b, []byte(elf.ELFMAG)) {
		return nil, errors.New("not BTF")
	}
	err = try(func() error {
		if base == nil {
			spec, err = btf.LoadSpecFromReader(bytes.NewReader(b))
		} else {
			spec, err = btf.LoadSplitSpecFromReader(bytes.NewReader(b), base)
		}
		return err
	})
	return spec, err
}

func newBTF(spec *btf.Spec) *Table {
	return &Table{
		source: BTF,
		functions: func(name string) (list []function, err error) {
			types, err := spec.AnyTypesByName(name)
			if errors.Is(err, btf.ErrNotFound) {
				return nil, nil
			}
			for _, t := range types {
				if f, ok := t.(*btf.Func); ok && f.Name == name { // not so for some with ___ in them
					list = append(list, btfFunction{f})
				}
			}
			return list, err
		},
		names: func() (names []string) {
			for t, err := range spec.All() {
				if err != nil {
					break
				}
				if f, ok := t.(*btf.Func); ok && f.Name != "" {
					names = append(names, f.Name)
				}
			}
			return names
		},
	}
}

type btfFunction struct{ *btf.Func }

func (f btfFunction) Parameters() (string, error) { return cdecl.Parameters(btfType, f.Type) }

func (f btfFunction) Declaration() (string, error) { return cdecl.Declare(btfType, f.Type, f.Name) }

// btfType describes a type. The last parameter of a function with variable arguments has the
// type void.
func btfType(of btf.Type) (t cdecl.Type[btf.Type], err error) {
	switch x := of.(type) {
	case nil, *btf.Void:
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
		t.Kind, t.Of, t.Empty = cdecl.Function, x.Return, "void"
		for i, p := range x.Params {
			if _, void := p.Type.(*btf.Void); void && i == len(x.Params)-1 {
				t.Varargs = true
				break
			}
			t.Params = append(t.Params, cdecl.Param[btf.Type]{Name: p.Name, Of: p.Type})
		}
	default:
		return t, fmt.Errorf("a value of type %T", of)
	}
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
	dir  string
	base func() (*btf.Spec, error)

	mu     sync.Mutex
	tables map[string]*Table // by module; "" is the kernel itself
	err    error
}

// KernelDir is the folder in which Linux shows them.
const KernelDir = "/sys/kernel/btf"

// NewKernel returns the prototypes in a folder like KernelDir.
func NewKernel(dir string) *Kernel {
	k := &Kernel{dir: dir, tables: make(map[string]*Table)}
	k.base = sync.OnceValues(func() (*btf.Spec, error) { return k.read("vmlinux", nil) })
	return k
}

func (k *Kernel) read(name string, base *btf.Spec) (*btf.Spec, error) {
	b, err := os.ReadFile(filepath.Join(k.dir, name))
	if err != nil {
		return nil, err
	}
	spec, err := readBTF(b, base)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(k.dir, name), err)
	}
	return spec, nil
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
	spec, err := k.base()
	if err == nil && module != "" && module == filepath.Base(module) {
		spec, err = k.read(module, spec)
	}
	switch {
	case err == nil:
		t = newBTF(spec)
	case !errors.Is(err, os.ErrNotExist) && k.err == nil:
		k.err = err
	}
	k.tables[module] = t
	return t
}

// Err returns the first error other than of files that are not there.
func (k *Kernel) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}
