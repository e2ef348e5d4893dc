package stackfmt

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ehasm/ehasm/unwind"

	"github.com/google/pprof/profile"
)

// pprof makes a profile for go tool pprof. It numbers frames, so that a stack
// is a string of four-byte numbers.
type pprof struct {
	opt     Options
	mu      sync.Mutex
	ids     map[place]uint32
	list    []*Frame // by number
	workers []*pprofWorker
}

func pprofSpec() *Spec {
	return &Spec{Name: "pprof", Suffixes: []string{".pb.gz", ".pprof"}, Settings: []string{"lines"}, Binary: true,
		New: func(opt Options) Format {
			return &pprof{opt: opt, ids: make(map[place]uint32)}
		}}
}

// place identifies equal frames.
type place struct {
	dso, name  string
	ip, offset uint64
}

// number returns the number of a frame. It may be called from several goroutines.
func (p *pprof) number(f *Frame) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := place{f.DSO, f.Name, f.IP, f.Offset}
	id, ok := p.ids[k]
	if !ok {
		id = uint32(len(p.list))
		p.ids[k] = id
		p.list = append(p.list, f)
	}
	return id
}

func (p *pprof) Worker() Worker {
	w := &pprofWorker{pprof: p, weights: make(map[string]*weight)}
	p.workers = append(p.workers, w)
	return w
}

type pprofWorker struct {
	pprof   *pprof
	weights map[string]*weight
	buf     []byte
}

// weight is the sum over equal stacks.
type weight struct{ samples, period int64 }

func (w *pprofWorker) Render(f *Frame) {
	f.Text = binary.LittleEndian.AppendUint32(nil, w.pprof.number(f))
}

// Add adds the sample to its stack: labels, and frames, innermost first.
func (w *pprofWorker) Add(b []byte, s *Sample) []byte {
	k := appendLabel(w.buf[:0], "comm", s.Comm)
	k = appendLabel(k, "event", s.Event.Name)
	if len(s.Guessed) > 0 {
		k = appendLabel(k, "guessed", "frame pointer")
	}
	if s.cut() {
		k = appendLabel(k, "end", s.End.String())
	}
	for _, l := range s.Labels {
		k = appendLabel(k, l.Key, l.Value)
	}
	k = append(k, 0)
	for _, f := range s.Frames {
		k = append(k, f.Text...)
	}
	w.buf = k
	c := w.weights[string(k)]
	if c == nil {
		c = new(weight)
		w.weights[string(k)] = c
	}
	c.samples += int64(s.count())
	c.period += int64(s.Period)
	return b
}

func appendLabel(k []byte, name, value string) []byte {
	k = append(append(k, Escape(name)...), 0)
	return append(append(k, Escape(value)...), 0)
}

// cutLabels separates the labels of a key, with the empty name after them, from its frames.
func cutLabels(k string) (labels, ids string) {
	at := 0
	for {
		n := strings.IndexByte(k[at:], 0)
		at += n + 1
		if n == 0 {
			return k[:at], k[at:]
		}
		at += strings.IndexByte(k[at:], 0) + 1
	}
}

// splitLabels reads what appendLabel wrote, up to an empty name.
func splitLabels(k string) (labels map[string][]string, ids string) {
	labels = make(map[string][]string)
	for {
		name, rest, _ := strings.Cut(k, "\x00")
		if name == "" {
			return labels, rest
		}
		value, rest, _ := strings.Cut(rest, "\x00")
		labels[name] = append(labels[name], value)
		k = rest
	}
}

// profileBuilder builds a profile: profile.proto of google/pprof.
type profileBuilder struct {
	p         profile.Profile
	opt       Options
	places    []*Frame
	locations []*profile.Location // by number of place
	functions map[functionKey]*profile.Function
	mappings  map[string]*profile.Mapping
}

type functionKey struct{ dso, name, file string }

