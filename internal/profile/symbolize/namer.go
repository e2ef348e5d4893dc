// Package symbolize gives the frames of unwound stacks their names: from symbol tables, debug information, files
// perf-PID.map and the kernel's symbols.
//
// A Namer reads each source once and is shared; each goroutine has a Cache of frames. An object's symbols are kept as
// long as the object, of which the Namer holds only a weak pointer.
package symbolize

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"weak"

	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/internal/rows/jit"
	"github.com/ehasm/ehasm/unwind"
)

// Options says where names come from.
type Options struct {
	Addresses  bool       // no names, but of the objects: frames of files have the offset in the file
	Mangled    bool       // do not demangle names
	Inline     bool       // also name inlined functions
	Lines      bool       // add source files and lines to frames
	Signatures bool       // add parameters to functions
	Prototypes Prototypes // more of them than DWARF and names have; may be nil
	Kallsyms   string     // path; empty: kernel frames get no names
	HostKernel bool       // Kallsyms is of this machine's kernel: perf's copy, below DebugDirs, goes before it
	KernelCopy string     // with HostKernel: file for a copy of Kallsyms, used until the next boot; empty: none
	// KernelNotes has the build-id of this machine's kernel: /sys/kernel/notes. With HostKernel; empty: not known.
	KernelNotes string
	// Places says where the names of code made at run time are; nil: they are not looked for.
	Places    *jit.Places
	DebugDirs []string // folders with .build-id folders of perf or of gdb
	// OpenFiles lets names stay in their files until they are needed, for a Namer that lives long. May be nil.
	OpenFiles *symbols.OpenFiles
	// Symbols, if not nil, is asked for the symbols of the kernel, and of objects, which it may have read when their
	// files were still there.
	Symbols *Namer
	// Fetch returns the path of a debug file that is in none of these places, by its
	// build-id, or "". May be nil.
	Fetch func(buildID []byte) (path string, err error)
}

// Namer finds names. Its methods are safe for concurrent use, except SetKernel
// and Close.
type Namer struct {
	opt     Options                                     // where names come from
	kern    once[*symbols.Kernel]                       // the kernel's symbols
	mu      sync.Mutex                                  // protects the maps below and errs
	objects map[weak.Pointer[unwind.Object]]*tableEntry // weak: nothing else may know an object that was released
	jit     map[int32]*once[jitMap]                     // names of code made at run time, by PID
	jitLeft *symbols.Budget                             // of all in jit
	debug   map[*unwind.Object]*once[*debugInfo]
	types   map[*unwind.Object]*once[func(string) string] // see prototypes
	plain   map[string]string                             // demangled
	errs    []error                                       // why names were not available, for Close
	hits    map[*unwind.Object]Hits                       // of the caches that were given up
	// unfetched holds the objects whose debug files could not be fetched and
	// that were reported.
	unfetched map[*unwind.Object]bool
	running   KernelID // not changed once kernelTable is called

	background sync.WaitGroup // reads symbols while eh_elfs are compiled
}

// New returns a Namer.
func New(opt Options) *Namer {
	return &Namer{opt: opt, objects: make(map[weak.Pointer[unwind.Object]]*tableEntry), jit: make(map[int32]*once[jitMap]),
		debug: make(map[*unwind.Object]*once[*debugInfo]), types: make(map[*unwind.Object]*once[func(string) string]),
		plain: make(map[string]string), unfetched: make(map[*unwind.Object]bool)}
}

// warn keeps an error for Close: names are an extra, so none ends a run.
func (n *Namer) warn(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.errs = append(n.errs, err)
}

// demangle returns the source name, of limited length. It caches names, since inlined functions
// occur at many addresses.
func (n *Namer) demangle(name string) string {
	if n.opt.Mangled || !strings.HasPrefix(name, "_") && !strings.HasPrefix(name, "caml") {
		return symbols.Cut(name)
	}
	n.mu.Lock()
	d, ok := n.plain[name]
	n.mu.Unlock()
	if !ok {
		d = symbols.Demangle(name)
		n.mu.Lock()
		n.plain[name] = d
		n.mu.Unlock()
	}
	return d
}

// kernel names the instruction at an address of the kernel; made is the symbol of code that was made at run time, or
// nil. The frame stays without a name if the kernel's symbols are not available.
func (n *Namer) kernel(ip uint64, made *symbols.Symbol) *frame.Frame {
	const bpf = "[bpf]" // the module of BPF programs, by those that are there when kallsyms is read
	f := &frame.Frame{IP: ip, Kernel: true, DSO: "[kernel.kallsyms]"}
	if made != nil {
		f.Name, f.Offset, f.DSO = made.Name, ip-made.Start, made.Name // as perf has it
	} else if s := n.kernelTable().Find(ip); s != nil && !(n.running.OwnCode && s.Module == bpf) {
		f.Name, f.Offset = n.demangle(s.Name), ip-s.Start
		f.Parameters = n.kernelSignature(s.Name, s.Module)
		if s.Module != "" {
			f.DSO = s.Module
		}
	}
	return f
}

