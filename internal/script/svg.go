package script

import (
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/ehasm/ehasm/internal/flamegraph"
	"github.com/ehasm/ehasm/unwind"
)

// flames numbers the frames of a flame graph, so that a stack is a string of
// numbers of four bytes. Its methods may be called from several goroutines.
type flames struct {
	mu   sync.Mutex
	ids  map[flamegraph.Frame]uint32
	list []flamegraph.Frame // by number
}

// append adds the number of a frame to a stack.
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

func (t *flames) text(f *frame) []byte {
	kind := flamegraph.User
	switch {
	case f.inKern:
		kind = flamegraph.Kernel
	case f.name == "":
		kind = flamegraph.Unknown
	}
	b := t.append(nil, kind, foldedName(f))
	for _, in := range slices.Backward(f.inner) {
		b = t.append(b, flamegraph.Inlined, in.name)
	}
	return b
}

// flame counts the sample's stack as fold does.
func (w *worker) flame(s *sample) {
	flames := &w.run.flames
	b := flames.append(w.buf[:0], flamegraph.Base, s.comm)
	if w.end != noUserStack && w.end != unwind.Outermost {
		b = flames.append(b, flamegraph.Truncated, "[truncated]")
	}
	for _, f := range slices.Backward(w.wholeStack(s)) {
		b = append(b, f.text...)
	}
	w.buf = b
	w.folded[string(b)]++
}

// writeSVG draws the counts of all workers.
func (run *runner) writeSVG(w io.Writer, workers []*worker) error {
	g := flamegraph.New(run.flames.list)
	var stack []uint32
	for _, wk := range workers {
		for ids, n := range wk.folded {
			stack = stack[:0]
			for ; len(ids) >= 4; ids = ids[4:] {
				stack = append(stack, binary.LittleEndian.Uint32([]byte(ids[:4])))
			}
			g.Add(stack, n)
		}
	}
	_, err := g.Write(w, flamegraph.Options{Title: run.title(), Unit: "samples"})
	return err
}

// title is the recorded command, and which events its samples are of.
func (run *runner) title() string {
	title := strings.Join(run.reader.Info().Cmdline, " ")
	if title == "" {
		title = "flame graph"
	}
	var events []string
	for _, e := range run.reader.Events() {
		events = append(events, eventName(e))
	}
	return title + " (" + strings.Join(events, ", ") + ")"
}