// Finish writes the counts of all workers, compressed.
func (p *pprof) Finish(w io.Writer, r *Recording) error {
	all := make(map[string]weight)
	for _, wk := range p.workers {
		for k, c := range wk.weights {
			sum := all[k]
			all[k] = weight{sum.samples + c.samples, sum.period + c.period}
		}
	}
	b := &profileBuilder{
		opt: p.opt, places: p.list, locations: make([]*profile.Location, len(p.list)),
		functions: make(map[functionKey]*profile.Function), mappings: make(map[string]*profile.Mapping),
	}
	at := b.sampleTypes(r.Events)
	if !r.Start.IsZero() {
		b.p.TimeNanos = r.Start.UnixNano()
	}
	b.p.DurationNanos, b.p.Comments = r.Duration.Nanoseconds(), r.Comments
	b.mappingsOf(r.Objects)
	if len(r.Events) == 0 || r.Events[0].Samples == "" {
		return b.writeStacks(w, all, at)
	}
	same := make(map[string]*profile.Sample)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		labels, ids := splitLabels(k)
		s := &profile.Sample{Value: make([]int64, len(b.p.SampleType)), Label: labels}
		first := at[labels["event"][0]]
		delete(labels, "event") // the events are values of one sample
		rest := fmt.Sprint(labels) + ids
		if other := same[rest]; other != nil {
			other.Value[first], other.Value[first+1] = all[k].samples, all[k].period
			continue
		}
		same[rest] = s
		s.Value[first], s.Value[first+1] = all[k].samples, all[k].period
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

// sampleTypes gives each event two values, the number of its samples and the sum of
// their periods, and returns the index of the first of the two, by the event's
// name.
func (b *profileBuilder) sampleTypes(events []*Event) map[string]int {
	at := make(map[string]int)
	for _, e := range events {
		if _, ok := at[Escape(e.Name)]; ok {
			continue
		}
		at[Escape(e.Name)] = len(b.p.SampleType)
		samples, kind := cmp.Or(e.Samples, "samples"), e.kind()
		if len(events) > 1 && e.Samples == "" { // each type is there once
			samples, kind = "samples of "+e.Name, e.Name
		}
		b.p.SampleType = append(b.p.SampleType, &profile.ValueType{Type: Escape(samples), Unit: "count"},
			&profile.ValueType{Type: Escape(kind), Unit: e.unit()})
	}
	if len(events) == 0 { // there are no samples either
		b.p.SampleType = []*profile.ValueType{{Type: "samples", Unit: "count"}}
		return at
	}
	b.p.DefaultSampleType = b.p.SampleType[1].Type
	b.p.PeriodType = &profile.ValueType{Type: b.p.SampleType[1].Type, Unit: b.p.SampleType[1].Unit}
	b.p.Period = int64(events[0].Every)
	if events[0].Samples != "" {
		b.p.DefaultSampleType = b.p.SampleType[len(b.p.SampleType)-1].Type
		b.p.PeriodType = &profile.ValueType{Type: "space", Unit: events[0].unit()}
	}
	return at
}

func (b *profileBuilder) location(id uint32) *profile.Location {
	if l := b.locations[id]; l != nil {
		return l
	}
	f := b.places[id]
	l := &profile.Location{ID: uint64(len(b.p.Location) + 1), Mapping: b.mapping(f), Address: f.IP}
	for _, in := range f.Inlined {
		l.Line = append(l.Line, b.line(f.DSO, in.Name, in.Shown(), in.Source))
	}
	// pprof's flame graph leaves out what has no name.
	name := foldedName(f)
	l.Line = append(l.Line, b.line(f.DSO, strings.TrimSuffix(name, f.Parameters), name, f.Source))
	b.locations[id] = l
	b.p.Location = append(b.p.Location, l)
	return l
}

// line has the name with the parameters for people, and that without for what matches
// functions of several profiles.
func (b *profileBuilder) line(dso, name, shown string, s Source) profile.Line {
	k := functionKey{dso, shown, s.File}
	fn := b.functions[k]
	if fn == nil {
		fn = &profile.Function{ID: uint64(len(b.p.Function) + 1), Name: Escape(shown), SystemName: Escape(name), Filename: Escape(s.File)}
		b.functions[k] = fn
		b.p.Function = append(b.p.Function, fn)
	}
	return profile.Line{Function: fn, Line: int64(s.Line)}
}

// mappingsOf adds the mappings of those objects that have frames. They are in the
// order in which they were mapped: pprof takes the first for the program.
func (b *profileBuilder) mappingsOf(objects []*unwind.Object) {
	used := make(map[*unwind.Object]*Frame)
	for _, f := range b.places {
		used[f.Object] = f
	}
	for _, o := range objects {
		if f := used[o]; f != nil {
			b.mapping(f)
		}
	}
}

func (b *profileBuilder) mapping(f *Frame) *profile.Mapping {
	m := b.mappings[f.DSO]
	if m == nil {
		m = &profile.Mapping{ID: uint64(len(b.p.Mapping) + 1), Limit: ^uint64(0), File: Escape(f.DSO), HasFunctions: true,
			HasInlineFrames: b.opt.Inline, HasFilenames: b.opt.Lines, HasLineNumbers: b.opt.Lines}
		if f.Object != nil {
			m.BuildID = hex.EncodeToString(f.Object.BuildID())
		}
		b.mappings[f.DSO] = m
		b.p.Mapping = append(b.p.Mapping, m)
	}
	return m
}
