package stackfmt

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/internal/profile/tally"
	"github.com/ehasm/ehasm/unwind"

	"github.com/google/pprof/profile"
)

// This file is the format pprof. Workers count stacks as numbers; the profile is made at the end, with numbers that
// depend on the contents alone, so that equal recordings give equal files.

// pprof makes a profile for go tool pprof.
type pprof struct {
	opt     Options
	mu      sync.Mutex
	frames  []*frame.Frame          // by number; equal ones are found in Finish
	labels  numbers[string, string] // sets of labels: see appendLabel
	workers []*pprofWorker
}

// pprofSpec describes the format pprof.
func pprofSpec() *Spec {
	return &Spec{Name: "pprof", Suffixes: []string{".pb.gz", ".pprof"}, Settings: []string{"lines", "labels"},
		Binary: true, Values: true,
		View: "look at it with: go tool pprof -http=: FILE",
		New: func(opt Options) Format {
			return &pprof{opt: opt}
		}}
}

// Worker returns a worker with its own counts.
func (p *pprof) Worker() Worker {
	w := &pprofWorker{pprof: p}
	p.workers = append(p.workers, w)
	return w
}

// pprofWorker counts stacks as a number of a set of labels and numbers of frames.
type pprofWorker struct {
	pprof  *pprof
	counts tally.Tally // samples and periods, by the number of the labels and those of the frames, outermost first
	labels []byte      // of Add, reused
	key    []byte
}

// Render gives the frame a number. Frames of workers share one list.
func (w *pprofWorker) Render(f *frame.Frame) {
	p := w.pprof
	p.mu.Lock()
	defer p.mu.Unlock()
	f.Text = tally.AppendNumber(nil, uint32(len(p.frames)))
	p.frames = append(p.frames, f)
}

// Add adds the sample to its stack.
func (w *pprofWorker) Add(b []byte, s *Sample) []byte {
	l := w.labels[:0]
	if !w.pprof.opt.NoComm {
		l = appendLabel(l, "comm", s.Comm)
	}
	l = appendLabel(l, "event", s.Event.Name)
	if len(s.Guessed) > 0 {
		l = appendLabel(l, "guessed", "frame pointer")
	}
	if s.Cut() {
		l = appendLabel(l, "end", s.End.String())
	}
	for _, label := range s.Labels {
		l = appendLabel(l, label.Key, label.Value)
	}
	w.labels = l
	set := string(l)
	// The labels come first in the key, then the frames.
	k := tally.AppendNumber(w.key[:0], w.pprof.labels.number(set, func() string { return set }))
	for _, f := range slices.Backward(s.Frames) {
		k = append(k, f.Text...)
	}
	w.key = k
	w.counts.Add(k, tally.Sum{s.count(), s.Period})
	return b
}

// appendLabel appends a label to a set: name and value, each ended by a zero byte, which Escape
// leaves in no text.
func appendLabel(k []byte, name, value string) []byte {
	k = append(append(k, output.Text(name)...), 0)
	return append(append(k, output.Text(value)...), 0)
}

// splitLabels reads what appendLabel wrote.
func splitLabels(k string) map[string][]string {
	labels := make(map[string][]string)
	for k != "" {
		var name, value string
		name, k, _ = strings.Cut(k, "\x00")
		value, k, _ = strings.Cut(k, "\x00")
		labels[name] = append(labels[name], value)
	}
	return labels
}

// profileBuilder builds a profile: profile.proto of google/pprof.
type profileBuilder struct {
	p         profile.Profile
	opt       Options
	places    []*frame.Frame      // by number
	order     []uint32            // numbers of places in the order of their addresses, of equal ones one
	same      []uint32            // by number of a place, the one of order
	locations []*profile.Location // by number of those
	functions map[functionKey]*profile.Function
	ids       map[*unwind.Object]string // build-ids
	mappings  map[mappingKey]*profile.Mapping
}

// mappingKey tells files apart that had the same path: one may have replaced the other, or be another container's.
type mappingKey struct{ dso, buildID string }

// functionKey tells functions apart: inlined ones may have other files.
type functionKey struct{ dso, name, file string }

