package check

import (
	"slices"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file is a shortcut. A comparison by judge looks at 17 columns for each instruction; most rows can be taken apart
// once, and most instructions change nothing that their row is about. What does not fit goes to judge, so a mistake
// here can only hide a finding, not make one.

// plainRow is a row in the form in which most can be compared at once: the CFA is a register plus an offset, or the
// word there, and the return address and the callee-saved registers are unchanged or at an offset from the CFA or a
// register.
type plainRow struct {
	ok    bool // the row has that form; if not, only keeps and places count
	keeps bool // the row is about rsp, the callee-saved registers and words of the stack only

	// What has to hold, each compared as a word: cfa is in cfaReg, the registers of same have their entry values, and
	// the words of the stack in places hold those of others.
	cfaReg uint8
	cfa    codeflow.Value
	cfaAt  *dwarfcfa.ExprOp  // not nil: the word at this register plus an offset is the CFA
	same   [6]codeflow.Value // the callee-saved registers: rbx, rbp, r12 to r15
	nSame  int
	locs   [7]location // these six and the return address
	nLoc   int
}

// wordAt returns the word at a register plus an offset.
func wordAt(op *dwarfcfa.ExprOp, s *codeflow.State) codeflow.Value {
	w := word{v: s.Regs[hardware[op.Reg&15]]}.plus(op.Arg)
	if w.v.Kind != codeflow.Base {
		return codeflow.Value{}
	}
	return s.Slot(w.v.Reg, w.v.Off)
}

// registerPlus returns the first operation of an expression if it is a register plus an offset, and the others are
// these.
func registerPlus(in *dwarfcfa.Interp, id dwarfcfa.ExprID, others ...dwarfcfa.ExprOp) *dwarfcfa.ExprOp {
	e, err := in.Decoded(id)
	if err != nil || len(e.Ops) == 0 || e.Ops[0].Code != dwarfcfa.OpReg || e.Ops[0].Reg > 15 ||
		!slices.Equal(e.Ops[1:], others) {
		return nil
	}
	return &e.Ops[0]
}

// location says that a word of the stack, at CFA + off or at a register plus an offset, holds the entry value v.
type location struct {
	off  int32
	base *dwarfcfa.ExprOp // nil: off counts
	v    codeflow.Value
}

// holds reports whether the word has the value in a state.
func (x *location) holds(s *codeflow.State) bool {
	if x.base != nil {
		return wordAt(x.base, s) == x.v
	}
	return s.Slot(0, x.off) == x.v
}

// set takes a row apart once, for all the instructions that it covers. Most instructions change nothing that the row
// is about, and then need no comparison: see keeps.
func (p *plainRow) set(row *dwarfcfa.Row, in *dwarfcfa.Interp) {
	*p = plainRow{}
	// Offsets of more than 32 bits are left to judge, which knows that no state has them.
	cfa := &row.CFA
	p.ok = cfa.Kind == dwarfcfa.CFARegOffset && cfa.Reg < 16 && cfa.Offset == int64(int32(cfa.Offset))
	if p.ok {
		p.cfaReg, p.cfa = hardware[cfa.Reg], codeflow.Value{Kind: codeflow.Base, Off: int32(-cfa.Offset)}
	} else if cfa.Kind == dwarfcfa.CFAExpr {
		p.cfaAt = registerPlus(in, cfa.Expr, dwarfcfa.ExprOp{Code: dwarfcfa.OpDeref, Arg: 8})
		p.ok, p.cfa = p.cfaAt != nil, codeflow.Value{Kind: codeflow.Base}
	}
	p.keeps = cfa.Kind == dwarfcfa.CFARegOffset && (cfa.Reg == 7 || cfa.Reg == 6) ||
		cfa.Kind == dwarfcfa.CFAExpr && keptRegisters(in, cfa.Expr)
	for d := range row.Regs {
		rule := &row.Regs[d]
		p.keeps = p.keeps && readsKept(in, rule)
		h := uint8(codeflow.RA)
		if d < 16 {
			h = hardware[d]
			// Calls may change it, and a rule of it is only checked if it says that the caller's value is there.
			if codeflow.CalleeSaved>>h&1 == 0 {
				p.ok = p.ok && !keepsValue(row, d)
				p.keeps = p.keeps && p.ok
				continue
			}
		}
		v := codeflow.Value{Kind: codeflow.Entry, Reg: h}
		switch rule.Kind {
		case dwarfcfa.RuleSameValue, dwarfcfa.RuleUnspecified:
			if h != codeflow.RA {
				p.same[p.nSame] = v
				p.nSame++
			}
		case dwarfcfa.RuleOffset:
			p.locs[p.nLoc] = location{off: int32(rule.Offset), v: v}
			p.nLoc++
			p.ok = p.ok && rule.Offset == int64(int32(rule.Offset))
		case dwarfcfa.RuleExpression:
			p.locs[p.nLoc] = location{base: registerPlus(in, rule.Expr), v: v}
			p.ok = p.ok && p.locs[p.nLoc].base != nil
			p.nLoc++
		case dwarfcfa.RuleUndefined: // claims nothing; of the return address, that the stack ends
			p.ok = p.ok && h != codeflow.RA
		default:
			p.ok = false
		}
	}
}

// readsKept reports whether a rule reads the stack, rsp and callee-saved registers only. A rule of a kind that has no
// case here, as one that copies another register, may read more.
func readsKept(in *dwarfcfa.Interp, rule *dwarfcfa.RegRule) bool {
	switch rule.Kind {
	case dwarfcfa.RuleUnspecified, dwarfcfa.RuleUndefined, dwarfcfa.RuleSameValue, dwarfcfa.RuleOffset,
		dwarfcfa.RuleValOffset:
		return true
	case dwarfcfa.RuleExpression, dwarfcfa.RuleValExpression:
		return keptRegisters(in, rule.Expr)
	}
	return false
}

// keptRegisters reports whether an expression reads rsp and callee-saved registers only.
func keptRegisters(in *dwarfcfa.Interp, id dwarfcfa.ExprID) bool {
	e, err := in.Decoded(id)
	for i := range e.Ops {
		op := &e.Ops[i]
		if op.Code == dwarfcfa.OpReg && (op.Reg > 15 || (codeflow.CalleeSaved|1<<x86.RSP)>>hardware[op.Reg]&1 == 0) {
			return false
		}
	}
	return err == nil
}

// fits reports whether the row has the form, and all that it says is so in the state: judge finds nothing then.
func (p *plainRow) fits(s *codeflow.State) bool {
	if !p.ok || p.cfaAt == nil && s.Regs[p.cfaReg&15] != p.cfa || p.cfaAt != nil && wordAt(p.cfaAt, s) != p.cfa {
		return false
	}
	for _, v := range p.same[:p.nSame] {
		if s.Regs[v.Reg&15] != v {
			return false
		}
	}
	for i := range p.locs[:p.nLoc] {
		if !p.locs[i].holds(s) {
			return false
		}
	}
	return true
}

// belowStack reports whether the row reads a saved word that is below rsp, of a register that is restored.
func (p *plainRow) belowStack(s *codeflow.State) bool {
	r := s.Regs[x86.RSP]
	if r.Kind != codeflow.Base || r.Reg != 0 {
		return false
	}
	for i := range p.locs[:p.nLoc] {
		if x := &p.locs[i]; x.base == nil && x.off < r.Off && x.v.Reg != codeflow.RA && s.Regs[x.v.Reg&15] == x.v &&
			s.Slot(0, x.off).Kind == codeflow.Entry {
			return true
		}
	}
	return false
}
