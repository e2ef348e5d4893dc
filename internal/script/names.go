package script

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ehasm/ehasm/internal/symbols"
	"github.com/ehasm/ehasm/unwind"
)

// frame is a place in the code, and its text in the format.
type frame struct {
	ip     uint64 // as perf prints it: a file offset, or a run-time address
	name   string // "" where unknown
	offset uint64 // from the start of the function
	dso    string
	inKern bool
	signal bool // a signal frame: its caller was interrupted, it did not call
	object *unwind.Object
	text   []byte
	source
	inner []inlined // at this address, innermost first
	hits  uint64
}

// namer finds names. Its methods may be called from several goroutines.
type namer struct {
	opt     *Options
	kern    once[*symbols.Kernel]
	mu      sync.Mutex
	objects map[*unwind.Object]*once[*symbols.Table]
	jit     map[int32]*once[jitMap]
	debug   map[*unwind.Object]*once[*debugInfo]
	plain   map[string]string // demangled
	errs    []error
	running kernelID // of the kernel that ran; not changed once kernelTable is called

	background sync.WaitGroup // reads symbols while eh_elfs are compiled
}

func newNamer(opt *Options) *namer {
	return &namer{opt: opt, objects: make(map[*unwind.Object]*once[*symbols.Table]), jit: make(map[int32]*once[jitMap]),
		debug: make(map[*unwind.Object]*once[*debugInfo]), plain: make(map[string]string)}
}

func (n *namer) warn(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.errs = append(n.errs, err)
}

// demangle turns a name into the source's. What is inlined is met at many
// addresses: names are kept.
func (n *namer) demangle(name string) string {
	if n.opt.Mangled || !strings.HasPrefix(name, "_") {
		return name
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

func (n *namer) kernel(ip uint64) *frame {
	f := &frame{ip: ip, inKern: true, dso: "[kernel.kallsyms]"}
	if s := n.kernelTable().Find(ip); s != nil {
		f.name, f.offset = n.demangle(s.Name), ip-s.Start
		if s.Module != "" {
			f.dso = s.Module
		}
	}
	return f
}

// user names the run-time address at, which m holds; m may be nil.
func (n *namer) user(m *unwind.Mapping, key frameKey, at uint64) *frame {
	f := &frame{ip: key.addr, object: key.object, dso: "[unknown]"}
	if m == nil {
		return f
	}
	if key.pid != 0 {
		return n.anonymous(f, key.pid)
	}
	f.dso = m.Object.Name
	bias, ok := m.Object.Bias(m)
	if !ok {
		return f
	}
	addr := at - bias
	f.signal = m.Object.SignalFrame(addr)
	if s := n.table(m.Object).Find(addr); s != nil {
		f.name, f.offset = n.demangle(s.Name), addr-s.Start
	}
	n.locate(f, m.Object, addr)
	return f
}

// jitMap is what perf-PID.map says.
type jitMap struct {
	path  string
	table *symbols.Table
}

// anonymous names code that was made at run time.
func (n *namer) anonymous(f *frame, pid int32) *frame {
	f.dso = f.object.Name
	if len(n.opt.MapDirs) == 0 {
		return f
	}
	n.mu.Lock()
	o := n.jit[pid]
	if o == nil {
		o = new(once[jitMap])
		n.jit[pid] = o
	}
	n.mu.Unlock()
	m := o.get(func() (m jitMap) {
		for _, dir := range n.opt.MapDirs {
			m.path = filepath.Join(dir, fmt.Sprintf("perf-%d.map", pid))
			var err error
			if m.table, err = symbols.PerfMap(m.path); err == nil {
				break // most processes have none
			}
		}
		return m
	})
	f.dso = m.path
	if s := m.table.Find(f.ip); s != nil {
		f.name, f.offset = n.demangle(s.Name), f.ip-s.Start
	}
	return f
}

// entry is where the symbols of an object are kept; first tells that nobody has
// asked for them.
func (n *namer) entry(o *unwind.Object) (e *once[*symbols.Table], first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e = n.objects[o]
	if e == nil {
		e, first = new(once[*symbols.Table]), true
		n.objects[o] = e
	}
	return e, first
}

// foresee reads the symbols and the debug information of an object in the
// background.
func (n *namer) foresee(o *unwind.Object) {
	if _, first := n.entry(o); first {
		n.background.Go(func() { n.table(o) })
		if n.opt.Inline || n.opt.Lines {
			n.background.Go(func() { n.debugInfo(o) })
		}
	}
}

// table is the symbols of an object, nil where it has none.
func (n *namer) table(o *unwind.Object) *symbols.Table {
	e, _ := n.entry(o)
	return e.get(func() *symbols.Table {
		file, _, err := o.Open()
		if err != nil {
			return nil // the object's own error says it
		}
		defer file.Close()
		dir := ""
		if o.Path() != "" {
			dir = filepath.Dir(o.Path())
		}
		t, err := symbols.FromELF(file, dir, o.DebugPaths(), n.opt.Objects.DebugDirs)
		if err != nil {
			n.warn(fmt.Errorf("%s: symbols: %w", o.Name, err))
		}
		return t
	})
}