// Finish writes the counts of all workers, compressed.
func (p *pprof) Finish(w io.Writer, r *Recording) error {
	b := &profileBuilder{
		opt: p.opt, places: p.frames, locations: make([]*profile.Location, len(p.frames)),
		functions: make(map[functionKey]*profile.Function), ids: make(map[*unwind.Object]string),
		mappings: make(map[mappingKey]*profile.Mapping),
	}
	b.sortPlaces()
	columns := b.sampleTypes(r.Events)
	if !r.Start.IsZero() {
		b.p.TimeNanos = r.Start.UnixNano()
	}
	b.p.DurationNanos = r.Duration.Nanoseconds()
	for _, c := range r.Comments {
		b.p.Comments = append(b.p.Comments, output.Text(c))
	}
	b.mappingsOf(r.Objects)
	p.frames = nil // what locations do not take is not needed any more
	var all []*tally.Tally
	for _, wk := range p.workers {
		all = append(all, &wk.counts)
	}
	// Samples of a heap have all events as values: package profile holds and writes them.
	if len(r.Events) == 0 || r.Events[0].Samples == "" {
		return b.writeStacks(w, all, p.labels.list, columns)
	}
	same := make(map[string]*profile.Sample)
	for key, n := range tally.All(all...) {
		labels := splitLabels(p.labels.list[idOf(key)])
		s := &profile.Sample{Value: make([]int64, len(b.p.SampleType)), Label: labels}
		first := columns[labels["event"][0]]
		delete(labels, "event") // the events are values of one sample
		// Labels and frames say whether it is the same sample.
		rest := fmt.Sprint(labels) + string(key[tally.NumberSize:])
		if other := same[rest]; other != nil {
			s = other
		} else {
			for id := range framesOf(key) {
				s.Location = append(s.Location, b.location(id))
			}
			same[rest] = s
			b.p.Sample = append(b.p.Sample, s)
		}
		s.Value[first], s.Value[first+1] = int64(n[0]), int64(n[1])
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
	columns := make(map[string]int)
	// Index in SampleType, by the event's name.
	for _, e := range events {
		if _, ok := columns[output.Text(e.Name)]; ok {
			continue
		}
		columns[output.Text(e.Name)] = len(b.p.SampleType)
		samples, kind := cmp.Or(e.Samples, "samples"), e.kind()
		if len(events) > 1 && e.Samples == "" { // each type is there once
			samples, kind = "samples of "+e.Name, e.Name
		}
		// Two values each: how many samples, and the sum of their periods.
		b.p.SampleType = append(b.p.SampleType, &profile.ValueType{Type: output.Text(samples), Unit: "count"},
			&profile.ValueType{Type: output.Text(kind), Unit: e.unit()})
	}
	if len(events) == 0 { // there are no samples either
		b.p.SampleType = []*profile.ValueType{{Type: "samples", Unit: "count"}}
		return columns
	}
	// Viewers begin with the period of the first event.
	b.p.DefaultSampleType = b.p.SampleType[1].Type
	b.p.PeriodType = &profile.ValueType{Type: b.p.SampleType[1].Type, Unit: b.p.SampleType[1].Unit}
	b.p.Period = int64(events[0].Every)
	// Of a heap, viewers begin with the last value.
	if events[0].Samples != "" {
		b.p.DefaultSampleType = b.p.SampleType[len(b.p.SampleType)-1].Type
		b.p.PeriodType = &profile.ValueType{Type: "space", Unit: events[0].unit()}
	}
	return columns
}

// sortPlaces sets order and same. Workers have each a frame for one place; objects of one file may be several, as in
// containers.
func (b *profileBuilder) sortPlaces() {
	compare := func(x, y uint32) int {
		// Equal places must be next to each other after sorting.
		p, q := b.places[x], b.places[y]
		order := cmp.Or(cmp.Compare(p.DSO, q.DSO), cmp.Compare(p.IP, q.IP), cmp.Compare(p.Name, q.Name),
			cmp.Compare(p.Offset, q.Offset))
		if order == 0 && p.Object != q.Object {
			order = cmp.Or(cmp.Compare(b.buildID(p), b.buildID(q)), cmp.Compare(p.File, q.File), cmp.Compare(p.Line, q.Line))
		}
		return order
	}
	b.same = make([]uint32, len(b.places))
	all := make([]uint32, len(b.places))
	for i := range all {
		all[i] = uint32(i)
	}
	slices.SortFunc(all, compare)
	for _, id := range all {
		if n := len(b.order); n == 0 || compare(b.order[n-1], id) != 0 {
			b.order = append(b.order, id)
		}
		b.same[id] = b.order[len(b.order)-1]
	}
}

// location returns the location of a place, with the functions inlined there, innermost first.
func (b *profileBuilder) location(id uint32) *profile.Location {
	id = b.same[id]
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
func (b *profileBuilder) line(dso, name, shown string, s frame.Source) profile.Line {
	k := functionKey{dso, shown, s.File}
	fn := b.functions[k]
	if fn == nil {
		fn = &profile.Function{ID: uint64(len(b.p.Function) + 1), Name: output.Text(shown), SystemName: output.Text(name),
			Filename: output.Text(s.File)}
		b.functions[k] = fn
		b.p.Function = append(b.p.Function, fn)
	}
	return profile.Line{Function: fn, Line: int64(s.Line)}
}

// mappingsOf adds the mappings of those objects that have frames. They are in the
// order in which they were mapped: pprof takes the first for the program.
func (b *profileBuilder) mappingsOf(objects []*unwind.Object) {
	used := make(map[*unwind.Object]*frame.Frame)
	for _, f := range b.places {
		used[f.Object] = f
	}
	for _, o := range objects {
		if f := used[o]; f != nil {
			b.mapping(f)
		}
	}
}

// mapping returns the mapping of a frame's file. It covers all addresses: locations have addresses in the file, and
// pprof asks for the mapping by number, not by address.
func (b *profileBuilder) mapping(f *frame.Frame) *profile.Mapping {
	k := mappingKey{f.DSO, b.buildID(f)}
	m := b.mappings[k]
	if m == nil {
		m = &profile.Mapping{ID: uint64(len(b.p.Mapping) + 1), Limit: ^uint64(0), File: output.Text(f.DSO),
			BuildID: k.buildID, HasFunctions: true,
			HasInlineFrames: b.opt.Inline, HasFilenames: b.opt.Lines, HasLineNumbers: b.opt.Lines}
		b.mappings[k] = m
		b.p.Mapping = append(b.p.Mapping, m)
	}
	return m
}

// buildID returns the build-id of a frame's object in hexadecimal, or "" if there is none.
func (b *profileBuilder) buildID(f *frame.Frame) string {
	if f.Object == nil {
		return ""
	}
	id, ok := b.ids[f.Object]
	if !ok {
		id = hex.EncodeToString(f.Object.BuildID())
		b.ids[f.Object] = id
	}
	return id
}
