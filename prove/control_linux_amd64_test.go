package prove

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func isControl(op instOp) bool { return op >= iJcc && op <= iRet }

// caseCode is the code of a case, between what loads the registers and what stores them.
type caseCode struct {
	before, compare, inst, after []byte
	addr, next, end              uint64 // of inst, after inst, and after all
	target                       uint64 // where a jump, call or return leads to; 0: it is none
	returns                      bool
}

// Sizes of the code around: what loads registers, what stores them, what says where the
// code went on, and a jump.
const (
	loadSize  = 6*8 + 16*8
	storeSize = 16*8 + 5 + 8 + 6*8
	markSize  = 11
	jumpSize  = 5
	headSize  = 64 + 2*56

	markNext   = 1
	markTarget = 2
)

// newCaseCode puts an instruction at a place. The target of a jump lies some way before or
// after it; a place relative to rip is one of the case's memory.
func newCaseCode(rng *rand.Rand, addr uint64, i *inst, b []byte, k int) caseCode {
	// cmp r8, r9 or its half: 45/4d 39 c8
	c := caseCode{compare: []byte{byte(0x45 + 8*rng.IntN(2)), 0x39, 0xc8}, inst: slices.Clone(b)}
	mark := func(b []byte, what uint32) []byte {
		b = le.AppendUint32(append(b, 0xc7, 0x04, 0x25), uint32(dataAt+k*caseSize+caseMark))
		return le.AppendUint32(b, what)
	}
	jump := func(b []byte, by int) []byte { return le.AppendUint32(append(b, 0xe9), uint32(by)) }
	back := false
	if isControl(i.op) {
		pad := slices.Repeat([]byte{0xcc}, rng.IntN(90))
		if i.n > 2 {
			pad = slices.Repeat(pad, 1+rng.IntN(20))
		}
		if back = rng.IntN(2) == 0; back {
			c.before = mark(jump(nil, markSize+jumpSize+len(pad)), markTarget)
			c.before = append(jump(c.before, len(pad)+len(c.compare)+len(b)+markSize), pad...)
			c.after = mark(nil, markNext)
		} else {
			c.after = append(jump(mark(nil, markNext), len(pad)+markSize), pad...)
			c.after = mark(c.after, markTarget)
		}
	}
	c.addr = addr + loadSize + uint64(len(c.before)+len(c.compare))
	c.next = c.addr + uint64(len(b))
	c.end = c.next + uint64(len(c.after)) + storeSize
	switch {
	case back:
		c.target = addr + loadSize + jumpSize
	case isControl(i.op):
		c.target = c.next + uint64(len(c.after)-markSize)
	}
	c.returns = i.op == iRet
	distance := c.target - c.next
	switch {
	case (i.op == iJcc || i.op == iJmp) && i.n == 2:
		c.inst[1] = byte(distance)
	case i.op == iJcc || i.op == iJmp || i.op == iCall:
		le.PutUint32(c.inst[i.n-4:], uint32(distance))
	case i.dst.kind == opRIP || i.src.kind == opRIP:
		end := len(b) // of the displacement: a constant may follow
		if i.src.kind == opImm {
			end = bytes.LastIndex(b, le.AppendUint32(nil, uint32(i.dst.disp))) + 4
		}
		le.PutUint32(c.inst[end-4:], uint32(spOf(k)-uint64(8*rng.IntN(depth/8))-c.next))
	}
	return c
}

// goOn takes the step of a jump, call or return, and compares where it leads to.
func (c *caseCode) goOn(t *testing.T, x *exec, s *state, eval func(term) uint64, mark uint64) *state {
	s.pc = c.addr
	x.code = func(pc uint64) []byte {
		require.Equal(t, c.addr, pc)
		return c.inst
	}
	to := noTerm
	x.may.callTo = func(s *state, target term) ([]*state, error) {
		to = target
		return nil, x.push(s, x.mapped(s.pc))
	}
	if c.returns {
		s.outer = append(s.outer, callFrame{})
		s.frame.keep = s.reg
	}
	more, end, err := x.step(s)
	if err != nil {
		return nil
	}
	if more != nil { // of the ways of a branch, the one whose conditions hold
		more = slices.DeleteFunc(more, func(s *state) bool {
			return slices.ContainsFunc(s.conds, func(l lit) bool { return eval(l.t) != 0 == l.neg })
		})
		require.Len(t, more, 1, "% x", c.inst)
		s = more[0]
	}
	if end != nil {
		to = end.target
	}
	leads := s.pc
	if to != noTerm {
		leads = eval(to)
	}
	want := map[uint64]uint64{markNext: c.next, markTarget: c.target}[mark]
	require.Equal(t, want, leads, "% x", c.inst)
	return s
}
