//go:build linux && amd64

package record

import (
	"encoding/binary"

	"github.com/ehasm/ehasm/unwind"
)

// packed holds the stacks and nodes of a Table in a tenth of their memory. Each number is that of its
// predecessor's difference, so most take a byte.
type packed struct {
	bytes         []byte
	stacks, nodes int
	period        uint64 // of all stacks
}

// Pack makes a profile small that is kept for long; nothing may be added to it any more.
func (p *Profile) Pack() {
	t := *p.Table
	if t.packed != nil {
		return
	}
	k := &packed{stacks: len(t.Stacks), nodes: len(t.nodes)}
	b := make([]byte, 0, 4*len(t.nodes)+16*len(t.Stacks))
	frame := uint32(0)
	for i := 1; i < len(t.nodes); i++ {
		n := &t.nodes[i]
		b = binary.AppendUvarint(b, uint64(uint32(i)-n.parent))
		b = binary.AppendVarint(b, int64(n.frame)-int64(frame))
		frame = n.frame
	}
	var last Stack
	for i := range t.Stacks {
		s := &t.Stacks[i]
		for _, d := range [...]int64{int64(s.node) - int64(last.node), int64(s.Comm) - int64(last.Comm), int64(s.PID) - int64(last.PID),
			int64(s.End) - int64(last.End), int64(s.How) - int64(last.How), int64(s.Count - last.Count), int64(s.Period - last.Period)} {
			b = binary.AppendVarint(b, d)
		}
		k.period += s.Period
		last = *s
	}
	k.bytes = append([]byte(nil), b...)
	p.Table = &Table{frames: t.frames, packed: k}
}

// unpacked returns the table as it was, without what finds stacks in it.
func (t *Table) unpacked() *Table {
	k := t.packed
	if k == nil {
		return t
	}
	b := k.bytes
	next := func() int64 {
		v, n := binary.Varint(b)
		b = b[n:]
		return v
	}
	out := &Table{frames: t.frames, nodes: make([]node, k.nodes), Stacks: make([]Stack, k.stacks)}
	frame := int64(0)
	for i := 1; i < k.nodes; i++ {
		back, n := binary.Uvarint(b)
		b = b[n:]
		frame += next()
		out.nodes[i] = node{uint32(i) - uint32(back), uint32(frame)}
	}
	var s Stack
	for i := range out.Stacks {
		s.node += uint32(next())
		s.Comm += uint32(next())
		s.PID += int32(next())
		s.End += unwind.Cause(next())
		s.How += How(next())
		s.Count += uint64(next())
		s.Period += uint64(next())
		out.Stacks[i] = s
	}
	return out
}

// distinct returns how many stacks there are.
func (t *Table) distinct() int {
	if t.packed != nil {
		return t.packed.stacks
	}
	return len(t.Stacks)
}

// period returns the sum over all stacks.
func (t *Table) period() (sum uint64) {
	if t.packed != nil {
		return t.packed.period
	}
	for i := range t.Stacks {
		sum += t.Stacks[i].Period
	}
	return sum
}
