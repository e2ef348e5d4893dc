package script

import (
	"encoding/binary"
	"encoding/hex"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ehasm/ehasm/unwind"

	"github.com/google/pprof/profile"
)

// places numbers frames, so that a stack is a string of numbers. Its methods may
// be called from several goroutines.
type places struct {
	mu   sync.Mutex
	ids  map[place]uint32
	list []*frame // by number
}

// place is what makes two frames one.
type place struct {
	dso, name  string
	ip, offset uint64
}

// add returns the number of a frame as four bytes.
func (p *places) add(f *frame) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := place{f.dso, f.name, f.ip, f.offset}
	id, ok := p.ids[k]
	if !ok {
		id = uint32(len(p.list))
		p.ids[k] = id
		p.list = append(p.list, f)
	}
	return binary.LittleEndian.AppendUint32(nil, id)
}

// weight is what stacks that are equal add up to.
type weight struct{ samples, period int64 }

// count adds the sample to its stack: comm, event and frames, innermost first.
func (w *worker) count(s *sample) {
	b := append(append(w.buf[:0], s.comm...), 0)
	b = append(append(b, eventName(s.event)...), 0)
	stack := w.wholeStack(s)
	for _, f := range stack {
		b = append(b, f.text...)
	}
	w.buf = b
	c := w.weights[string(b)]
	if c == nil {
		c = new(weight)
		w.weights[string(b)] = c
	}
	c.samples++
	c.period += int64(s.period)
}

// profileBuilder puts a profile together: profile.proto of google/pprof.
type profileBuilder struct {
	p         profile.Profile
	places    []*frame
	locations []*profile.Location // by number of place
	functions map[functionKey]*profile.Function
	inline    bool
	lines     bool
	mappings  map[string]*profile.Mapping
}

type functionKey struct{ dso, name, file string }

// writeProfile writes the counts of all workers, compressed.
func (run *runner) writeProfile(w io.Writer, workers []*worker) error {
	all := make(map[string]weight)
	for _, wk := range workers {
		for k, c := range wk.weights {
			sum := all[k]
			all[k] = weight{sum.samples + c.samples, sum.period + c.period}
		}
	}
	b := &profileBuilder{
		places: run.places.list, locations: make([]*profile.Location, len(run.places.list)),
		functions: make(map[functionKey]*profile.Function), inline: run.opt.Inline, lines: run.opt.Lines, mappings: make(map[string]*profile.Mapping),
	}
	unit, kind := "count", "period"
	if events := run.reader.Events(); len(events) == 1 && strings.HasSuffix(eventName(events[0]), "-clock") {
		unit, kind = "nanoseconds", "cpu" // the period of cpu-clock and task-clock is a time
	}
	b.p.SampleType = []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: kind, Unit: unit}}
	b.p.DefaultSampleType = kind
	b.mappingsOf(run.objects.All())
	for _, k := range slices.Sorted(maps.Keys(all)) {
		comm, rest, _ := strings.Cut(k, "\x00")
		event, ids, _ := strings.Cut(rest, "\x00")
		s := &profile.Sample{Value: []int64{all[k].samples, all[k].period},
			Label: map[string][]string{"comm": {comm}, "event": {event}}}
		for ; len(ids) >= 4; ids = ids[4:] {
			s.Location = append(s.Location, b.location(binary.LittleEndian.Uint32([]byte(ids))))
		}
		b.p.Sample = append(b.p.Sample, s)
	}
	if err := b.p.CheckValid(); err != nil {
		return err
	}
	return b.p.Write(w)
}

func (b *profileBuilder) location(id uint32) *profile.Location {
	if l := b.locations[id]; l != nil {
		return l
	}
	f := b.places[id]
	l := &profile.Location{ID: uint64(len(b.p.Location) + 1), Mapping: b.mapping(f), Address: f.ip}
	for _, in := range f.inner {
		l.Line = append(l.Line, b.line(f.dso, in.name, in.source))
	}
	// pprof's flame graph leaves out what has no name.
	l.Line = append(l.Line, b.line(f.dso, foldedName(f), f.source))
	b.locations[id] = l
	b.p.Location = append(b.p.Location, l)
	return l
}

func (b *profileBuilder) line(dso, name string, s source) profile.Line {
	k := functionKey{dso, name, s.file}
	fn := b.functions[k]
	if fn == nil {
		fn = &profile.Function{ID: uint64(len(b.p.Function) + 1), Name: name, SystemName: name, Filename: s.file}
		b.functions[k] = fn
		b.p.Function = append(b.p.Function, fn)
	}
	return profile.Line{Function: fn, Line: int64(s.line)}
}

// mappingsOf adds the mappings of those objects that have frames. They are in the
// order in which they were mapped: pprof takes the first for the program.
func (b *profileBuilder) mappingsOf(objects []*unwind.Object) {
	used := make(map[*unwind.Object]*frame)
	for _, f := range b.places {
		used[f.object] = f
	}
	for _, o := range objects {
		if f := used[o]; f != nil {
			b.mapping(f)
		}
	}
}

func (b *profileBuilder) mapping(f *frame) *profile.Mapping {
	m := b.mappings[f.dso]
	if m == nil {
		m = &profile.Mapping{ID: uint64(len(b.p.Mapping) + 1), Limit: ^uint64(0), File: f.dso, HasFunctions: true,
			HasInlineFrames: b.inline, HasFilenames: b.lines, HasLineNumbers: b.lines}
		if f.object != nil {
			m.BuildID = hex.EncodeToString(f.object.BuildID())
		}
		b.mappings[f.dso] = m
		b.p.Mapping = append(b.p.Mapping, m)
	}
	return m
}
