// Package convert writes unwind tables in other formats.
package convert

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/sframe"
)

// Report says how much of a table another format can express. Keys of Left are the texts of errors.
type Report struct {
	Functions, Rows int
	Bytes           uint64 // of code for which it gives the same answer as the table
	// Left counts the bytes of code that the table covers and the other format does not, by reason.
	Left map[string]uint64
}

// maxSFrame bounds the bytes of code that a row covers: sizes of functions have 32 bits.
const maxSFrame = 1 << 31

// ToSFrame converts a table to the entries of an SFrame section of a version. Functions begin at starts, which ascend,
// and after code whose rows the format cannot express, for which the section has nothing. The result must be verified
// (VerifySFrame), as package inspect does.
func ToSFrame(t *dwarfcfa.Table, version uint8, starts []dwarfcfa.Addr) ([]sframe.Entry, Report) {
	rep := Report{Left: make(map[string]uint64)}
	var entries []sframe.Entry
	var end dwarfcfa.Addr        // of the last entry
	next := 0                    // the first of starts that is above
	for _, r := range t.Ranges { // end is set to 0 where the next row cannot continue it
		row := &t.Rows[r.Row]
		signal := row.Flags&dwarfcfa.RowSignal != 0
		// Linkage tables make functions whose rows repeat.
		if e, ok := repeated(t, version, row, r); ok {
			entries, end = append(entries, e), 0
			rep.Bytes += uint64(r.End - r.Start)
			continue
		}
		said, err := sframeRow(t, row)
		if err == nil {
			err = sframe.CanSay(version, &said, signal)
		}
		if err != nil {
			// What cannot be said leaves a hole in the section.
			rep.Left[err.Error()] += uint64(r.End - r.Start)
			continue
		}
		rep.Bytes += uint64(r.End - r.Start)
		// A range goes over several functions if some begin inside it.
		for pc := r.Start; pc < r.End; {
			for next < len(starts) && starts[next] <= pc {
				next++
			}
			to := r.End
			if next < len(starts) {
				to = min(to, starts[next])
			}
			n := len(entries)
			// A function begins at a known start, behind a hole, where the kind of frame changes,
			// and where an entry is full.
			if n == 0 || end != pc || next > 0 && starts[next-1] == pc || entries[n-1].Signal != signal ||
				len(entries[n-1].Rows) == math.MaxUint16 || pc-dwarfcfa.Addr(entries[n-1].Start) > maxSFrame {
				entries = append(entries, sframe.Entry{Start: uint64(pc), Signal: signal})
				n++
			}
			to = min(to, pc+maxSFrame)
			e := &entries[n-1]
			// Rows count from their function's start.
			said.Start = uint32(pc - dwarfcfa.Addr(e.Start))
			e.Rows = append(e.Rows, said)
			e.Size = uint32(to - dwarfcfa.Addr(e.Start))
			pc, end = to, to
		}
	}
	rep.Functions = len(entries)
	for i := range entries {
		rep.Rows += len(entries[i].Rows)
	}
	return entries, rep
}

// sframeRow converts a row to SFrame. The error says why that is not possible. SFrame has no rules for rbx and r12 to
// r15: a walk by it loses them, which costs only frames whose CFA is on one.
func sframeRow(t *dwarfcfa.Table, row *dwarfcfa.Row) (r sframe.Row, err error) {
	switch {
	case row.Flags&dwarfcfa.RowNotCompiled != 0:
		return r, fmt.Errorf("%w: a rule that is not compiled", sframe.ErrCannotSay)
	case row.Regs[abi.RIP].Kind == dwarfcfa.RuleUndefined:
		// CanSay decides whether the version has the row.
		return sframe.Row{Outermost: true}, nil
	}
	if r.CFA, err = cfaToSFrame(t, row.CFA); err != nil {
		return r, err
	}
	if rsp := row.Regs[abi.RSP]; rsp != (dwarfcfa.RegRule{Kind: dwarfcfa.RuleValOffset}) {
		// Signal frames have the caller's rsp and the CFA in one word.
		word, err := ruleToSFrame(t, rsp)
		if err != nil || word != r.CFA || !word.Deref {
			return r, fmt.Errorf("%w: a caller's rsp that is not the CFA", sframe.ErrCannotSay)
		}
	}
	if r.RA, err = ruleToSFrame(t, row.Regs[abi.RIP]); err != nil {
		return r, err
	}
	r.FP, err = ruleToSFrame(t, row.Regs[abi.RBP])
	return r, err
}

