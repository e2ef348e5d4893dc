package srcline

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// This file is the package's interface: Info, its Lookup, and the tables of units, which are
// parsed on demand and dropped when they take too much memory.

// Want says what Lookup should find.
type Want struct {
	Inline bool // functions: that at the address, and those it is inlined into
	Lines  bool // files and lines
	// Parameters of functions. Without Inline they are those of the function that others are
	// inlined into.
	Parameters bool
}

// Frame is a place in a function. Fields that are not known, or not wanted, are
// empty.
type Frame struct {
	Func    string // the linkage name, or else the name
	Inlined bool   // into the next frame
	File    string // with the folder it was compiled in, if that is recorded
	Line    int    // from 1 on; 0: the compiler gives no line
	MD5     string // 16 bytes, of the innermost frame's file; "": the debug information has none
	// Parameters are as C declares them, in parentheses.
	Parameters string
}

// Info is the debug information of an object. Its methods are safe for
// concurrent use, except Close, which must come last.
type Info struct {
	sec   *sections
	quick *quick                   // nil: the index answers all addresses
	dir   string                   // for .dwo files
	once  sync.Once                // of index
	index index                    // after once
	dwos  atomic.Pointer[dwoFiles] // nil: the object has no split units
	files []*os.File               // closed by Close
	err   atomic.Pointer[error]    // the first one; see Err
	used  atomic.Int64             // bytes in tables of units
	limit int64                    // of used
	drop  sync.Mutex               // held while tables are dropped

	signedMu sync.Mutex
	signed   map[entryKey]string // parameters of functions, by entry
}

// defaultLimit is how many bytes of tables an object keeps by default; beyond
// it all are dropped, and read again on demand.
const defaultLimit = 128 << 20

// Err returns the first error in reading the debug information; the parts that
// could be read are used.
func (o *Info) Err() error {
	if p := o.err.Load(); p != nil {
		return *p
	}
	return nil
}

// note keeps the first error: later ones often follow from it.
func (o *Info) note(err error) {
	if err != nil {
		o.err.CompareAndSwap(nil, &err)
	}
}

// Lookup returns the frames at a link-time address, innermost first: the
// functions inlined there, then the one they are inlined into. With Lines only,
// it is one frame without a name. There is none if nothing is known.
func (o *Info) Lookup(addr uint64, want Want) (frames []Frame) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	// Faults of mapped files and panics of readers become Err.
	o.note(try(func() error {
		// .debug_aranges answers most addresses without reading all units.
		u, found := o.quick.unit(o.sec, addr)
		if u != nil {
			frames = o.lookup(u, addr, want)
		}
		// Also without a unit: the address is in a linkage table.
		if found {
			return nil
		}
		o.whole()
		// Units overlap where headers are wrong; the first one with an answer wins.
		o.index.units(addr, func(u *unit) bool {
			frames = o.lookup(u, addr, want)
			return frames != nil
		})
		return nil
	}))
	return frames
}

// whole reads the index, once. Of a compressed .debug_info it inflates everything, so it is put off as long as quick
// can answer.
func (o *Info) whole() {
	o.once.Do(func() {
		idx, skeletons, err := o.sec.buildIndex()
		o.note(err)
		o.index = idx
		if len(skeletons) > 0 {
			o.dwos.Store(&dwoFiles{skeletons: skeletons, units: make(map[*unit]*dwoUnit), dir: o.dir})
		}
	})
}

// large is the size in bytes of a unit in .debug_info whose functions and lines are read at the same time. Most are a
// tenth of it; those of whole programs (LTO, Rust) are larger.
const large = 1 << 19

