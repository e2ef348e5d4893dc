//go:build linux && amd64

package record

import (
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// truth compares completed stacks with those of a copy that holds them completely.
type truth struct {
	pcs []uint64
	Truth
}

// Truth counts the stacks that the long copy has all of, by how the short one was walked.
type Truth struct {
	Whole   Compared `json:"within_the_copy"`
	Later   Compared `json:"refilled_from_memory"`
	Last    Compared `json:"refilled_from_last_stack"`
	Missing uint64   `json:"not_refilled"`
	Unknown uint64   `json:"longer_than_the_long_copy"`
}

// Compared counts stacks that were the same, and those that were not.
type Compared struct {
	Same  uint64 `json:"same"`
	Wrong uint64 `json:"wrong"`
}

func (c *Compared) add(same bool) {
	if same {
		c.Same++
	} else {
		c.Wrong++
	}
}

// walkBoth counts the short stack as recording with a copy of Options.Truth bytes would,
// and compares it with the long one.
func (s *Session) walkBoth(r *perfdata.Sample, th *thread, maps *unwind.Maps, first abi.Regs, mem *ehelf.Memory, stack *Stack) int {
	t := &s.truth
	regs := first
	m, whole, _ := s.walker.Walk(maps, &regs, mem, t.pcs)
	short := ehelf.Memory{Lo: mem.Lo, Bytes: mem.Bytes[:min(len(mem.Bytes), s.opt.Truth)]}
	n, cause, how := s.walk(r.PID, th, maps, first, &short, s.pcs)
	stack.End, stack.How = cause, how
	s.note(n, cause, how)
	same := slices.Equal(t.pcs[:m], s.pcs[:n])
	switch {
	case !isWhole(whole):
		t.Unknown++
	case how&fromLater != 0:
		t.Later.add(same)
	case how&fromLast != 0:
		t.Last.add(same)
	case cause == unwind.Unreadable:
		t.Missing++
	default:
		t.Whole.add(same)
	}
	return n
}