// user returns the frame of the run-time address pc, which m holds; m may be nil. key is the one of the frame. signal
// reports whether it is a signal frame: its caller was interrupted, it did not call. It reads files at the first call
// for an object.
func (n *Namer) user(m *unwind.Mapping, key frameKey, pc uint64) (f *frame.Frame, signal bool) {
	f = &frame.Frame{IP: key.addr, Object: key.object, DSO: "[unknown]"}
	if m == nil {
		return f, false
	}
	// Code that lies in no file has a PID in its key.
	if key.pid != 0 {
		if f.Object.Name == "[uprobes]" { // copies of probed instructions, which the kernel steps: no map names them
			f.DSO = f.Object.Name
			return f, false
		}
		if strings.HasPrefix(f.Object.Name, memfdPrefix) { // for perf, a file like others
			f.IP = m.FileOffset(pc)
		}
		return n.anonymous(f, pc, key.pid), false
	}
	f.DSO = m.Object.Name
	if n.opt.Addresses {
		return f, false
	}
	bias, ok := m.Object.Bias(m)
	if !ok { // without a bias there is no link-time address, and no symbol
		return f, false
	}
	addr := pc - bias
	symbol := ""
	table := n.table(m.Object)
	if s := table.Find(addr); s != nil {
		symbol = s.Name
		f.Name, f.Offset = n.demangle(symbol), addr-s.Start
		if plain := table.Decode(symbol); plain != "" && !n.opt.Mangled {
			f.Name = plain
		}
	}
	n.locate(f, m.Object, addr)
	if f.Name == "" {
		n.nameByStart(f, m.Object, addr)
	}
	if f.Parameters == "" && symbol != "" {
		f.Parameters = n.signature(m.Object, symbol)
	}
	return f, m.Object.SignalFrame(addr)
}

// jitMemory is what the symbols of all code made at run time may take, in bytes. A map of 100 MB takes twice that.
const jitMemory = 256 << 20

// jitMap holds the names of perf-PID.map or jit-PID.dump.
type jitMap struct {
	path  string         // of the file that was read; the last one tried if none could be
	table *symbols.Table // nil: there is none
}

// memfdPrefix begins the names of files in memory: memfd_create(2).
const memfdPrefix = "/memfd:"

// anonymous names code that was made at run time. Its object has the name of the
// mapping if there is one, otherwise the name of the map that names its functions.
func (n *Namer) anonymous(f *frame.Frame, pc uint64, pid int32) *frame.Frame {
	f.DSO, f.JIT = f.Object.Name, true
	if n.opt.Places == nil {
		return f
	}
	n.mu.Lock()
	o := n.jit[pid]
	if o == nil {
		o = new(once[jitMap])
		n.jit[pid] = o
	}
	if n.jitLeft == nil {
		n.jitLeft = symbols.NewBudget(jitMemory)
	}
	left := n.jitLeft
	n.mu.Unlock()
	m := o.get(func() jitMap { return n.readJIT(pid, left) })
	switch {
	case strings.HasPrefix(f.Object.Name, memfdPrefix):
	case m.table == nil:
		f.DSO, f.PerfMap = "[anonymous memory]", m.path
	default:
		f.DSO = m.path
	}
	if s := m.table.Find(pc); s != nil {
		f.Name, f.Offset = n.demangle(s.Name), pc-s.Start
	}
	return f
}

// ForgetJIT makes the next lookups read the names of code made at run time again, since
// there may be more by now.
func (n *Namer) ForgetJIT() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.jit)
	n.jitLeft = nil
}

// readJIT reads the names of the code that a process has made at run time: its jitdump file, which includes all of its
// map, or else its map. What a file of another user says is not believed: see symbols.Written.
func (n *Namer) readJIT(pid int32, left *symbols.Budget) (m jitMap) {
	if dump, ok := n.opt.Places.Dumped(pid); ok {
		table, err := symbols.JITDump(dump, left)
		if err == nil {
			return jitMap{dump.Name, table}
		}
		if !errors.Is(err, os.ErrNotExist) {
			n.warn(err)
		}
	}
	for _, file := range n.opt.Places.Maps(pid) {
		m.path = file.Name
		var err error
		if m.table, err = symbols.PerfMap(file, left); err == nil {
			break
		}
		if !errors.Is(err, os.ErrNotExist) { // most processes have none
			n.warn(err)
		}
	}
	return m
}

// tableEntry holds an object's symbols.
type tableEntry struct {
	once    sync.Once             // runs fill
	fill    func() *symbols.Table // nil once value is set: it may hold the object, or all of its symbols
	value   *symbols.Table
	settled bool // only those that were met

	functions once[functions] // for addresses without a symbol
}

// symbols returns the object's symbols, which the first call reads; nil: it has none.
func (e *tableEntry) symbols() *symbols.Table {
	e.once.Do(func() {
		e.value = e.fill()
		e.fill = nil
	})
	return e.value
}