// cfaToSFrame returns a CFA as SFrame has it: a register plus an offset, or the word there.
func cfaToSFrame(t *dwarfcfa.Table, cfa dwarfcfa.CFARule) (sframe.Rule, error) {
	switch {
	case cfa.Kind == dwarfcfa.CFARegOffset && fits(cfa.Offset):
		return sframe.Rule{Base: sframe.OnReg, Reg: uint8(cfa.Reg), Offset: int32(cfa.Offset)}, nil
	case cfa.Kind == dwarfcfa.CFAExpr:
		ops := t.Exprs[cfa.Expr].Ops
		// The word at a register plus an offset is the one expression that the format knows.
		if len(ops) == 2 && ops[0].Code == dwarfcfa.OpReg && ops[1].Code == dwarfcfa.OpDeref && ops[1].Arg == 8 &&
			fits(ops[0].Arg) {
			return sframe.Rule{Base: sframe.OnReg, Reg: uint8(ops[0].Reg), Offset: int32(ops[0].Arg), Deref: true}, nil
		}
		return sframe.Rule{}, fmt.Errorf("%w: a CFA by an expression", sframe.ErrCannotSay)
	}
	return sframe.Rule{}, fmt.Errorf("%w: an offset of more than 32 bits", sframe.ErrCannotSay)
}

// ruleToSFrame returns a register's rule as SFrame has it, or an error that says why the format has no such rule.
func ruleToSFrame(t *dwarfcfa.Table, rule dwarfcfa.RegRule) (sframe.Rule, error) {
	switch rule.Kind {
	case dwarfcfa.RuleSameValue:
		return sframe.Rule{}, nil
	case dwarfcfa.RuleOffset, dwarfcfa.RuleValOffset:
		if fits(rule.Offset) {
			return sframe.Rule{Base: sframe.OnCFA, Offset: int32(rule.Offset), Deref: rule.Kind == dwarfcfa.RuleOffset}, nil
		}
		return sframe.Rule{}, fmt.Errorf("%w: an offset of more than 32 bits", sframe.ErrCannotSay)
	case dwarfcfa.RuleRegister:
		return sframe.Rule{Base: sframe.OnReg, Reg: uint8(rule.Reg)}, nil
	case dwarfcfa.RuleExpression, dwarfcfa.RuleValExpression:
		// Likewise for registers: a register plus an offset, or the word there.
		if ops := t.Exprs[rule.Expr].Ops; len(ops) == 1 && ops[0].Code == dwarfcfa.OpReg && fits(ops[0].Arg) {
			return sframe.Rule{Base: sframe.OnReg, Reg: uint8(ops[0].Reg), Offset: int32(ops[0].Arg),
				Deref: rule.Kind == dwarfcfa.RuleExpression}, nil
		}
		return sframe.Rule{}, fmt.Errorf("%w: a register by an expression", sframe.ErrCannotSay)
	case dwarfcfa.RuleUndefined: // of rbp: sframeRow asks no other register that may be lost
		return sframe.Rule{}, fmt.Errorf("%w: a lost rbp", sframe.ErrCannotSay)
	}
	return sframe.Rule{}, fmt.Errorf("%w: a rule of kind %d", sframe.ErrCannotSay, rule.Kind)
}

// fits reports whether an offset has at most 32 bits.
func fits(offset int64) bool { return offset == int64(int32(offset)) }

