package symbolize

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sort"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/unwind"
)

// This file names code without symbols by the start of its function, which FDEs tell: stripped programs look like one
// function otherwise. It also says which files lack names.

// functions are the functions of an object as its FDEs bound them, at link-time addresses,
// ascending by start.
type functions []function

// function is the range [start, end) of an FDE.
type function struct{ start, end uint64 }

// readFunctions reads the FDEs of an object; nil: it has none that can be read.
func readFunctions(o *unwind.Object) functions {
	file, size, err := o.Open()
	if err != nil {
		return nil
	}
	defer file.Close()
	object, err := dwarfcfa.NewFile(o.Name, file, size)
	if err != nil {
		return nil
	}
	sections, err := object.Sections(dwarfcfa.SourceAuto)
	if errors.Is(err, dwarfcfa.ErrNoUnwindInfo) {
		return nil
	}
	var list functions
	for _, s := range sections {
		for e, err := range s.Entries() {
			if err == nil && e.FDE != nil && e.FDE.Start < e.FDE.End {
				list = append(list, function{uint64(e.FDE.Start), uint64(e.FDE.End)})
			}
		}
	}
	slices.SortFunc(list, func(a, b function) int {
		return cmp.Or(cmp.Compare(a.start, b.start),
			cmp.Compare(a.end, b.end))
	})
	return slices.Clip(slices.Compact(list))
}

// find returns the function that holds addr.
func (list functions) find(addr uint64) (f function, ok bool) {
	i := sort.Search(len(list), func(i int) bool { return list[i].start > addr }) - 1
	if i < 0 || addr >= list[i].end {
		return function{}, false
	}
	return list[i], true
}

// only returns those functions that hold one of the addresses, which ascend.
func (list functions) only(addrs []uint64) (few functions) {
	for _, addr := range addrs {
		if f, ok := list.find(addr); ok && (len(few) == 0 || few[len(few)-1] != f) {
			few = append(few, f)
		}
	}
	return few
}

// functionsOf returns the functions of an object's FDEs, read at the first call. It keeps 16 bytes for each.
func (n *Namer) functionsOf(o *unwind.Object) functions {
	// Where another Namer reads the symbols, it also has the functions of objects whose files are
	// gone.
	if n.opt.Symbols != nil {
		return n.opt.Symbols.functionsOf(o)
	}
	e, _ := n.entry(o)
	e.symbols() // what was settled has set its functions then
	return e.functions.get(func() functions { return readFunctions(o) })
}

// nameByStart names a frame without a symbol after its object and the start of its function:
// libfoo.so+0x4e40. Else all such functions of an object would look like one.
func (n *Namer) nameByStart(f *frame.Frame, o *unwind.Object, addr uint64) {
	if fn, ok := n.functionsOf(o).find(addr); ok {
		f.Name, f.Offset, f.NoSymbol = fmt.Sprintf("%s+%#x", filepath.Base(o.Name), fn.start), addr-fn.start, true
	}
}

// Nameless is Nameless for the frames of the caches that were closed. Call it before Close.
func (n *Namer) Nameless() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return Nameless(n.hits)
}

// Nameless says for which objects many frames have no symbol, the worst first, and how to get
// them.
func Nameless(counts map[*unwind.Object]Hits) (list []string) {
	const most, worthIt = 3, 5 // of objects; one frame in this number: less is libc below main
	var all uint64
	var objects []*unwind.Object
	for o, h := range counts {
		all += h.All
		objects = append(objects, o)
	}
	slices.SortFunc(objects, func(a, b *unwind.Object) int {
		return cmp.Or(cmp.Compare(counts[b].Unnamed, counts[a].Unnamed), cmp.Compare(a.Name, b.Name))
	})
	for _, o := range objects {
		h := counts[o]
		if len(list) == most || h.Unnamed == 0 || h.Unnamed*worthIt < all {
			break
		}
		if o.Path() != "" { // the vDSO and code made at run time have no debug file to install
			list = append(list, fmt.Sprintf("%s has no names for %.0f %% of its frames: %s", o.Name,
				100*float64(h.Unnamed)/float64(h.All), remedy(o.BuildID())))
		}
	}
	return list
}

// remedy says how to get the names of a file with this build-id; nil: it has none.
func remedy(buildID []byte) string {
	text := "install its debug symbols (on Debian the package with -dbgsym)"
	if len(buildID) > 0 {
		text += fmt.Sprintf(", or set DEBUGINFOD_URLS to a server that knows build-id %x", buildID)
	}
	return text
}
