//go:build linux && amd64

package record

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"io"

	"github.com/ehasm/ehasm/unwind"
)

// packed holds the stacks, nodes and frames of a Table in a twentieth of their memory: columns of differences between
// one and the next, compressed.
type packed struct {
	bytes                 []byte
	maps                  []unwind.Mapping // of frames
	stacks, nodes, frames int
}

// packLevel is the compression level; a low one, since the reader waits.
const packLevel = 3

// Pack makes a profile small that is kept for long; nothing may be added to it any more.
func (p *Profile) Pack() {
	t := p.Table
	if t.packed != nil {
		return
	}
	k := &packed{stacks: len(t.Stacks), nodes: len(t.nodes)}
	var out packer
	number := make(map[uint32]uint32) // of frames, in the order in which nodes have them
	var frames []uint32
	for i := 1; i < len(t.nodes); i++ {
		out.put(int64(uint32(i) - t.nodes[i].parent))
	}
	last := int64(0)
	for i := 1; i < len(t.nodes); i++ {
		id, ok := number[t.nodes[i].frame]
		if !ok {
			id = uint32(len(frames))
			number[t.nodes[i].frame] = id
			frames = append(frames, t.nodes[i].frame)
		}
		out.put(int64(id) - last)
		last = int64(id)
	}
	k.frames = len(frames)
	k.putFrames(&out, t, frames)
	for column := range stackColumns {
		last := int64(0)
		for _, s := range t.Stacks {
			s.column(column, func(v int64) int64 {
				out.put(v - last)
				last = v
				return v
			})
		}
	}
	k.bytes = out.close()
	p.Table = &Table{packed: k}
}

// putFrames adds the frames of a table with these numbers.
func (k *packed) putFrames(out *packer, t *Table, list []uint32) {
	type mapKey struct {
		object       *unwind.Object
		offset, size uint64
	}
	number := map[mapKey]int{}
	pcs := make(map[int]uint64) // the last one of a mapping
	for _, id := range list {
		f := &t.frames[id]
		m, pc, index := &f.Mapping, f.PC, -1
		if m.Object != nil {
			key := mapKey{m.Object, m.Offset, m.End - m.Start}
			if !m.Object.IsFile() {
				key.offset = m.Start // code without a file is at this address of this process
			}
			var ok bool
			if index, ok = number[key]; !ok {
				index = len(k.maps)
				number[key] = index
				k.maps = append(k.maps, *m)
			}
			pc += k.maps[index].Start - m.Start
		}
		bits := int64(0)
		if f.Kernel {
			bits |= isKernel
		}
		if f.Guessed {
			bits |= isGuessed
		}
		out.put(int64(index+1)<<frameBits | bits)
		out.put(int64(f.PID))
		out.put(int64(pc - pcs[index]))
		pcs[index] = pc
	}
}

// Bits of packed frames.
const (
	isKernel = 1 << iota
	isGuessed
	frameBits = iota
)

// The columns of stacks.
const stackColumns = 9

// column makes what a stack has in a column what f makes of it.
func (s *Stack) column(i int, f func(v int64) int64) {
	switch i {
	case 0:
		s.node = uint32(f(int64(s.node)))
	case 1:
		s.Comm = uint32(f(int64(s.Comm)))
	case 2:
		s.PID = int32(f(int64(s.PID)))
	case 3:
		s.End = unwind.Cause(f(int64(s.End)))
	case 4:
		s.Origin = Origin(f(int64(s.Origin)))
	case 5:
		s.Count = uint64(f(int64(s.Count)))
	case 6:
		s.Period = uint64(f(int64(s.Period)))
	case 7:
		s.Labels = uint32(f(int64(s.Labels)))
	case 8:
		s.Event = uint8(f(int64(s.Event)))
	}
}

// packer compresses numbers.
type packer struct{ numbers []byte }

func (p *packer) put(v int64) { p.numbers = binary.AppendVarint(p.numbers, v) }

func (p *packer) close() []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, packLevel) // the level is valid, and memory takes all that is written
	w.Write(p.numbers)
	w.Close()
	return bytes.Clone(b.Bytes())
}

// unpacked returns the table as it was, without what finds stacks in it, and with a mapping for all that differ in
// their addresses alone.
func (t *Table) unpacked() *Table {
	k := t.packed
	if k == nil {
		return t
	}
	b, _ := io.ReadAll(flate.NewReader(bytes.NewReader(k.bytes))) // this process wrote it
	next := func() int64 {
		v, n := binary.Varint(b)
		b = b[n:]
		return v
	}
	out := &Table{frames: make([]Frame, k.frames), nodes: make([]node, k.nodes), Stacks: make([]Stack, k.stacks)}
	for i := 1; i < k.nodes; i++ {
		out.nodes[i].parent = uint32(i) - uint32(next())
	}
	frame := int64(0)
	for i := 1; i < k.nodes; i++ {
		frame += next()
		out.nodes[i].frame = uint32(frame)
	}
	pcs := make(map[int]uint64)
	for i := range out.frames {
		f, v := &out.frames[i], next()
		f.Kernel, f.Guessed = v&isKernel != 0, v&isGuessed != 0
		index := int(v>>frameBits) - 1
		if index >= 0 {
			f.Mapping = k.maps[index]
		}
		f.PID = int32(next())
		f.PC = pcs[index] + uint64(next())
		pcs[index] = f.PC
	}
	for column := range stackColumns {
		v := int64(0)
		for i := range out.Stacks {
			out.Stacks[i].column(column, func(int64) int64 {
				v += next()
				return v
			})
		}
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

// size returns how many frames with their callers there are.
func (t *Table) size() int {
	if t.packed != nil {
		return t.packed.nodes
	}
	return len(t.nodes)
}
