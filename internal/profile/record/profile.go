//go:build linux && amd64

package record

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/unwind"
)

// Profile holds what a Session has counted in a period of time.
type Profile struct {
	Table    *Table
	Counts   Counts
	Samples  []Sample // with Options.Samples
	Comms    []string
	Made     []*symbols.Symbol  // code that the kernel made at run time: see numberMade
	Mains    map[int32]string   // with Samples: names of main threads, by process
	Labels   [][]stackfmt.Label // by Stack.Labels; nil: none
	Event    *stackfmt.Event
	More     []*stackfmt.Event // further ones: see Stack.Event
	Lost     []Lost            // samples, by event; the sum is in Counts
	Weigh    uint64            // this much of a stack's period counts as one; 0: its samples count
	Start    time.Time
	Duration time.Duration
	Objects  *unwind.Objects
	Command  []string
	Older    []*Profile    // of the time before, that is part of it, or of another event: see Join
	Inside   *InsideCounts // of an Inside; else nil
	Notes    []string      // more comments, for formats that can hold them
}

// Join returns one profile of several of one Session, which are in the order of time.
func Join(list []*Profile) *Profile {
	p := *list[len(list)-1]
	p.Older, p.Start, p.Duration, p.Counts, p.Lost, p.Mains = list[:len(list)-1], list[0].Start, 0, Counts{}, nil,
		make(map[int32]string)
	for _, part := range list {
		maps.Copy(p.Mains, part.Mains)
		p.Lost = joinLost(p.Lost, part.Lost)
		p.Duration += part.Duration
		p.Counts.add(&part.Counts)
	}
	return &p
}

// parts returns the profiles that hold the stacks.
func (p *Profile) parts() []*Profile { return append(slices.Clone(p.Older), p) }

// open returns the profile with its stacks unpacked.
func (p *Profile) open() *Profile {
	q := *p
	q.Table = p.Table.unpacked()
	return &q
}

// Write names the frames of all stacks and writes them in a format. each says that the
// format wants the samples themselves, which Options.Samples has kept.
func (p *Profile) Write(w io.Writer, format stackfmt.Format, each bool, names *symbolize.Namer) error {
	worker := format.Worker()
	cache := names.NewCache(worker.Render)
	defer cache.Close()
	var buf []byte
	put := func(s *stackfmt.Sample) error {
		buf = worker.Add(buf[:0], s)
		if len(buf) == 0 {
			return nil
		}
		_, err := w.Write(buf)
		return err
	}
	for _, part := range p.parts() {
		part = part.open()
		out := &writer{p: part, cache: cache}
		for i := range part.Samples {
			s := &part.Samples[i]
			if !each {
				break
			}
			o := out.stack(&part.Table.Stacks[s.Stack])
			o.TID, o.CPU, o.Time, o.Period = s.TID, s.CPU, s.Time, s.Period
			if err := put(o); err != nil {
				return err
			}
		}
		for i := range part.Table.Stacks {
			s := &part.Table.Stacks[i]
			if each || s.Count == 0 { // as those are that have not gone on yet
				continue
			}
			o := out.stack(s)
			o.TID, o.Count, o.Period = s.PID, s.Count, s.Period
			if p.Weigh > 0 {
				o.Weight = max(1, s.Period/p.Weigh)
			}
			if err := put(o); err != nil {
				return err
			}
		}
	}
	if !each {
		for _, lost := range p.Lost {
			if err := put(lost.sample(worker)); err != nil {
				return err
			}
		}
	}
	return format.Finish(w, &stackfmt.Recording{Command: p.Command, Events: p.events(), Objects: p.Objects.All(),
		Start: p.Start, Duration: p.Duration, Comments: p.comments(),
		Process: func(pid int32) string { return p.Mains[pid] }})
}

// events returns those of all parts.
func (p *Profile) events() (list []*stackfmt.Event) {
	for _, part := range p.parts() {
		for _, event := range append([]*stackfmt.Event{part.Event}, part.More...) {
			if !slices.ContainsFunc(list, func(e *stackfmt.Event) bool { return e.Name == event.Name }) {
				list = append(list, event)
			}
		}
	}
	return list
}

// event returns the event at a place of Options.events.
func (p *Profile) event(n uint8) *stackfmt.Event {
	if n > 0 {
		return p.More[n-1]
	}
	return p.Event
}

// width returns the length of the longest event's name.
func (p *Profile) width() int {
	n := len(p.Event.Name)
	for _, e := range p.More {
		n = max(n, len(e.Name))
	}
	return n
}

// Each names the frames of all stacks and calls f for each of them, with its period. The sample is f's for the call.
func (p *Profile) Each(names *symbolize.Namer, f func(sample *stackfmt.Sample, period uint64)) {
	cache := names.NewCache(nil)
	for _, part := range p.parts() {
		part = part.open()
		out := &writer{p: part, cache: cache}
		for i := range part.Table.Stacks {
			if part.Table.Stacks[i].Count > 0 {
				f(out.stack(&part.Table.Stacks[i]), part.Table.Stacks[i].Period)
			}
		}
	}
}

// writer turns stacks of a table into those of package stackfmt.
type writer struct {
	p       *Profile
	cache   *symbolize.Cache
	list    []*Frame
	frames  []*frame.Frame
	guessed []int
	sample  stackfmt.Sample
}

