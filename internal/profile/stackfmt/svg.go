package stackfmt

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/internal/profile/flamegraph"
	"github.com/ehasm/ehasm/internal/profile/tally"
)

// flames makes a flame graph.
type flames struct {
	opt     GraphOptions
	frames  numbers[flamegraph.Frame, flamegraph.Frame] // frames by number, inlined ones among them
	workers []*flameWorker
}

// svgSpec describes the format svg.
func svgSpec() *Spec {
	return &Spec{Name: "svg", Suffixes: []string{".svg"}, Settings: []string{"title", "width", "max-size", "inverted",
		"reversed", "before"},
		View: "a flame graph: open it in a browser",
		New: func(opt Options) Format {
			return &flames{opt: opt.Graph}
		}}
}

// Worker returns a worker with its own counts.
func (t *flames) Worker() Worker {
	w := &flameWorker{flames: t}
	t.workers = append(t.workers, w)
	return w
}

// flameWorker counts stacks as sequences of frame numbers.
type flameWorker struct {
	flames  *flames
	counts  tally.Tally // samples, by numbers of frames
	guessed uint64      // stacks with frames found by frame pointer
	buf     []byte      // of Add, reused
}

// append adds the number of a frame to a stack. It may be called from several
// goroutines.
func (t *flames) append(b []byte, kind flamegraph.Kind, name, object string) []byte {
	f := flamegraph.Frame{Name: name, Kind: kind, Object: object}
	return tally.AppendNumber(b, t.frames.number(f, func() flamegraph.Frame { return f }))
}

// kind returns the kind that chooses a frame's colours.
func kind(f *frame.Frame) flamegraph.Kind {
	switch {
	case f.Kernel:
		return flamegraph.Kernel
	case f.Name == "":
		return flamegraph.Unknown
	case f.JIT:
		return flamegraph.JIT
	}
	return flamegraph.User
}

// object returns the name of the file that holds a frame's function, unless its name or colour says it.
func object(f *frame.Frame) string {
	if f.Name == "" || f.NoSymbol || f.JIT || f.DSO == "" || f.DSO == "[kernel.kallsyms]" {
		return ""
	}
	return filepath.Base(f.DSO)
}

// Render makes the numbers of a frame and of the functions inlined into it, outermost first.
func (w *flameWorker) Render(f *frame.Frame) {
	t, file := w.flames, object(f)
	f.Text = t.append(f.Text, kind(f), foldedName(f), file)
	for _, in := range slices.Backward(f.Inlined) {
		f.Text = t.append(f.Text, flamegraph.Inlined, in.Shown(), file)
	}
}

// Add counts the stack as folded does.
func (w *flameWorker) Add(b []byte, s *Sample) []byte {
	t := w.flames
	k := t.append(w.buf[:0], flamegraph.Base, s.Comm, "")
	if s.Cut() {
		k = t.append(k, flamegraph.Truncated, "[truncated]", "")
	}
	for _, f := range slices.Backward(s.Frames) {
		k = append(k, f.Text...)
	}
	w.buf = k
	// Equal stacks have equal keys: a count is all that grows.
	w.counts.Add(k, tally.Sum{s.weight()})
	if len(s.Guessed) > 0 {
		w.guessed += s.count()
	}
	return b
}

// Finish draws the counts of all workers.
func (t *flames) Finish(w io.Writer, r *Recording) error {
	// The recording to compare with has its own numbers, which follow this one's.
	before, _ := t.opt.Before.(*flames)
	list := t.frames.list
	if before != nil {
		list = append(slices.Clone(list), before.frames.list...)
		for i := range list {
			list[i].Object = "" // the programs compared may have different names
		}
	}
	g := flamegraph.New(list)
	t.each(0, g.Add)
	if before != nil {
		before.each(uint32(len(t.frames.list)), g.AddBefore)
	}
	unit := "samples"
	if len(r.Events) == 1 && r.Events[0].Weight != "" { // several events count as samples
		unit = r.Events[0].Weight
	}
	_, err := g.Write(w, flamegraph.Options{Title: cmp.Or(t.opt.Title, r.title()), Unit: unit,
		Width: t.opt.Width, MaxBytes: t.opt.MaxBytes, Inverted: t.opt.Inverted, Note: t.guessed()})
	return err
}

// guessed returns text that says how many stacks have frames that unwind information does
// not prove; the graph does not mark them.
func (t *flames) guessed() string {
	n := uint64(0)
	for _, w := range t.workers {
		n += w.guessed
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("in %d, callers found by the frame pointer, which may leave some out", n)
}

// each calls add for all counts, with frame numbers that begin at first.
func (t *flames) each(first uint32, add func([]uint32, uint64)) {
	var stack []uint32
	for _, w := range t.workers {
		for key, n := range tally.All(&w.counts) {
			stack = stack[:0]
			for f := range tally.Numbers(key) {
				stack = append(stack, first+f)
			}
			if t.opt.Reversed {
				slices.Reverse(stack)
			}
			add(stack, n[0])
		}
	}
}

// title returns the recorded command, and which events its samples are of.
func (r *Recording) title() string {
	title := strings.Join(r.Command, " ")
	if title == "" {
		title = "flame graph"
	}
	var events []string
	for _, e := range r.Events {
		if e.Name != "dummy" && !slices.Contains(events, e.Name) { // record --raw has a dummy and two frequencies
			events = append(events, e.Name)
		}
	}
	return title + " (" + strings.Join(events, ", ") + ")"
}
