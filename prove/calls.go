package prove

import (
	"fmt"
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// exprFails returns the condition that an expression has no value: bit 31 of the status, since failures are negative.
func (p *proof) exprFails() term { return p.t.bit(p.v.slow.exprStatus, p.t.con(31)) }

// callExpr returns what a call of an expression's code does, for permit.callTo. The code must be
// where the descriptor says, off bytes from _eh_elf. The value comes in rax with the carry clear,
// or a negative status in edx with the carry set. proof.expression shows for each code that a
// descriptor names that it does so. named holds on the paths on which the descriptor names an
// expression. cfa is the CFA that a rule's expression finds in r12; noTerm for the expression of a
// CFA itself.
func (p *proof) callExpr(off, named, cfa term) func(s *state, to term) ([]*state, error) {
	return func(s *state, to term) ([]*state, error) {
		// The path must have decided that this descriptor has an expression.
		if names, known := p.x.decide(s, named); !known || !names {
			return nil, fmt.Errorf("a call of an expression where the descriptor has none")
		}
		// A decision on the status marks an earlier call: the results share their variables.
		if _, called := p.x.decide(s, p.exprFails()); called {
			return nil, fmt.Errorf("an expression is called twice")
		}
		if to != p.t.add(off, p.x.mapped(p.im.dynamic.symbols[abi.SymbolStep].Value)) {
			return nil, fmt.Errorf("a call of %s", p.t.text(to))
		}
		// An expression finds its inputs in these registers and slots (exprProof.enter).
		err := p.require(s, want{"rbx", s.reg[rBX], p.v.args.regs}, want{"r14", s.reg[r14], p.v.args.mem},
			want{"the CFA in an expression", s.reg[r12], cfa},
			want{"the base in an expression", p.slot(s, slotBase), p.v.walk.base},
			want{"rsp in an expression", s.reg[rSP], p.t.plus(p.x.sp, frameBase-exprPad)})
		if err != nil {
			return nil, err
		}
		p.clobber(s)
		// The callee may have overwritten any word of the expression's stack in the frame.
		const own = frameBase + slotExpr
		s.stack = slices.DeleteFunc(s.stack, func(c cell) bool {
			return c.off < own+8*dwarfcfa.MaxExprStack &&
				c.off+int64(c.size) > own
		})
		// From here on two states: with a value, and with a failing status.
		failed := p.x.fork(s)
		s.assume(p.exprFails(), true)
		failed.assume(p.exprFails(), false)
		s.reg[rAX], s.fl = p.v.slow.exprValue, flags{kind: flCarry, cf: p.t.con(0)}
		failed.reg[rDX], failed.fl = p.v.slow.exprStatus, flags{kind: flCarry, cf: p.t.con(1)}
		return []*state{s, failed}, nil
	}
}

// clobber forgets what a callee need not keep (psABI figure 3.4): registers, flags
// and the stack below rsp, where there may have been values.
func (p *proof) clobber(s *state) {
	rsp, err := p.x.stackOff(s)
	s.stack = slices.DeleteFunc(s.stack, func(c cell) bool { return err != nil || c.off < rsp })
	// not what another call left, or what was there before
	left := func() term { return p.t.variable("left by a call", ^uint64(0)) }
	for _, r := range [...]uint8{rAX, rCX, rDX, rSI, rDI, r8, r9, r10, r11} {
		s.reg[r] = left()
	}
	for i := range s.xmm {
		s.xmm[i] = [2]term{left(), left()}
	}
	s.fl = flags{}
}

// callRead does what readWord does, which readWord's proof shows: the word at rsi
// comes in rax, or carry is set.
func (p *proof) callRead(s *state, to uint64) ([]*state, bool, error) {
	if !p.begins(to, cutRead) { // cutRead is its first instruction
		return nil, false, nil
	}
	p.owed.reads.add(to) // proven later by slowProof.readWord
	t := p.t
	if err := p.require(s, want{"r14", s.reg[r14], p.v.args.mem}); err != nil {
		return nil, true, err
	}
	// The psABI asks for rsp = 16n before the call, and readWord may use only what is left of the
	// limit.
	if off, err := p.x.stackOff(s); err != nil || off&15 != 8 || off < 8-readDepth {
		return nil, true, fmt.Errorf("a call with the stack at %+d: %v", off, err)
	}
	addr := s.reg[rSI] // before clobber forgets it
	p.clobber(s)
	failed := p.x.fork(s)
	ok := p.readable(addr)
	s.assume(ok, false)
	failed.assume(ok, true)
	s.reg[rAX], s.fl = p.wordAt(addr), flags{kind: flCarry, cf: t.con(0)}
	failed.fl = flags{kind: flCarry, cf: t.con(1)}
	return []*state{s, failed}, true, nil
}

// readable is 1 if the target's word at an address can be read, by the window or the callback. Its
// answer is the same within a step.
func (p *proof) readable(addr term) term {
	return p.t.make(termNode{op: tVec, a: addr, b: addr, k: vecReadable}, 1)
}

// wordAt is the target's word at an address, where readable holds.
func (p *proof) wordAt(addr term) term {
	return p.t.make(termNode{op: tVec, a: addr, b: addr, k: vecWord}, ^uint64(0))
}

// Operations of tVec that stand for the target's memory. They begin behind the instOps, which
// bytewise uses.
const (
	vecReadable = 1000 + iota
	vecWord
)
