//go:build linux && amd64

package main

import (
	"fmt"

	"github.com/ehasm/ehasm/abi"
)

// verdict is the result of comparing a table's answer with the truth.
type verdict uint8

const (
	right    verdict = iota
	noRow            // the table has nothing for the pc
	outmost          // the table says that the stack ends here; a known frame has a caller
	noAnswer         // a row that cannot be evaluated
	wrongCFA         // CFA or return address
	wrongReg         // a callee-saved register that the row claims to know
	verdicts
)

func (v verdict) String() string {
	return [verdicts]string{"right", "no row", "end of stack", "no answer", "wrong CFA", "wrong register"}[v]
}

// sums holds the results of one table on one object.
type sums struct {
	steps   [verdicts]int     // steps by verdict
	lost    int               // steps in which the row makes a callee-saved register undefined
	wrong   map[uint64]*wrong // by link-time pc
	unknown map[uint64]int    // steps at pcs without a row
}

// wrong is an instruction at which a table was wrong, by link-time pc.
type wrong struct {
	verdict verdict
	steps   int
	text    string // the first of them
}

// step compares the answer of one table in a frame with its truth.
func (s *sums) step(t answerer, m *mapping, now *abi.Regs, f *frame, mem *memory) {
	pc := now.Reg[abi.RIP] - m.bias
	v, text, lost := judge(t, m.bias, now, f, mem)
	s.steps[v]++
	if lost {
		s.lost++
	}
	switch v {
	case noRow:
		if s.unknown == nil {
			s.unknown = map[uint64]int{}
		}
		s.unknown[pc]++
	// Only these contradict the truth; a missing row or answer does not.
	case wrongCFA, wrongReg, outmost:
		s.addWrong(pc, v, text)
	}
}

// addWrong adds a step with a wrong answer.
func (s *sums) addWrong(pc uint64, v verdict, text func() string) {
	w := s.wrong[pc]
	if w == nil {
		if s.wrong == nil {
			s.wrong = map[uint64]*wrong{}
		}
		w = &wrong{verdict: v, text: text()}
		s.wrong[pc] = w
	}
	w.steps++
}

// judge asks a table for the step from now; text says what is wrong.
func judge(t answerer, bias uint64, now *abi.Regs, f *frame, mem *memory) (v verdict, text func() string, lost bool) {
	if t == nil {
		return noRow, nil, false
	}
	got := *now
	switch status := t.Step(&got, mem, bias); status {
	case abi.StatusOK:
	case abi.StatusNoInfo:
		return noRow, nil, false
	case abi.StatusOutermost:
		return outmost, func() string { return "the row ends the stack" }, false
	default:
		return noAnswer, nil, false
	}
	if cfa := got.Reg[abi.RSP]; cfa != f.cfa {
		return wrongCFA, func() string { return fmt.Sprintf("CFA %+d bytes from the true one", int64(cfa-f.cfa)) },
			false
	}
	if ra := got.Reg[abi.RIP]; ra != f.ra && f.ra != 0 { // a return address of 0 is not known
		return wrongCFA, func() string { return fmt.Sprintf("return address %#x, true %#x", ra, f.ra) }, false
	}
	for i, reg := range saved {
		if got.Valid&(1<<reg) == 0 { // the row does not claim to know it
			lost = true
		} else if got.Reg[reg] != f.regs[i] {
			return wrongReg, func() string {
				return fmt.Sprintf("%s %#x, true %#x", abi.RegName(reg), got.Reg[reg], f.regs[i])
			}, lost
		}
	}
	return right, nil, lost
}
