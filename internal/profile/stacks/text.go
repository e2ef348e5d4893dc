// Package stacks takes stacks of processes and cores with package stack and shows them: as text, with equal ones
// together, and as samples for the formats of package stackfmt.
//
// This file is the text: groups of threads with equal stacks, each with a heading and its frames, innermost first, as
// a debugger's backtrace.
package stacks

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/stack"
	"github.com/ehasm/ehasm/unwind"
)

// Group holds threads with equal stacks.
type Group struct {
	Count   int                // how often the stack was seen, in all rounds
	Threads []stack.Thread     // each in each of its states once
	Frames  []*frame.Frame     // of Threads[0], innermost first, with names
	ids     []int32            // of Threads, each once
	states  map[int32][]string // by thread: the states that it was seen in
}

// Groups puts threads with equal stacks together. Equal means equal addresses, not names: two calls of a function from
// one caller are different stacks. It is for one goroutine.
type Groups struct {
	List   []Group          // in the order in which stacks were first seen
	cache  *symbolize.Cache // names the frames of new groups
	merge  bool
	index  map[string][]int // groups by pcs
	rounds int              // calls of Add
}

// NewGroups returns empty groups; without merge each thread is a group. cache names the frames.
func NewGroups(cache *symbolize.Cache, merge bool) *Groups {
	return &Groups{cache: cache, merge: merge, index: make(map[string][]int)}
}

// Add adds the threads of a target. The targets must be of one process.
func (gs *Groups) Add(t *stack.Target) {
	gs.rounds++
	for _, th := range t.Threads {
		// The pcs are the key, as text, since a map takes no slice; sameStack compares the rest.
		var key []byte
		for _, pc := range th.PCs {
			key = binary.LittleEndian.AppendUint64(key, pc)
		}
		if g := gs.find(string(key), &th); g != nil {
			g.add(th)
			continue
		}
		gs.index[string(key)] = append(gs.index[string(key)], len(gs.List))
		g := Group{Frames: gs.cache.Backtrace(t.Maps, t.PID, th.PCs), states: make(map[int32][]string)}
		g.add(th)
		gs.List = append(gs.List, g)
	}
}

// find returns the group of a thread's stack, nil if it has none yet.
func (gs *Groups) find(key string, th *stack.Thread) *Group {
	if !gs.merge {
		return nil
	}
	// Other groups may have the same pcs.
	for _, i := range gs.index[key] {
		if sameStack(&gs.List[i].Threads[0], th) {
			return &gs.List[i]
		}
	}
	return nil
}

// add counts a thread. It keeps each thread once for each state that it was in.
func (g *Group) add(th stack.Thread) {
	g.Count++
	seen := g.states[th.TID]
	if slices.Contains(seen, th.State) {
		return
	}
	if len(seen) == 0 {
		g.ids = append(g.ids, th.TID)
	}
	g.states[th.TID] = append(seen, th.State)
	if len(g.Threads) > 0 {
		th.PCs, th.Guessed = g.Threads[0].PCs, g.Threads[0].Guessed // share the group's lists
	}
	g.Threads = append(g.Threads, th)
}

// sorted returns the groups, with merge the largest first; of a core, the group with the thread that crashed stays
// first, as that is what the core is about.
func (gs *Groups) sorted(core bool) []Group {
	list := slices.Clone(gs.List)
	if gs.merge && len(list) > 0 {
		rest := list
		if core {
			rest = list[1:]
		}
		// Stable: equal counts stay in the order of threads.
		slices.SortStableFunc(rest, func(a, b Group) int { return b.Count - a.Count })
	}
	return list
}

// Text appends the groups of a target's threads as text; stopped adds for how long each was stopped.
func (gs *Groups) Text(b []byte, t *stack.Target, stopped bool) []byte {
	// Only cores have a reason.
	what := "process"
	if t.Reason != "" {
		what = "core of process"
	}
	b = fmt.Appendf(b, "%s %d", what, t.PID)
	if t.Comm != "" {
		b = fmt.Appendf(b, " (%s)", output.Text(t.Comm))
	}
	if t.Reason != "" {
		b = fmt.Appendf(b, ": %s", t.Reason)
	}
	if gs.rounds > 1 {
		b = fmt.Appendf(b, ", looked at %d times", gs.rounds)
	}
	b = append(b, '\n')
	for _, g := range gs.sorted(t.Reason != "") {
		b = append(b, '\n')
		b = g.head(b, stopped, gs.rounds > 1)
		b = g.stack(b)
	}
	return b
}

