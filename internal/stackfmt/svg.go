package stackfmt

import (
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/ehasm/ehasm/internal/flamegraph"
)

// flames is a flame graph. It numbers frames, so that a stack is a string of
// numbers of four bytes.
type flames struct {
	mu      sync.Mutex
	ids     map[flamegraph.Frame]uint32
	list    []flamegraph.Frame // by number
	workers []*flameWorker
}

func svgSpec() *Spec {
	return &Spec{Name: "svg", Suffixes: []string{".svg"}, New: func(Options) Format {
		return &flames{ids: make(map[flamegraph.Frame]uint32)}
	}}
}

func (t *flames) Worker() Worker {
	w := &flameWorker{flames: t, counts: make(map[string]uint64)}
	t.workers = append(t.workers, w)
	return w
}

type flameWorker struct {
	flames *flames
	counts map[string]uint64
	buf    []byte
}

// append adds the number of a frame to a stack. It may be called from several
// goroutines.
func (t *flames) append(b []byte, kind flamegraph.Kind, name string) []byte {
	k := flamegraph.Frame{Name: name, Kind: kind}
	t.mu.Lock()
	defer t.mu.Unlock()
	id, ok := t.ids[k]
	if !ok {
		id = uint32(len(t.list))
		k.Name = strings.Clone(name)
		t.ids[k] = id
		t.list = append(t.list, k)
	}
	return binary.LittleEndian.AppendUint32(b, id)
}

func (w *flameWorker) Render(f *Frame) {
	kind := flamegraph.User
	switch {
	case f.Kernel:
		kind = flamegraph.Kernel
	case f.Name == "":
		kind = flamegraph.Unknown
	}
	f.Text = w.flames.append(f.Text, kind, foldedName(f))
	for _, in := range slices.Backward(f.Inlined) {
		f.Text = w.flames.append(f.Text, flamegraph.Inlined, in.Name)
	}
}

// Add counts the stack as folded does.
func (w *flameWorker) Add(b []byte, s *Sample) []byte {
	k := w.flames.append(w.buf[:0], flamegraph.Base, s.Comm)
	if s.cut() {
		k = w.flames.append(k, flamegraph.Truncated, "[truncated]")
	}
	for _, f := range slices.Backward(s.Frames) {
		k = append(k, f.Text...)
	}
	w.buf = k
	w.counts[string(k)] += s.count()
	return b
}

// Finish draws the counts of all workers.
func (t *flames) Finish(w io.Writer, r *Recording) error {
	g := flamegraph.New(t.list)
	var stack []uint32
	for _, wk := range t.workers {
		for ids, n := range wk.counts {
			stack = stack[:0]
			for ; len(ids) >= 4; ids = ids[4:] {
				stack = append(stack, binary.LittleEndian.Uint32([]byte(ids[:4])))
			}
			g.Add(stack, n)
		}
	}
	_, err := g.Write(w, flamegraph.Options{Title: r.title(), Unit: "samples"})
	return err
}

// title is the recorded command, and which events its samples are of.
func (r *Recording) title() string {
	title := strings.Join(r.Command, " ")
	if title == "" {
		title = "flame graph"
	}
	var events []string
	for _, e := range r.Events {
		events = append(events, e.Name)
	}
	return title + " (" + strings.Join(events, ", ") + ")"
}