// repeated returns an entry for a procedure linkage table, which consists of equal blocks: the
// CFA is rsp+a, and 1<<s more from the t-th byte of a block on. Linkers write that as
// rsp+a + ((rip & mask) >= t) << s. ok is false for other rows.
func repeated(t *dwarfcfa.Table, version uint8, row *dwarfcfa.Row, r dwarfcfa.Range) (e sframe.Entry, ok bool) {
	if row.CFA.Kind != dwarfcfa.CFAExpr {
		return e, false
	}
	ops := t.Exprs[row.CFA.Expr].Ops
	codes := make([]dwarfcfa.ExprCode, len(ops))
	for i := range ops {
		codes[i] = ops[i].Code
	}
	// The operations of the linker's expression, no others.
	if !slices.Equal(codes, []dwarfcfa.ExprCode{dwarfcfa.OpReg, dwarfcfa.OpReg, dwarfcfa.OpConst, dwarfcfa.OpAnd,
		dwarfcfa.OpConst, dwarfcfa.OpGe, dwarfcfa.OpConst, dwarfcfa.OpShl, dwarfcfa.OpPlus}) {
		return e, false
	}
	// The operands of rsp+a + ((rip & mask) >= from) << shift.
	base, mask, from, shift := ops[0], ops[2].Arg, ops[4].Arg, ops[6].Arg
	switch {
	// rsp plus a constant, and rip as it is.
	case base.Reg != abi.RSP || !fits(base.Arg) || ops[1].Reg != abi.RIP || ops[1].Arg != 0:
		return e, false
	// mask is a block's size less 1; the step is inside the block.
	case mask < 1 || mask > math.MaxUint8-1 || bits.OnesCount64(uint64(mask)+1) != 1 || from < 1 || from > mask ||
		shift < 0 || shift > 8:
		return e, false
	// Blocks begin where the table does.
	case uint64(r.Start)&uint64(mask) != 0 || r.End-r.Start > math.MaxUint32:
		return e, false
	}
	// The row with a plain CFA, before and from the step on.
	plain := *row
	plain.CFA = dwarfcfa.CFARule{Kind: dwarfcfa.CFARegOffset, Reg: abi.RSP, Offset: base.Arg}
	first, err := sframeRow(t, &plain)
	second := first
	second.Start, second.CFA.Offset = uint32(from), int32(base.Arg+1<<shift)
	e = sframe.Entry{
		Start: uint64(r.Start), Size: uint32(r.End - r.Start), Repeat: uint8(mask + 1),
		Signal: row.Flags&dwarfcfa.RowSignal != 0, Rows: []sframe.Row{first, second},
	}
	// Version 1 has only blocks of 16 bytes.
	if err != nil || sframe.CanSay(version, &first, e.Signal) != nil || version == 1 && e.Repeat != 16 {
		return e, false
	}
	return e, true
}

// VerifySFrame compares a section that ToSFrame's entries were written to with the table, at every address. Its error
// names the first at which the section does not say what the table does, apart from what the version cannot express.
func VerifySFrame(t *dwarfcfa.Table, s *sframe.Section) error {
	found := uint64(0)
	for _, r := range t.Ranges {
		row := &t.Rows[r.Row]
		block, repeats := repeated(t, s.Version, row, r)
		want, err := sframeRow(t, row)
		said := repeats || err == nil && sframe.CanSay(s.Version, &want, row.Flags&dwarfcfa.RowSignal != 0) == nil
		for pc := r.Start; pc < r.End; pc++ {
			got, ok, err := s.Find(uint64(pc))
			if err != nil {
				return fmt.Errorf("at %#x: %w", uint64(pc), err)
			}
			if repeats {
				want = block.Rows[0]
				if next := &block.Rows[1]; uint32(pc-r.Start)%uint32(block.Repeat) >= next.Start {
					want = *next
				}
			}
			got.Start, want.Start = 0, 0 // of the function
			if ok != said || ok && got != want {
				return fmt.Errorf("at %#x: the section has %+v (%t), the table %+v (%t)", uint64(pc), got, ok, want, said)
			}
			if ok {
				found++
			}
		}
	}
	for i := range s.Len() {
		f, err := s.Function(i)
		if err != nil {
			return err
		}
		found -= uint64(f.Size)
	}
	if found != 0 {
		return fmt.Errorf("the section has rows for %d bytes of code that the table has none for", -found)
	}
	return nil
}