// head writes which threads have the stack, and with often how often it was seen.
func (g *Group) head(b []byte, stopped, often bool) []byte {
	first := &g.Threads[0]
	if often {
		b = fmt.Appendf(b, "%d times: ", g.Count)
	}
	// One thread is shown with its states; of several, counts.
	if len(g.ids) == 1 {
		b = fmt.Appendf(b, "thread %d", first.TID)
		if first.Comm != "" {
			b = fmt.Appendf(b, " (%s)", output.Text(first.Comm))
		}
		between := ", "
		for i := range g.Threads {
			if state := g.Threads[i].State; state != "" {
				b, between = append(append(b, between...), state...), " and "
			}
		}
		if stopped && first.Stopped > 0 {
			b = fmt.Appendf(b, ", stopped for %v", first.Stopped.Round(time.Microsecond))
		}
		return append(b, ":\n"...)
	}
	b = fmt.Appendf(b, "%d threads", len(g.ids))
	// States without what follows in brackets: arguments of system calls would make all of them different.
	b = append(b, g.counts(", ", func(t *stack.Thread) string {
		state, _,
			_ := strings.Cut(t.State, "(")
		return state
	})...)
	b = append(b, g.counts("; ", func(t *stack.Thread) string { return output.Text(t.Comm) })...)
	b = append(b, "; ids"...)
	const shown = 10 // ids, in about a line of a terminal
	for _, id := range g.ids[:min(shown, len(g.ids))] {
		b = fmt.Appendf(b, " %d", id)
	}
	if len(g.ids) > shown {
		b = append(b, " ..."...)
	}
	return append(b, ":\n"...)
}

// counts returns the different values that threads have, with how many threads have had each if they differ.
func (g *Group) counts(begin string, of func(*stack.Thread) string) string {
	counts := make(map[string]int)
	var values []string
	for i := range g.Threads {
		v := of(&g.Threads[i])
		if v == "" {
			continue
		}
		if counts[v]++; counts[v] == 1 {
			values = append(values, v)
		}
	}
	// The most frequent first.
	slices.SortStableFunc(values, func(a, b string) int { return counts[b] - counts[a] })
	text := ""
	const shown = 4 // values
	for i, v := range values {
		if i == shown {
			return text + fmt.Sprintf(", %d others", len(values)-shown)
		}
		text += begin + v
		if len(values) > 1 {
			text += fmt.Sprintf(" (%d)", counts[v])
		}
		begin = ", "
	}
	return text
}

// stack writes the frames. Of a stack that was too long, the middle is missing: half of the PCs are from the inner
// end, half from the outer one, and their numbers count what was left out.
func (g *Group) stack(b []byte) []byte {
	th := &g.Threads[0]
	for _, place := range th.Kernel {
		b = fmt.Appendf(b, "#    in the kernel      %s\n", output.Text(place))
	}
	if th.Missing != "" {
		return fmt.Appendf(b, "    no stack: %s\n", th.Missing)
	}
	inner := len(th.PCs)
	if th.LeftOut > 0 {
		inner = (inner + 1) / 2
	}
	for i := 0; i < len(g.Frames); {
		if i == inner {
			b = fmt.Appendf(b, "    ... %d frames left out: --max-frames\n", th.LeftOut)
		}
		end := inner
		if i >= inner {
			end = len(th.PCs)
		}
		period, times := repeated(th.PCs[i:end])
		for k := i; k < i+period; k++ {
			b = g.frame(b, k)
		}
		if i += period * times; times > 1 {
			b = fmt.Appendf(b, "    ... %s %d times, to #%d\n", repeats(period), times-1, th.FrameNumber(i-1))
		}
	}
	// A stack that reached the outermost frame needs no remark.
	switch th.End {
	case unwind.Outermost, unwind.OutermostGuessed:
		return b
	}
	return fmt.Appendf(b, "    incomplete: %v\n", th.End)
}

