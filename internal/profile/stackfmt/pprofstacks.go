package stackfmt

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"io"
	"iter"
	"slices"

	"github.com/ehasm/ehasm/internal/profile/tally"

	"github.com/google/pprof/profile"
	"google.golang.org/protobuf/encoding/protowire"
)

// A profile.Sample takes a kilobyte, and of a compiler nearly each stack is another one. So package profile writes one
// sample for each set of labels, and the samples themselves are written as profile.proto has them.

// Fields of profile.proto.
const (
	profileSample   = 2 // repeated Sample sample
	sampleLocations = 1 // repeated uint64 location_id, packed
	sampleValues    = 2 // repeated int64 value, packed
	sampleLabels    = 3 // repeated Label label
)

// writeStacks writes the profile with the stacks of some tallies. Stacks that have callers in common follow each other.
func (b *profileBuilder) writeStacks(w io.Writer, all []*tally.Tally, sets []string, columns map[string]int) error {
	b.makeLocations(all)
	// Sets of labels in the order of their text, so that output does not depend on workers.
	sorted := make([]int, len(sets))
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortFunc(sorted, func(i, j int) int { return cmp.Compare(sets[i], sets[j]) })
	firsts := make([]int, len(sets))   // the first of the event's values
	order := make([]uint32, len(sets)) // places in sorted
	for i, set := range sorted {
		labels := splitLabels(sets[set])
		firsts[i] = columns[labels["event"][0]]
		// Package profile gets one sample for each set, with labels only, to encode those.
		b.p.Sample = append(b.p.Sample, &profile.Sample{Value: make([]int64, len(b.p.SampleType)), Label: labels})
		order[set] = uint32(i)
	}
	if err := b.p.CheckValid(); err != nil {
		return err
	}
	out := gzip.NewWriter(w)
	labels, err := b.writeRest(out)
	if err != nil {
		return err
	}
	// Numbers do not depend on which worker was the first to meet a frame now.
	stacks := reordered(all, func(to, key []byte) []byte {
		for id := range tally.Numbers(key[tally.NumberSize:]) {
			to = tally.AppendNumber(to, uint32(b.location(id).ID))
		}
		// last: equal stacks with other labels then take little when compressed
		return tally.AppendNumber(to, order[idOf(key)])
	})
	values := make([]int64, len(b.p.SampleType))
	var msg, part []byte
	for key, n := range tally.All(stacks) {
		last := len(key) - tally.NumberSize
		set := idOf(key[last:])
		msg, part = msg[:0], part[:0]
		// From the last number to the first: the innermost location comes first in pprof.
		for pos := last - tally.NumberSize; pos >= 0; pos -= tally.NumberSize {
			part = protowire.AppendVarint(part, uint64(idOf(key[pos:])))
		}
		msg = appendPart(msg, sampleLocations, part)
		part = part[:0]
		clear(values)
		// Number and period of the stack's event; the other events' values are 0.
		values[firsts[set]], values[firsts[set]+1] = int64(n[0]), int64(n[1])
		for _, v := range values {
			part = protowire.AppendVarint(part, uint64(v))
		}
		msg = append(appendPart(msg, sampleValues, part), labels[set]...)
		if _, err := out.Write(appendPart(part[:0], profileSample, msg)); err != nil {
			return err
		}
	}
	return out.Close()
}

// appendPart appends a field that is a message or a packed list.
func appendPart(b []byte, field protowire.Number, part []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), part)
}

// idOf returns the first number of a key, the labels'.
func idOf(key []byte) uint32 { return binary.BigEndian.Uint32(key) }

// framesOf yields the other numbers, of the innermost frame first.
func framesOf(key []byte) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for pos := len(key) - tally.NumberSize; pos >= tally.NumberSize && yield(idOf(key[pos:])); pos -= tally.NumberSize {
		}
	}
}

// makeLocations makes the locations of stacks. Frequent ones have small numbers, as that takes less when compressed,
// and so do the others in the order of their addresses.
// Locations take numbers in the order in which location is called.
func (b *profileBuilder) makeLocations(all []*tally.Tally) {
	counts := make([]int, len(b.places))
	// How many stacks each place is in.
	for key := range tally.All(all...) {
		for id := range framesOf(key) {
			counts[b.same[id]]++
		}
	}
	used := slices.DeleteFunc(b.order, func(id uint32) bool { return counts[id] == 0 })
	frequent := slices.Clone(used)
	slices.SortStableFunc(frequent, func(x, y uint32) int { return cmp.Compare(counts[y], counts[x]) })
	const short = 1<<7 - 1 // numbers of one byte
	for _, id := range frequent[:min(short, len(frequent))] {
		b.location(id)
	}
	for _, id := range used {
		b.location(id)
	}
	b.places, b.order = nil, nil
}

// writeRest writes all but the samples, and returns the labels of each as its message has them.
func (b *profileBuilder) writeRest(w io.Writer) (labels [][]byte, err error) {
	var buf bytes.Buffer
	if err := b.p.WriteUncompressed(&buf); err != nil {
		return nil, err
	}
	// The encoded profile is taken apart: samples are kept back for their labels, all else is
	// copied.
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
