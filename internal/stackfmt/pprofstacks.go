package stackfmt

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"io"
	"maps"
	"slices"

	"github.com/google/pprof/profile"
	"google.golang.org/protobuf/encoding/protowire"
)

// A profile.Sample takes a kilobyte, and of a compiler nearly each stack is another one. So package profile writes one sample
// for each set of labels, and the samples themselves are written as profile.proto has them.

// Fields of profile.proto.
const (
	profileSample   = 2
	sampleLocations = 1
	sampleValues    = 2
	sampleLabels    = 3
)

// stack is what is written of a stack: the labels' number, and its key and frames, four bytes each.
type stack struct {
	labels int
	ids    string
	weight weight
}

// writeStacks writes the profile with these stacks. Those that have callers in common follow each other, and frequent
// locations have small numbers, as that takes less when compressed. So do the others in the order of their addresses.
func (b *profileBuilder) writeStacks(w io.Writer, all map[string]weight, at map[string]int) error {
	var list []stack
	var firsts []int // by number of labels, the first of the event's values
	sets := make(map[string]int)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		text, ids := cutLabels(k)
		set, ok := sets[text]
		if !ok {
			labels, _ := splitLabels(text)
			set = len(firsts)
			sets[text] = set
			firsts = append(firsts, at[labels["event"][0]])
			b.p.Sample = append(b.p.Sample, &profile.Sample{Value: make([]int64, len(b.p.SampleType)), Label: labels})
		}
		list = append(list, stack{set, ids, all[k]})
	}
	b.sort(list)
	if err := b.p.CheckValid(); err != nil {
		return err
	}
	out := gzip.NewWriter(w)
	labels, err := b.writeRest(out)
	if err != nil {
		return err
	}
	values := make([]int64, len(b.p.SampleType))
	var msg, part []byte
	for i := range list {
		s := &list[i]
		msg, part = msg[:0], part[:0]
		for id := range s.frames {
			part = protowire.AppendVarint(part, b.locations[id].ID)
		}
		msg = appendPart(msg, sampleLocations, part)
		part = part[:0]
		clear(values)
		values[firsts[s.labels]], values[firsts[s.labels]+1] = s.weight.samples, s.weight.period
		for _, v := range values {
			part = protowire.AppendVarint(part, uint64(v))
		}
		msg = append(appendPart(msg, sampleValues, part), labels[s.labels]...)
		if _, err := out.Write(appendPart(part[:0], profileSample, msg)); err != nil {
			return err
		}
	}
	return out.Close()
}

func appendPart(b []byte, field protowire.Number, part []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), part)
}

// frames yields the numbers of the frames, innermost first.
func (s *stack) frames(yield func(uint32) bool) {
	for ids := s.ids; len(ids) >= 4; ids = ids[4:] {
		if !yield(idOf(ids)) {
			return
		}
	}
}

func idOf(ids string) uint32 { return binary.LittleEndian.Uint32([]byte(ids[:4])) }

// sort makes the locations of stacks, the most frequent first, and sorts stacks by them, outermost first.
func (b *profileBuilder) sort(list []stack) {
	counts := make([]int, len(b.places))
	for i := range list {
		for id := range list[i].frames {
			counts[id]++
		}
	}
	ids := make([]uint32, 0, len(counts))
	for id, n := range counts {
		if n > 0 {
			ids = append(ids, uint32(id))
		}
	}
	slices.SortStableFunc(ids, func(x, y uint32) int { return cmp.Compare(counts[y], counts[x]) })
	const short = 1<<7 - 1 // numbers of one byte
	slices.SortStableFunc(ids[min(short, len(ids)):], func(x, y uint32) int {
		p, q := b.places[x], b.places[y]
		return cmp.Or(cmp.Compare(p.DSO, q.DSO), cmp.Compare(p.IP, q.IP))
	})
	for _, id := range ids {
		b.location(id)
	}
	slices.SortStableFunc(list, func(x, y stack) int {
		if c := cmp.Compare(x.labels, y.labels); c != 0 {
			return c
		}
		p, q := x.ids, y.ids
		for len(p) > 0 && len(q) > 0 {
			i, j := idOf(p[len(p)-4:]), idOf(q[len(q)-4:])
			if i != j {
				return cmp.Compare(b.locations[i].ID, b.locations[j].ID)
			}
			p, q = p[:len(p)-4], q[:len(q)-4]
		}
		return cmp.Compare(len(p), len(q))
	})
}

// writeRest writes all but the samples, and returns the labels of each as its message has them.
func (b *profileBuilder) writeRest(w io.Writer) (labels [][]byte, err error) {
	var buf bytes.Buffer
	if err := b.p.WriteUncompressed(&buf); err != nil {
		return nil, err
	}
	for text := buf.Bytes(); len(text) > 0; {
		field, _, n := protowire.ConsumeField(text)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		msg := text[:n]
		text = text[n:]
		if field != profileSample {
			if _, err := w.Write(msg); err != nil {
				return nil, err
			}
			continue
		}
		_, _, tag := protowire.ConsumeTag(msg)
		msg, _ = protowire.ConsumeBytes(msg[tag:]) // it was whole a moment ago
		var list []byte
		for len(msg) > 0 {
			field, _, n := protowire.ConsumeField(msg)
			if n < 0 {
				return nil, protowire.ParseError(n)
			}
			if field == sampleLabels {
				list = append(list, msg[:n]...)
			}
			msg = msg[n:]
		}
		labels = append(labels, list)
	}
	return labels, nil
}