// frame writes a frame and what is inlined into it.
func (g *Group) frame(b []byte, i int) []byte {
	th, f := &g.Threads[0], g.Frames[i]
	n := th.FrameNumber(i)
	for _, in := range f.Inlined {
		b = appendPlace(fmt.Appendf(b, "#%-3d %#016x %s", n, th.PCs[i], output.Text(in.Shown())), in.Source)
		b = append(b, " (inlined)\n"...)
	}
	b = appendFrame(b, n, th.PCs[i], f)
	if _, guessed := slices.BinarySearch(th.Guessed, i); guessed {
		b = append(b, " (guessed by frame pointer)"...)
	}
	return append(b, '\n')
}

// repeated returns how many frames a stack begins with that come again right after, and how often they are there;
// without a repetition worth a line, one frame once. The shortest period that saves enough wins. Mutual recursion of
// more than 16 functions is written in full.
func repeated(pcs []uint64) (period, times int) {
	const longest, least = 16, 8 // frames that repeat, and lines saved
	for period := 1; period <= min(longest, len(pcs)/2); period++ {
		end := period
		for end < len(pcs) && pcs[end] == pcs[end-period] {
			end++
		}
		if times := end / period; (times-1)*period > least {
			return period, times
		}
	}
	return 1, 1
}

// repeats says that frames come again.
func repeats(period int) string {
	if period == 1 {
		return "this frame again,"
	}
	return fmt.Sprintf("these %d frames again,", period)
}

// appendFrame writes a frame without the end of its line. pc is the run-time address as the stack has it: a return
// address is behind the call, as debuggers show it.
func appendFrame(b []byte, i int, pc uint64, f *frame.Frame) []byte {
	b = fmt.Appendf(b, "#%-3d %#016x ", i, pc)
	// No symbol: only the object is known.
	if f.Name == "" {
		b = append(b, "??"...)
	} else {
		b = fmt.Appendf(b, "%s+%#x", output.Text(f.Shown()), f.OffsetOf(pc))
	}
	if f.File != "" {
		return appendPlace(b, f.Source)
	}
	return fmt.Appendf(b, " in %s", output.Text(filepath.Base(f.DSO)))
}

// appendPlace writes a source line, if it is known.
func appendPlace(b []byte, s frame.Source) []byte {
	if s.File == "" {
		return b
	}
	return fmt.Appendf(b, " at %s:%d", output.Text(s.File), s.Line)
}

// Event is what the samples of Samples count: threads, one each per look.
func Event() *stackfmt.Event {
	return &stackfmt.Event{Name: "threads", TID: true, Callchain: true, Kind: "threads", Unit: "count"}
}

// Samples calls f with the threads of a target as samples of an event, for a format of package stackfmt. f must not
// keep the sample.
func Samples(t *stack.Target, cache *symbolize.Cache, event *stackfmt.Event, f func(*stackfmt.Sample)) {
	for i := range t.Threads {
		th := &t.Threads[i]
		s := stackfmt.Sample{Comm: cmp.Or(th.Comm, t.Comm), PID: t.PID, TID: th.TID, Period: 1, Event: event, End: th.End}
		for _, place := range th.Kernel {
			s.Frames = append(s.Frames, cache.KernelPlace(place))
		}
		// Guessed counts user frames; the kernel's come before them.
		for _, g := range th.Guessed {
			s.Guessed = append(s.Guessed, len(th.Kernel)+g)
		}
		s.Frames = append(s.Frames, cache.Backtrace(t.Maps, t.PID, th.PCs)...)
		if th.LeftOut > 0 {
			inner := len(th.Kernel) + (len(th.PCs)+1)/2
			s.Frames = slices.Insert(s.Frames, inner, cache.LeftOut(th.LeftOut))
			for k := range s.Guessed {
				if s.Guessed[k] >= inner {
					s.Guessed[k]++
				}
			}
		}
		// Nothing was unwound, so no end is shown.
		if th.Missing != "" {
			s.End = stackfmt.NoUserStack
		}
		if th.State != "" {
			s.Labels = []stackfmt.Label{{Key: "state", Value: th.State}}
		}
		f(&s)
	}
}

// sameStack reports whether two threads have equal stacks.
func sameStack(a, b *stack.Thread) bool {
	return a.End == b.End && a.Missing == b.Missing && a.LeftOut == b.LeftOut && slices.Equal(a.PCs, b.PCs) &&
		slices.Equal(a.Kernel, b.Kernel) && slices.Equal(a.Guessed, b.Guessed)
}
