package check

import (
	"fmt"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file compares one row with one state: the CFA first, then the places of the caller's registers, then the return
// address. It is what every finding about an instruction rests on; fix.go and Judge use the same comparison.

// wrong is a mismatch at one instruction.
type wrong struct {
	kind            Kind   // KindCFA, KindReturn, KindSaved or KindClobbered
	reg             uint8  // register of saved and clobbered
	actual, claimed string // what the code did; what the row says
	class           Class  // "": ClassTable
	stated          bool   // the row says same value, which otherwise is what no rule means
}

// judge compares a row with the state before the instruction at pc. reason says why that is not possible; it is empty
// if it was.
func (c *function) judge(pc uint64, row *dwarfcfa.Row, s *codeflow.State, ws []wrong) (out []wrong, reason string) {
	// The end of the stack, as in _start: there is no caller to be right or wrong about.
	if row.Regs[16].Kind == dwarfcfa.RuleUndefined {
		return ws, ReasonEnd
	}
	cfa, reason := c.cfaOf(pc, row, s)
	if reason != "" {
		return ws, reason
	}
	// The psABI puts the return address at CFA-8 (Figure 3.3), and so do compilers. A row that has it elsewhere was
	// written by hand, for a reason: longjmp, swapcontext.
	class := Class("")
	if row.Regs[16].Kind != dwarfcfa.RuleOffset || row.Regs[16].Offset != -8 {
		class = ClassContext
	}
	// Base 0 plus 0 is the CFA. With a wrong one, the places of registers mean nothing, so these are not judged: one
	// mistake would give seven findings.
	if cfa.isNum || cfa.v.Kind != codeflow.Base || cfa.v.Reg != 0 || cfa.v.Off != 0 {
		if copied(row, s, cfa) {
			class = ClassCopy
		}
		return append(ws, wrong{kind: KindCFA, actual: cfaText(s), claimed: c.cfaSays(row), class: class}), ""
	}
	// Of the other registers, no rule claims anything unless it says so: calls may change them. rsp is not among them:
	// its value in the caller is the CFA itself.
	for d := range 16 {
		h := hardware[d]
		if codeflow.CalleeSaved>>h&1 == 0 && !keepsValue(row, d) {
			continue
		}
		if w, bad := c.register(pc, row, s, d, h); bad {
			w.class = class
			ws = append(ws, w)
		}
	}
	if w, bad := c.register(pc, row, s, 16, codeflow.RA); bad {
		w.kind = KindReturn
		ws = append(ws, w)
	}
	return ws, ""
}

// keepsValue reports whether the row says of column d, a register that calls may change, that it has the caller's
// value.
func keepsValue(row *dwarfcfa.Row, d int) bool {
	return row.Regs[d].Kind == dwarfcfa.RuleSameValue && hardware[d] != uint8(x86.RSP)
}

// copied reports whether the row describes another frame than the code's, which holds the return address and the
// registers, too. libffi's ffi_call copies the return address into a frame that it builds for the callee, and its rows
// describe that frame.
func copied(row *dwarfcfa.Row, s *codeflow.State, cfa word) bool {
	if cfa.isNum || cfa.v.Kind != codeflow.Base || cfa.v.Reg == 0 {
		return false
	}
	for d := range row.Regs {
		rule, v := &row.Regs[d], codeflow.Value{Kind: codeflow.Entry, Reg: codeflow.RA}
		if d < 16 {
			if v.Reg = hardware[d]; codeflow.CalleeSaved>>v.Reg&1 == 0 {
				continue
			}
		}
		switch rule.Kind {
		case dwarfcfa.RuleOffset:
			if place := cfa.plus(rule.Offset); !place.known() || s.Slot(place.v.Reg, place.v.Off) != v {
				return false
			}
		case dwarfcfa.RuleSameValue, dwarfcfa.RuleUnspecified:
			if d == 16 || s.Regs[v.Reg] != v {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// cfaOf returns the value of the row's CFA rule in the state. The reason is not empty if the value can't be compared. A
// value that is Unknown with an empty reason is a mismatch: the CFA is known elsewhere, and not where the row says.
func (c *function) cfaOf(pc uint64, row *dwarfcfa.Row, s *codeflow.State) (word, string) {
	switch row.CFA.Kind {
	case dwarfcfa.CFARegOffset:
		// Columns above 15 are the return address and vector registers, which the states do not have.
		if row.CFA.Reg > 15 {
			return word{}, ReasonExpression
		}
		h := hardware[row.CFA.Reg]
		w := word{v: s.Regs[h]}
		if w.v.Kind == codeflow.Base && w.v.Reg == 0 {
			return w.plus(row.CFA.Offset), ""
		}
		if _, _, ok := s.CFA(); ok {
			if w.v.Kind == codeflow.Base {
				w = w.plus(row.CFA.Offset)
			}
			return w, "" // the CFA is known, and this register is not at a known distance from it
		}
		// A register as the caller left it: only rsp and rbp are related to the frame by convention.
		if w.v.Kind == codeflow.Entry && !(row.CFA.Reg == 7 || row.CFA.Reg == 6) {
			return w, ""
		}
		return w, ReasonCFAUnknown
	case dwarfcfa.CFAExpr:
		e, err := c.rows.interp.Decoded(row.CFA.Expr)
		if err != nil {
			return word{}, ReasonExpression
		}
		w := evaluate(e, s, pc, false)
		if !w.known() && !(w.read && knowsCFA(s)) {
			return w, ReasonExpression
		}
		return w, "" // also if it reads a word of the stack other than the one with the CFA
	}
	return word{}, ReasonBadRow
}

// knowsCFA reports whether some register or stack word gives the CFA.
func knowsCFA(s *codeflow.State) bool {
	if _, _, ok := s.CFA(); ok {
		return true
	}
	_, _, _, ok := s.CFASlot()
	return ok
}

// register compares the rule of column d, hardware register h. It reports false as well where the rule can't be
// refuted.
func (c *function) register(pc uint64, row *dwarfcfa.Row, s *codeflow.State, d int, h uint8) (wrong, bool) {
	rule := &row.Regs[d]
	want := codeflow.Value{Kind: codeflow.Entry, Reg: h}
	switch rule.Kind {
	// No rule means the same value here: that is what GCC, clang and all unwinders take it for.
	case dwarfcfa.RuleSameValue, dwarfcfa.RuleUnspecified:
		if h == codeflow.RA || s.Regs[h] == want {
			return wrong{}, false
		}
		return wrong{kind: KindClobbered, reg: h, actual: whereText(s, h), claimed: "unchanged",
			stated: rule.Kind == dwarfcfa.RuleSameValue}, true
	case dwarfcfa.RuleOffset:
		if rule.Offset == int64(int32(rule.Offset)) && s.Slot(0, int32(rule.Offset)) == want {
			return wrong{}, false
		}
		return wrong{kind: KindSaved, reg: h, actual: whereText(s, h), claimed: "at " + cfaOffset(rule.Offset)}, true
	// A register of which nothing is known may hold the value: rows by hand name vector registers, or a register loaded
	// from a place that the analysis does not follow.
	case dwarfcfa.RuleRegister:
		if rule.Reg > 15 {
			return wrong{}, false
		}
		if v := s.Regs[hardware[rule.Reg]]; v == want || v.Kind == codeflow.Unknown {
			return wrong{}, false
		}
		return wrong{kind: KindSaved, reg: h, actual: whereText(s, h), claimed: fmt.Sprintf("in DWARF register %d",
			rule.Reg)}, true
	// An address that is not known is no mismatch: the expression may use what the code keeps elsewhere.
	case dwarfcfa.RuleExpression, dwarfcfa.RuleValExpression:
		e, err := c.rows.interp.Decoded(rule.Expr)
		if err != nil {
			return wrong{}, false
		}
		w := evaluate(e, s, pc, true)
		// An expression on a callee-saved register that still has its caller's value reads the caller's frame. GCC
		// leaves such rows behind the pop %rbp of functions that realigned their stack.
		if plus := registerPlus(c.rows.interp, rule.Expr); plus != nil && rule.Kind == dwarfcfa.RuleExpression &&
			codeflow.CalleeSaved>>hardware[plus.Reg]&1 != 0 && s.Regs[hardware[plus.Reg]].Kind == codeflow.Entry &&
			s.Saved(h).Kind != codeflow.Lost {
			return wrong{kind: KindSaved, reg: h, actual: whereText(s, h),
				claimed: "in the caller's frame, where this function saves nothing"}, true
		}
		if !w.known() || w.isNum {
			return wrong{}, false
		}
		v := w.v
		if rule.Kind == dwarfcfa.RuleExpression {
			if v.Kind != codeflow.Base {
				return wrong{}, false
			}
			v = s.Slot(v.Reg, v.Off)
		}
		// A word at a base other than the CFA may have been written where the two bases overlap.
		if v == want || v.Kind == codeflow.Unknown && w.v.Reg != 0 {
			return wrong{}, false
		}
		return wrong{kind: KindSaved, reg: h, actual: whereText(s, h), claimed: dwarfcfa.ExprText(e.Raw)}, true
	// A value of CFA+N can only be an address of this frame, and no register of the caller holds one but rsp.
	case dwarfcfa.RuleValOffset:
		return wrong{kind: KindSaved, reg: h, actual: whereText(s, h), claimed: "is " + cfaOffset(rule.Offset)}, true
	}
	return wrong{}, false // undefined: says nothing
}

// signed renders what is added to a register; nothing for 0.
func signed(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%+d", n)
}

// cfaOffset renders a place at n bytes from the CFA.
func cfaOffset(n int64) string { return "CFA" + signed(n) }

// cfaText renders the place of the CFA in a state, as findings print it.
func cfaText(s *codeflow.State) string {
	if h, off, ok := s.CFA(); ok {
		return x86.Reg(h).String() + signed(off)
	}
	if h, disp, off, ok := s.CFASlot(); ok {
		return "[" + x86.Reg(h).String() + signed(disp) + "]" + signed(off)
	}
	return "not known"
}

// cfaSays renders a row's CFA rule.
func (c *function) cfaSays(row *dwarfcfa.Row) string {
	if row.CFA.Kind == dwarfcfa.CFARegOffset {
		return abi.RegName(int(row.CFA.Reg)) + signed(row.CFA.Offset)
	}
	raw, _ := c.rows.interp.Expr(row.CFA.Expr)
	return dwarfcfa.ExprText(raw)
}

// regName returns the name of a register by the processor's number, or of the return address.
func regName(h uint8) string {
	if h == codeflow.RA {
		return "return address"
	}
	return x86.Reg(h).String()
}

// whereText renders the place of a register's caller value in a state.
func whereText(s *codeflow.State, h uint8) string {
	switch w := s.Saved(h); w.Kind {
	case codeflow.Same:
		return "unchanged"
	case codeflow.AtCFA:
		return "at " + cfaOffset(w.Off)
	case codeflow.AtReg:
		return "at " + x86.Reg(w.Reg).String() + signed(w.Off)
	case codeflow.InReg:
		return "in " + x86.Reg(w.Reg).String()
	}
	return "lost"
}

// rowText renders a row's CFA and saved registers in one line. The return address at CFA-8 is left out, since nearly
// every row has it there.
func (c *function) rowText(row *dwarfcfa.Row) string {
	text := "CFA " + c.cfaSays(row)
	for d := range 17 {
		rule := &row.Regs[d]
		if d == 16 && rule.Kind == dwarfcfa.RuleOffset && rule.Offset == -8 {
			continue
		}
		name := "ra"
		if d < 16 {
			name = regName(hardware[d])
		}
		switch rule.Kind {
		case dwarfcfa.RuleOffset:
			text += " " + name + "@" + cfaOffset(rule.Offset)
		case dwarfcfa.RuleExpression, dwarfcfa.RuleValExpression:
			text += " " + name + "=expr"
		case dwarfcfa.RuleRegister:
			text += fmt.Sprintf(" %s=r%d", name, rule.Reg)
		case dwarfcfa.RuleUndefined:
			if d == 16 {
				text += " end"
			}
		}
	}
	return text
}

// stateText renders a state in the form of rowText. It lists the callee-saved registers (psABI Figure 3.4), as a row
// does.
func stateText(s *codeflow.State) string {
	text := "CFA " + cfaText(s)
	for _, h := range []uint8{3, 5, 12, 13, 14, 15} {
		if where := whereText(s, h); where != "unchanged" {
			text += " " + regName(h) + strings.NewReplacer("at ", "@", "in ", "=", "lost", " lost").Replace(where)
		}
	}
	return text
}