// entry returns the cache entry of an object's symbols; first reports whether this
// is the first call for the object.
func (n *Namer) entry(o *unwind.Object) (e *tableEntry, first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := weak.Make(o)
	e = n.objects[k]
	if e == nil {
		e, first = &tableEntry{fill: func() *symbols.Table { t, _ := n.readSymbols(o); return t }}, true
		n.objects[k] = e
		runtime.AddCleanup(o, forget, entryKey{weak.Make(n), k})
	}
	return e, first
}

// entryKey names an entry. It keeps neither the Namer nor the object alive: a cleanup keeps its argument until it runs.
type entryKey struct {
	namer  weak.Pointer[Namer]
	object weak.Pointer[unwind.Object]
}

// forget removes the entry of an object that is gone.
func forget(k entryKey) {
	n := k.namer.Value()
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.objects, k.object)
}

// Foresee reads the symbols and the debug information of an object in the
// background.
func (n *Namer) Foresee(o *unwind.Object) {
	e, first := n.entry(o)
	if e.settled { // it is in use again
		first = true
		n.set(o, &tableEntry{fill: func() *symbols.Table {
			t, err := n.readSymbols(o)
			if err != nil {
				return e.symbols()
			}
			return t
		}})
	}
	if first {
		n.background.Go(func() { n.table(o) })
		if n.opt.places() {
			n.background.Go(func() { n.debugInfo(o) })
		}
	}
}

// set replaces the cache entry of an object. Goroutines that have the old one go on with it.
func (n *Namer) set(o *unwind.Object, e *tableEntry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.objects[weak.Make(o)] = e
}

// Settle drops the symbols of an object but those at the link-time addresses met, in the background. done is called
// when the object's file is not needed any more. Foresee and Settle may be used by one goroutine at a time. Settle is
// not for a Namer of inlined functions, lines or signatures.
func (n *Namer) Settle(o *unwind.Object, met []uint64, done func()) {
	all, _ := n.entry(o) // the full table is needed to choose from, and is then dropped
	few := &tableEntry{settled: true}
	few.fill = func() *symbols.Table {
		t := all.symbols().Only(met)
		few.functions.get(func() functions { return n.functionsMet(o, all, t, met) })
		return t
	}
	n.set(o, few)
	n.background.Go(func() {
		few.symbols()
		done()
	})
}

// functionsMet returns the functions that hold those of the addresses met, which ascend, that have no symbol.
func (n *Namer) functionsMet(o *unwind.Object, all *tableEntry, named *symbols.Table, met []uint64) functions {
	var bare []uint64
	for _, addr := range met {
		if named.Find(addr) == nil {
			bare = append(bare, addr)
		}
	}
	if len(bare) == 0 {
		return nil
	}
	return all.functions.get(func() functions { return readFunctions(o) }).only(bare)
}

// table returns the symbols of an object, or nil if it has none.
func (n *Namer) table(o *unwind.Object) *symbols.Table {
	if n.opt.Symbols != nil {
		return n.opt.Symbols.table(o)
	}
	e, _ := n.entry(o)
	return e.symbols()
}

// readSymbols reads an object's symbols; nil: it has none.
func (n *Namer) readSymbols(o *unwind.Object) (*symbols.Table, error) {
	file, _, err := o.Open()
	if err != nil {
		return nil, err // the object's own error is reported
	}
	var t *symbols.Table
	defer func() {
		if !t.Keeps(file) {
			file.Close()
		}
	}()
	dir := ""
	if o.Path() != "" {
		dir = filepath.Dir(o.Path())
	}
	t, err = symbols.FromFiles(file, &symbols.Files{Dir: dir, DebugPaths: o.DebugPaths(), DebugDirs: n.opt.DebugDirs,
		Fetch: func() string { return n.fetch(o) }, Open: n.opt.OpenFiles})
	if err != nil {
		n.warn(fmt.Errorf("%s: symbols: %w", o.Name, err))
	}
	return t, err
}

// fetch asks for an object's debug file, and returns "" if there is none.
func (n *Namer) fetch(o *unwind.Object) string {
	id := o.BuildID()
	if n.opt.Fetch == nil || len(id) == 0 || o.Path() == "" {
		return ""
	}
	path, err := n.opt.Fetch(id)
	if err != nil {
		n.mu.Lock()
		told := n.unfetched[o]
		n.unfetched[o] = true
		n.mu.Unlock()
		if !told { // symbols and lines come from the same file
			n.warn(fmt.Errorf("%s: debug symbols: %w", o.Name, err))
		}
		return ""
	}
	return path
}

// Symbols returns how many symbols have been read for an object.
func (n *Namer) Symbols(o *unwind.Object) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e := n.objects[weak.Make(o)]; e != nil {
		return e.value.Len()
	}
	return 0
}

// Close waits for background reads, frees the caches, and returns why names were
// not available. No other method but Symbols may be called during or after it.
func (n *Namer) Close() []error {
	n.background.Wait()
	n.closeDebugInfo()
	if n.opt.Prototypes != nil {
		if err := n.opt.Prototypes.Err(); err != nil {
			n.errs = append(n.errs, fmt.Errorf("kernel functions have no parameters: %w", err))
		}
	}
	n.kern.value.Close()
	return n.errs
}
