//go:build linux && amd64

package record

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/internal/files/elffile"
	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/profile/perfevent"
	"github.com/ehasm/ehasm/unwind"

	"golang.org/x/sys/unix"
)

// probe is a place in the kernel or in a file: config1 and config2 of the PMUs kprobe and uprobe. The kernel makes the
// probe when the event is opened, and removes it with the event.
type probe struct {
	name   []byte // of the function or file, with its zero
	offset uint64 // in bytes: in the function; in the file
}

// set puts the place into attributes. They are valid as long as the probe.
func (p *probe) set(a *perfevent.Attr) {
	a.Ext1, a.Ext2 = uint64(uintptr(unsafe.Pointer(&p.name[0]))), p.offset
}

// probeKinds are the words before the colon.
var probeKinds = [...]struct {
	word, pmu string
	atReturn  bool
}{{"kprobe", "kprobe", false}, {"kretprobe", "kprobe", true}, {"uprobe", "uprobe", false},
	{"uretprobe", "uprobe", true}}

// probeEvent returns the event of a probe; nil if kind is no probe.
func probeEvent(from *perfevent.Sources, kind, place string) (*Event, error) {
	for _, k := range probeKinds {
		if k.word != kind {
			continue
		}
		p, err := kernelProbe(place)
		if k.pmu == "uprobe" {
			p, err = userProbe(place)
		}
		if err != nil {
			return nil, err
		}
		e := &Event{every: 1, kernel: k.pmu == "kprobe", probe: p, wide: true}
		typ, atReturn, err := from.Probes(k.pmu)
		if e.typ = typ; k.atReturn {
			e.config = atReturn
		}
		return e, err
	}
	return nil, nil
}

// kernelProbe reads FUNCTION or FUNCTION+OFFSET.
func kernelProbe(place string) (*probe, error) {
	name, offset, err := cutOffset(place)
	if err != nil || name == "" {
		return nil, errors.New("want kprobe:FUNCTION, or FUNCTION+OFFSET")
	}
	return &probe{append([]byte(name), 0), offset}, nil
}

// cutOffset splits NAME+OFFSET.
func cutOffset(text string) (name string, offset uint64, err error) {
	name, number, found := strings.Cut(text, "+")
	if found {
		offset, err = strconv.ParseUint(number, 0, 32)
	}
	return name, offset, err
}

// userProbe reads FILE:FUNCTION, FILE:FUNCTION+OFFSET or FILE:ADDRESS, a link-time address.
func userProbe(place string) (*probe, error) {
	path, function, found := strings.Cut(place, ":")
	name, offset, err := cutOffset(function)
	if !found || path == "" || name == "" || err != nil {
		return nil, errors.New("want uprobe:FILE:FUNCTION, FUNCTION+OFFSET or the function's address as 0x1234")
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	r, err := input.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f, err := elffile.Open(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	address, err := strconv.ParseUint(name, 0, 64)
	if err != nil {
		id, _ := abi.BuildID(r)
		if address, err = functionAddress(f, id, name); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	addr := address + offset
	for _, s := range f.Progs {
		if s.Type == elf.PT_LOAD && s.Flags&elf.PF_X != 0 && addr >= s.Vaddr && addr-s.Vaddr < s.Filesz {
			return &probe{append([]byte(path), 0), addr - s.Vaddr + s.Off}, nil
		}
	}
	return nil, fmt.Errorf("%s: no code at %#x", path, addr)
}

// functionAddress returns the link-time address of a function that the file or its debug file names.
func functionAddress(f *elf.File, id []byte, name string) (uint64, error) {
	list, err := symbols.Lookup(f, name)
	for _, dir := range unwind.DefaultDebugDirs() {
		if len(list) > 0 || len(id) < 2 {
			break
		}
		list = debugFunctions(unwind.BuildIDPath(dir, id)+".debug", name)
	}
	switch {
	case err != nil:
		return 0, err
	case len(list) == 0:
		return 0, fmt.Errorf("no function %s; 'nm -C' and 'nm -CD' list them", name)
	case len(list) > 1:
		return 0, fmt.Errorf("%d functions %s: want an address, such as %#x", len(list), name, list[0].Value)
	case elf.ST_TYPE(list[0].Info) == elf.STT_GNU_IFUNC:
		return 0, fmt.Errorf("%s is chosen from several functions when a program starts (IFUNC): name one of those", name)
	}
	return list[0].Value, nil
}

// debugFunctions returns the functions with this name in a debug file; none if the file cannot be read.
func debugFunctions(path, name string) []elf.Symbol {
	r, err := input.Open(path)
	if err != nil {
		return nil
	}
	defer r.Close()
	f, err := elffile.Open(r)
	if err != nil {
		return nil
	}
	list, _ := symbols.Lookup(f, name)
	return list
}

// explain says what the kernel's refusal to open an event means.
func (e *Event) explain(err error) error {
	var errno unix.Errno
	switch {
	case e == nil || !errors.As(err, &errno):
		return err
	case e.probe == nil:
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	r := &perfevent.Refusal{Call: e.Name, Err: errno}
	switch {
	case errors.Is(errno, fs.ErrPermission):
		r.Reason = "a probe needs root"
	case errno == unix.ENOENT && e.kernel:
		r.Reason = "the kernel has no such function in /proc/kallsyms"
	case errno == unix.EADDRNOTAVAIL:
		r.Reason = "the kernel has several functions of this name"
	default:
		r.Reason = "the kernel does not put a probe there"
	}
	return r
}