func (o *writer) stack(s *Stack) *stackfmt.Sample {
	o.list = o.p.Table.Frames(o.list[:0], s)
	o.frames, o.guessed = o.frames[:0], o.guessed[:0]
	exact := true
	for _, f := range o.list {
		if f.Kernel {
			o.frames = append(o.frames, o.cache.Kernel(o.p.madeAt(f.PC)))
			continue
		}
		if f.Guessed {
			o.guessed = append(o.guessed, len(o.frames))
		}
		var named *frame.Frame
		m := &f.Mapping
		if m.Object == nil {
			m = nil
		}
		if exact {
			named, exact = o.cache.Frame(m, s.PID, f.PC)
		} else {
			named, exact = o.cache.Caller(m, s.PID, f.PC)
		}
		o.frames = append(o.frames, named)
	}
	o.sample = stackfmt.Sample{Comm: o.p.Comms[s.Comm], PID: s.PID, Event: o.p.event(s.Event), Width: o.p.width(),
		Frames: o.frames, Guessed: o.guessed,
		Labels: originLabels[s.Origin], End: s.End}
	if len(o.p.Labels) > 0 {
		o.sample.Labels = slices.Concat(o.p.Labels[s.Labels], o.sample.Labels)
	}
	return &o.sample
}

// originLabels are the labels of a stack in the format pprof, by how it was found.
var originLabels = [...][]stackfmt.Label{
	fromLater: {{Key: "stack", Value: "completed from memory"}},
	noCopy:    {{Key: "stack", Value: "none, in exec or exit"}},
	is32:      {{Key: "stack", Value: "none, 32-bit code"}},
}

// comments returns the text of the summary, for formats that can hold it.
func (p *Profile) comments() []string {
	var b strings.Builder
	p.Text(&b)
	return append(strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n"), p.Notes...)
}

// Text writes a few lines about what was recorded, and how much of it is
// incomplete.
func (p *Profile) Text(w io.Writer) {
	if p.Inside != nil {
		io.WriteString(w, p.insideText())
		return
	}
	c := &p.Counts
	number := stackfmt.Number
	fmt.Fprintf(w, "%s in %.1f s, %s", number(c.Samples, "sample"), p.Duration.Seconds(),
		number(uint64(p.distinct()), "distinct stack"))
	if c.Unwound > 0 {
		fmt.Fprintf(w, "; %s unwound, %.1f frames each", number(c.Unwound, "stack"), float64(c.Frames)/float64(c.Unwound))
	}
	fmt.Fprintln(w)
	line := func(name string, n, of uint64) { stackfmt.SummaryLine(w, name, n, of, "") }
	for cause := range unwind.NumCauses {
		line(cause.String(), c.Ends[cause], c.Unwound)
	}
	line("unwound in the kernel", c.InKernel, c.Unwound)
	line("completed from memory", c.Completed, c.Unwound)
	line("with guessed callers", c.Guessed, c.Unwound)
	line("with longer copies", c.Long, c.Unwound)
	line("without a stack (exec, exit)", c.NoCopy, c.Samples)
	line("of kernel threads", c.Kernel, c.Samples)
	line("32-bit code", c.Compat, c.Samples)
	line("lost by the kernel", c.Lost, c.Samples+c.Lost)
	if c.Throttled > 0 {
		fmt.Fprintf(w, "  the kernel stopped sampling for a while, %s: raise kernel.perf_event_max_sample_rate, or lower -F\n",
			number(c.Throttled, "time"))
	}
	if c.LostSide > 0 {
		fmt.Fprintf(w, "  lost: %s of what processes map; /proc/PID/maps was read again %s\n",
			number(c.LostSide, "record"), number(c.Reread, "time"))
	}
	if c.Bad > 0 {
		fmt.Fprintf(w, "  %s could not be read\n", number(c.Bad, "record"))
	}
}

// Size returns how many frames with their callers the profile and the older ones have: see Session.Size.
func (p *Profile) Size() (n int) {
	for _, part := range p.parts() {
		if part.Table != nil {
			n += part.Table.size()
		}
	}
	return n
}

// distinct returns how many stacks there are; those of several parts count several times.
func (p *Profile) distinct() (n int) {
	for _, part := range p.parts() {
		n += part.Table.distinct()
	}
	return n
}

// Stats holds the figures of a profile.
type Stats struct {
	Counts
	Seconds float64           `json:"seconds"`
	Stacks  int               `json:"distinct_stacks"`
	Nodes   int               `json:"distinct_frames_with_callers"`
	Ends    map[string]uint64 `json:"stacks_by_end"`
	Writing int64             `json:"writing_ns"`
	Inside  *InsideCounts     `json:"inside,omitempty"`
}

// Stats returns the figures; writing is how long it took to write the profile.
func (p *Profile) Stats(writing time.Duration) *Stats {
	s := &Stats{Counts: p.Counts, Seconds: p.Duration.Seconds(), Stacks: p.distinct(), Nodes: p.Table.size(),
		Ends: make(map[string]uint64), Writing: writing.Nanoseconds(), Inside: p.Inside}
	for cause := range unwind.NumCauses {
		if n := p.Counts.Ends[cause]; n > 0 {
			s.Ends[cause.String()] = n
		}
	}
	return s
}

// Add adds the figures of another profile. Stacks that both have count twice.
func (s *Stats) Add(d *Stats) {
	s.Counts.add(&d.Counts)
	s.Seconds += d.Seconds
	s.Stacks += d.Stacks
	s.Nodes += d.Nodes
	s.Writing += d.Writing
	if s.Ends == nil {
		s.Ends = make(map[string]uint64)
	}
	for end, n := range d.Ends {
		s.Ends[end] += n
	}
}