// lookup returns the frames at an address of a unit, nil if the unit knows neither function nor line. Files of calls
// are numbers in the unit's line table, so the functions of a .dwo need the skeleton's lines.
func (o *Info) lookup(u *unit, addr uint64, want Want) []Frame {
	var place Frame
	var lines *lineTable
	known := false
	if want.Lines && (want.Inline || want.Parameters) && u.end-u.off > large && !u.begun.Swap(true) {
		// Read functions and lines of a large unit at the same time.
		var busy sync.WaitGroup
		defer busy.Wait()
		busy.Go(func() {
			// Faults panic per goroutine.
			debug.SetPanicOnFault(true) // of this goroutine
			o.note(try(func() error { o.funcs(u); return nil }))
		})
	}
	if want.Lines {
		lines = o.lines(u)
		place, known = lines.find(addr)
	}
	// Only the line is wanted: no function needs to be read.
	if !want.Inline && !want.Parameters {
		if !known {
			return nil
		}
		return []Frame{place}
	}
	in, funcs := o.funcs(u)
	var frames []Frame
	// From the innermost function out: each gives the place of its call to the next frame.
	for fn := funcs.find(addr); fn != none; {
		f := &funcs.funcs[fn]
		// Without Inline, only the outermost function gets a frame.
		if !want.Inline && f.parent != none {
			fn = f.parent
			continue
		}
		place.Func, place.Inlined = in.name(f.entry), f.parent != none
		if want.Parameters {
			place.Parameters = o.parameters(in, f.entry)
		}
		frames = append(frames, place)
		// The next frame's place is the call of this one.
		place = Frame{}
		if want.Lines {
			place.File, place.Line = lines.file(f.callFile), int(f.callLine)
		}
		fn = f.parent
	}
	// A line outside of all functions, as assembly has.
	if frames == nil && known {
		frames = []Frame{place}
	}
	return frames
}

// lines returns the line table of a unit.
func (o *Info) lines(u *unit) *lineTable {
	// Readers of the same unit wait; other units go on.
	u.lineMu.Lock()
	t := u.lines
	fresh := t == nil
	if fresh {
		t = &lineTable{}
		o.note(try(func() error { return u.parseLines(t) }))
		u.lines = t
	}
	u.lineMu.Unlock()
	// Outside of the lock, since count takes the locks of all units.
	if fresh {
		o.count(t.size())
	}
	return t
}

// funcs returns the functions of a unit, and the unit that their entries are in:
// another one where the unit is the skeleton of a .dwo file.
func (o *Info) funcs(u *unit) (*unit, *funcTable) {
	// In split DWARF the functions are in another file.
	if d := o.dwos.Load(); d != nil {
		in, size, err := d.unit(u)
		o.note(err)
		o.count(size)
		if in != nil {
			u = in
		}
	}
	u.mu.Lock()
	t := u.funcs
	fresh := t == nil
	if fresh {
		t = &funcTable{}
		o.note(try(func() error { return u.parseFuncs(t) }))
		u.funcs = t
	}
	u.mu.Unlock()
	if fresh {
		o.count(t.size())
	}
	return u, t
}

// try turns panics into errors: a file that shrinks while it is mapped faults, and debug/dwarf and debug/elf may panic
// on malformed input. The caller has set SetPanicOnFault on its goroutine.
func try(f func() error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case *sectionError:
			err = p
		default:
			err = fmt.Errorf("reading debug information: %v", p)
		}
	}()
	return f()
}

// count adds n bytes of tables, and drops all when there are too many. The caller holds no lock of a unit.
func (o *Info) count(n int) {
	if o.used.Add(int64(n)) <= o.limit || !o.drop.TryLock() { // another goroutine is dropping already
		return
	}
	defer o.drop.Unlock()
	o.used.Store(0)
	// Lookups may go on with dropped tables, to which they have pointers.
	for _, u := range o.sec.unitList() {
		u.mu.Lock()
		u.funcs = nil
		u.mu.Unlock()
		u.lineMu.Lock()
		u.lines = nil
		u.lineMu.Unlock()
		u.scopeMu.Lock()
		u.scopes = nil
		u.scopeMu.Unlock()
	}
	o.signedMu.Lock()
	o.signed = nil
	o.signedMu.Unlock()
	o.sec.forget()
	if d := o.dwos.Load(); d != nil {
		d.forget()
	}
}

// Close closes the files that Open opened.
func (o *Info) Close() error {
	o.sec.close()
	for _, f := range o.files {
		f.Close()
	}
	return nil
}
