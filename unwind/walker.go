package unwind

import (
	"maps"
	"slices"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
)

// Walker walks stacks. It caches what it knows of the address spaces that it
// met last. It may be used by one goroutine at a time; the zero value is ready
// to use.
type Walker struct {
	// FramePointers says in which code frame pointers are followed.
	FramePointers FramePointers

	// Loading is the time spent on making and loading eh_elfs, and on
	// waiting for other goroutines that did.
	Loading time.Duration
	// Guessed counts the frames found by guesses, GuessedStacks the stacks
	// with such frames.
	Guessed, GuessedStacks uint64

	// Guesses holds the indices, ascending, of the frames of the last walk that
	// were guessed: by frame pointer, or by a Generated. The frames after them depend on them.
	Guesses []int

	// OnObject, if not nil, is called before the eh_elf of an object is needed. It may
	// be called more than once for an object.
	OnObject func(*Object)

	views map[*Maps]*view
	last  *view // of views
}

// viewCount is the number of address spaces that a Walker remembers.
const viewCount = 64

// view is the address space of maps as package ehelf needs it. Its spans are
// maps.list.
type view struct {
	maps  *Maps
	spans ehelf.Spans
	state []spanState
	bias  []uint64 // of spans whose state is loaded or stepping

	regs abi.Regs // see walk
	mem  ehelf.Memory
}

// spanState says what is known about the eh_elf of a span.
type spanState uint8

const (
	unasked spanState = iota
	loaded
	stepping // there is none yet, but a Stepper
	noCode   // there is none
	noBias   // no program header gives the load bias
)

// view returns what w keeps of m. Stacks of one process mostly follow each other, so the last one is asked first.
func (w *Walker) view(m *Maps) *view {
	if w.last != nil && w.last.maps == m {
		return w.last
	}
	v := w.views[m]
	if v == nil {
		v = w.newView(m)
	}
	w.last = v
	return v
}

// newView makes the view of maps. If there are too many, any other one goes.
func (w *Walker) newView(m *Maps) *view {
	if w.views == nil {
		w.views = make(map[*Maps]*view)
	}
	for other := range w.views {
		if len(w.views) < viewCount {
			break
		}
		delete(w.views, other)
	}
	v := &view{maps: m, state: make([]spanState, len(m.list)), bias: make([]uint64, len(m.list))}
	for i := range m.list {
		v.spans.Add(m.list[i].Start, m.list[i].End)
	}
	w.views[m] = v
	return v
}

// Forget makes the Walker drop what it knows of address spaces with any of these objects, before they
// are released.
func (w *Walker) Forget(which func(*Object) bool) {
	maps.DeleteFunc(w.views, func(m *Maps, _ *view) bool {
		return slices.ContainsFunc(m.list, func(m Mapping) bool { return which(m.Object) })
	})
	w.last = nil
}

// ask prepares the object of the span i, see Object.Ready.
func (w *Walker) ask(v *view, i int) {
	begin := time.Now()
	mapping := &v.maps.list[i]
	if w.OnObject != nil {
		w.OnObject(mapping.Object)
	}
	err := mapping.Object.Ready()
	w.Loading += time.Since(begin)
	if err != nil {
		v.state[i] = noCode
		return
	}
	bias, ok := mapping.Object.Bias(mapping)
	if !ok {
		v.state[i] = noBias
		return
	}
	v.bias[i], v.state[i] = bias, stepping
	v.load(i)
}

// load starts to use the eh_elf of the span i, if there is one by now.
func (v *view) load(i int) bool {
	code := v.maps.list[i].Object.code.Load()
	if code == nil {
		return false
	}
	v.spans.Set(i, code, v.bias[i])
	v.state[i] = loaded
	return true
}
