// Package timeline writes samples by thread over time, for the Firefox Profiler: a
// viewer in a browser, https://profiler.firefox.com, that keeps files on the user's machine.
//
// It writes processed profiles, version 60: docs-developer/processed-profile-format.md and
// src/types/profile.ts of github.com/firefox-devtools/profiler. Viewers upgrade older versions.
package timeline

import (
	"cmp"
	"io"
	"slices"

	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
)

// Spec describes the format.
func Spec() *stackfmt.Spec {
	return &stackfmt.Spec{Name: "firefox", Suffixes: []string{".json.gz"}, Binary: true, Samples: true,
		Settings: []string{"lines"},
		View:     "a timeline: open FILE at https://profiler.firefox.com",
		New:      func(stackfmt.Options) stackfmt.Format { return &timeline{} }}
}

// timeline collects samples in memory until Finish: the viewer wants threads as wholes, and a recording has them
// mixed.
type timeline struct {
	workers []*worker
}

// Worker returns a new worker. It is called before any sample is added.
func (t *timeline) Worker() stackfmt.Worker {
	w := &worker{stacks: newStacks(), threads: make(map[thread]*track), numbers: make(map[*frame.Frame][kinds][]int32)}
	t.workers = append(t.workers, w)
	return w
}

// thread identifies a track: each event of a thread has one.
type thread struct {
	pid, tid int32
	event    *stackfmt.Event
}

// track holds the samples of a thread.
type track struct {
	comm    string // the thread's name in the last sample: programs name themselves after they have begun
	samples []sample
}

// sample is one sample of a track.
type sample struct {
	time  uint64 // ns
	cpu   uint32
	stack int32 // of stacks; -1: none
	count uint64
	spent uint64 // ns on the processor for events that are clocks, off it for those of blocked threads; else 0
}

// worker collects samples with tables that are merged at the end, so that workers need no lock.
type worker struct {
	stacks  *stacks
	threads map[thread]*track
	numbers map[*frame.Frame][kinds][]int32 // nodes of a frame and of those inlined into it, outermost first
}

// Render has nothing to do: the format needs no text of frames.
func (w *worker) Render(*frame.Frame) {}

// Add adds a sample to its thread's track. Nothing is appended to b.
func (w *worker) Add(b []byte, s *stackfmt.Sample) []byte {
	stack := int32(-1)
	// A stack that was cut off begins with a frame that says so.
	if s.Cut() {
		stack = w.stacks.push(stack, w.stacks.node(node{name: "[truncated]", category: other}))
	}
	guessed := s.Guessed
	// Outermost first, as stacks grow from callers.
	for i := len(s.Frames) - 1; i >= 0; i-- {
		k := certain
		// Guessed has the indexes of frames in ascending order.
		if len(guessed) > 0 && guessed[len(guessed)-1] == i {
			k = guess
			guessed = guessed[:len(guessed)-1]
		}
		if isBlocked(s.Event) {
			k = blocked
		}
		for _, n := range w.nodes(s.Frames[i], k) {
			stack = w.stacks.push(stack, n)
		}
	}
	key := thread{s.PID, s.TID, s.Event}
	t := w.threads[key]
	if t == nil {
		t = &track{}
		w.threads[key] = t
	}
	t.comm = s.Comm
	one := sample{time: s.Time, cpu: s.CPU, stack: stack, count: max(s.Count, 1)}
	if isClock(s.Event) || isBlocked(s.Event) {
		one.spent = s.Period
	}
	t.samples = append(t.samples, one)
	return b
}

// isClock reports whether an event's period is time on a processor.
func isClock(e *stackfmt.Event) bool { return e.Kind == "cpu" && e.Unit == "nanoseconds" }

// isBlocked reports whether an event's period is time off the processor.
func isBlocked(e *stackfmt.Event) bool { return e.Kind == "blocked" && e.Unit == "nanoseconds" }

// nodes returns the numbers of a frame and of the functions inlined into it.
func (w *worker) nodes(f *frame.Frame, k kind) []int32 {
	// Frames are shared by samples: each is numbered once for each kind.
	if n := w.numbers[f]; n[k] != nil {
		return n[k]
	}
	base := node{name: f.Shown(), library: f.DSO, source: f.Source, category: categoryOf(f, k), address: f.IP}
	if f.Object != nil {
		base.buildID = string(f.Object.BuildID())
	}
	if f.Name == "" {
		base.name = unnamed(f)
	}
	list := []int32{w.stacks.node(base)}
	// Inlined has the innermost first.
	for i, in := range slices.Backward(f.Inlined) {
		inner := base
		inner.name, inner.source, inner.depth = in.Shown(), in.Source, len(f.Inlined)-i
		list = append(list, w.stacks.node(inner))
	}
	n := w.numbers[f]
	n[k] = list
	w.numbers[f] = n
	return list
}

// Finish writes the profile. Tracks are ordered by process, thread and event.
func (t *timeline) Finish(out io.Writer, r *stackfmt.Recording) error {
	all, tracks := newStacks(), make(map[thread]*track)
	for _, w := range t.workers {
		// The workers' stacks get common numbers.
		renumbered := all.merge(w.stacks)
		for key, part := range w.threads {
			whole := tracks[key]
			if whole == nil {
				whole = &track{}
				tracks[key] = whole
			}
			for _, s := range part.samples {
				if s.stack >= 0 {
					s.stack = renumbered[s.stack]
				}
				whole.samples = append(whole.samples, s)
			}
			// Any one name, but the same at each run.
			whole.comm = max(whole.comm, part.comm)
		}
	}
	events := make(map[*stackfmt.Event]int)
	for i, e := range r.Events {
		events[e] = i
	}
	order := make([]thread, 0, len(tracks))
	for key, t := range tracks {
		order = append(order, key)
		// Samples of a thread may have gone to several workers.
		slices.SortStableFunc(t.samples, func(a, b sample) int {
			return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.stack, b.stack))
		})
	}
	slices.SortFunc(order, func(a, b thread) int {
		return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.tid, b.tid), cmp.Compare(events[a.event], events[b.event]))
	})
	return writeFirefox(out, r, all, order, tracks)
}
