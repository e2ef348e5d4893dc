package dwarfcfa

import (
	"math"

	"github.com/ehasm/ehasm/abi"
)

// Bounds of the interpreter, which keep memory within some multiple of a section's size: each DW_CFA_remember_state, of
// one byte, costs a state of a few hundred. No program of a compiler comes near them; an FDE beyond one is bad.
const (
	MaxRememberDepth = 256     // nested DW_CFA_remember_state
	MaxRowsPerFDE    = 1 << 20 // rows of one FDE
	MaxRows          = 1 << 18 // distinct rows of an object; a large one has 1,100
	MaxExprs         = 1 << 17 // distinct expressions of an object; glibc has 19
	maxExprPoolOps   = 1 << 21 // operations of all of them
	maxInitialStates = 1 << 16 // states that CIEs remember and do not restore
)

// RawRow is a row of an FDE as its program gives it, before normalising: rules
// the program does not set are RuleUnspecified, register numbers above 16 of
// CFA.Reg and RegRule.Reg are kept (up to 65535). Where the CIE's return
// address column is above 16, its rule is Row.Regs[16].
type RawRow struct {
	Start, End Addr
	Row        Row
}

// Interp executes the programs of CIEs and FDEs (DWARF 5 §6.4.3). It may be
// used again for further FDEs, of any section; its expression pool grows as it
// meets new ones. It is not safe for concurrent use.
type Interp struct {
	exprs    exprPool
	initials map[*CIE]*initial
	last     *initial // the most recently used of initials
	lastCIE  *CIE
	held     int // states in the stacks of initials

	state state
	stack []state // remembered by DW_CFA_remember_state
	// settled is how many states of stack have no fresh rules.
	settled int
}

// state is what the program of an FDE works on.
type state struct {
	row Row
	// The offset of the last DW_CFA_def_cfa*, which a def_cfa_register goes back to after an expression, as in libgcc
	// and readelf.
	cfaOffset int64
	// fresh has the bit of each register whose rule was set since the current
	// row began; above, of each whose RuleOffset was set in the FDE, in a row
	// in which its slot lay at or above rsp (see tableBuilder.popped).
	fresh uint32
	above uint32
}

// initial is the state after a CIE's initial instructions.
type initial struct {
	state state
	stack []state // states remembered and not restored
	err   error
}

// NewInterp returns an interpreter with an empty expression pool.
func NewInterp() *Interp {
	return &Interp{initials: make(map[*CIE]*initial), exprs: newExprPool()}
}

// Expr returns the bytes of an expression of a raw row. err says why it cannot
// be compiled; it is nil if it can.
func (in *Interp) Expr(id ExprID) (raw []byte, err error) {
	e := &in.exprs.entries[id]
	return e.expr.Raw, e.err
}

// Decoded returns an expression of a raw row, or the reason why it cannot be
// compiled.
func (in *Interp) Decoded(id ExprID) (Expr, error) {
	e := &in.exprs.entries[id]
	return e.expr, e.err
}

// rowSink receives the rows of an FDE in ascending order. st is valid only during the call.
type rowSink interface {
	row(start, end Addr, st *state)
}

// Rows returns the rows of an FDE: ascending, contiguous, without empty ones,
// covering [fde.Start, fde.End). An error is a *DecodeError.
func (in *Interp) Rows(fde *FDE) ([]RawRow, error) { return in.AppendRows(nil, fde) }

// AppendRows appends what Rows returns to list.
func (in *Interp) AppendRows(list []RawRow, fde *FDE) ([]RawRow, error) {
	rows := rawRows(list)
	if err := in.run(fde, &rows); err != nil {
		return nil, fde.CIE.section.errorOf(fde, err)
	}
	return rows, nil
}

// rawRows is a sink that keeps the rows.
type rawRows []RawRow

func (r *rawRows) row(start, end Addr, st *state) {
	*r = append(*r, RawRow{start, end, st.row})
}

// initialRow returns the row that a CIE's initial instructions make.
func (in *Interp) initialRow(cie *CIE) (Row, error) {
	ini := in.initial(cie)
	if ini.err != nil {
		return Row{}, cie.section.errorAt(int(cie.Offset), ini.err)
	}
	return ini.state.row, nil
}

// initial returns the state after the initial instructions of a CIE, which are run once for each CIE. in.state and
// in.stack are those after the CIE when it returns.
func (in *Interp) initial(cie *CIE) *initial {
	if cie == in.lastCIE {
		return in.last
	}
	ini, ok := in.initials[cie]
	if !ok {
		ini = new(initial)
		in.state, in.stack, in.settled = state{}, in.stack[:0], 0
		if cie.Signal {
			in.state.row.Flags = RowSignal
		}
		ini.err = in.runCIE(cie)
		ini.state = in.state
		if in.held += len(in.stack); in.held > maxInitialStates {
			in.held -= len(in.stack)
			in.stack = in.stack[:0]
			ini.err = cause(errBound, "CIEs that remember more than %d states", maxInitialStates)
		}
		ini.stack = append([]state(nil), in.stack...)
		// Rules of the CIE are not set "in the FDE".
		ini.state.fresh = 0
		for i := range ini.stack {
			ini.stack[i].fresh = 0
		}
		in.initials[cie] = ini
	}
	in.lastCIE, in.last = cie, ini
	return ini
}

// runCIE runs the initial instructions of a CIE. They may not move the location.
func (in *Interp) runCIE(cie *CIE) error {
	c := cie.section.cursor(cie.instPos, cie.instPos+len(cie.Instructions))
	var i Inst
	for !c.done() {
		i.read(&c, cie, 0)
		if c.err != nil {
			return c.err
		}
		switch i.Op {
		case CFAAdvanceLoc, CFAAdvanceLoc1, CFAAdvanceLoc2, CFAAdvanceLoc4, CFAMIPSAdvanceLoc8, CFASetLoc:
			return cause(ErrBadEncoding, "%v in the initial instructions of the CIE at +%#x", i.Op, cie.Offset)
		case CFARestore, CFARestoreExtended:
			// There is no initial rule to go back to yet.
			in.state.setRule(cie, i.Reg, RegRule{})
		default:
			if err := in.exec(&i, cie, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// run executes an FDE's program and hands its rows to sink. Rows before an
// error have been handed over when it returns.
func (in *Interp) run(fde *FDE, sink rowSink) error {
	cie := fde.CIE
	ini := in.initial(cie)
	if ini.err != nil {
		return ini.err
	}
	// An FDE begins with what its CIE's instructions have left, remembered states included, as in
	// libgcc.
	in.state = ini.state
	in.stack = append(in.stack[:0], ini.stack...)
	in.settled = len(in.stack)

	c := cie.section.cursor(fde.instPos, fde.instPos+len(fde.Instructions))
	loc := fde.Start
	rows := 0
	var i Inst
	for !c.done() {
		i.read(&c, cie, fde.Start)
		if c.err != nil {
			return c.err
		}
		next := loc
		switch i.Op {
		case CFAAdvanceLoc, CFAAdvanceLoc1, CFAAdvanceLoc2, CFAAdvanceLoc4, CFAMIPSAdvanceLoc8:
			if next += Addr(i.Delta); next < loc {
				return cause(ErrBadEncoding, "%v by %#x from %#x overflows 64 bits", i.Op, i.Delta, uint64(loc))
			}
		case CFASetLoc:
			if next = i.Loc; next < loc {
				return cause(ErrBadEncoding, "%v goes back from %#x to %#x", i.Op, uint64(loc), uint64(next))
			}
		default:
			if err := in.exec(&i, cie, ini); err != nil {
				return err
			}
			continue
		}
		if next == loc { // an advance by 0 ends no row
			continue
		}
		in.settle()
		if loc < fde.End { // rows behind the FDE's end are cut off
			if rows++; rows > MaxRowsPerFDE {
				return cause(ErrUnsupported, "more than %d rows", MaxRowsPerFDE)
			}
			sink.row(loc, min(next, fde.End), &in.state)
		}
		loc = next
	}
	if loc < fde.End {
		in.settle()
		sink.row(loc, fde.End, &in.state)
	}
	return nil
}

// settle ends the current row: the places of the slots of its fresh rules are
// now known, also for the states remembered in it.
func (in *Interp) settle() {
	cfa := &in.state.row.CFA
	in.settleState(&in.state, cfa)
	for ; in.settled < len(in.stack); in.settled++ {
		in.settleState(&in.stack[in.settled], cfa)
	}
}

// settleState decides for each register whose rule was set in this FDE whether its place lies at or above rsp: a
// register saved there has not been popped.
func (in *Interp) settleState(st *state, cfa *CFARule) {
	if st.fresh == 0 {
		return
	}
	found := in.exprs.cfa(*cfa)
	onRSP := found.Kind == CFARegOffset && found.Reg == abi.RSP
	for r := range st.row.Regs {
		if st.fresh&(1<<r) == 0 {
			continue
		}
		st.above &^= 1 << r
		if rule := &st.row.Regs[r]; rule.Kind == RuleOffset && (!onRSP || found.Offset+rule.Offset >= 0) {
			st.above |= 1 << r
		}
	}
	st.fresh = 0
}

// column maps a register number of a program to the column of a row; ok is false for registers that rows do not have:
// vector registers and others (17 and up, psABI Figure 3.36).
func column(cie *CIE, reg uint64) (col int, ok bool) {
	if cie.RA >= NumRegs {
		if reg == cie.RA {
			return abi.RIP, true
		}
		return int(reg), reg < abi.RIP
	}
	return int(reg), reg < NumRegs
}

// setRule sets the rule of a register; columns that rows do not have are ignored.
func (st *state) setRule(cie *CIE, reg uint64, rule RegRule) {
	if col, ok := column(cie, reg); ok {
		st.row.Regs[col] = rule
		st.fresh |= 1 << col
	}
}

// clampReg keeps a register number in 16 bits; numbers that do not fit become
// one that no row has.
func clampReg(reg uint64) uint16 { return uint16(min(reg, math.MaxUint16)) }

// setCFA makes the CFA a register plus an offset.
func (st *state) setCFA(reg uint16, offset int64) {
	st.cfaOffset = offset
	st.row.CFA = CFARule{Kind: CFARegOffset, Reg: reg, Offset: offset}
}

// exec executes an instruction that does not move the location. ini is nil within a CIE.
func (in *Interp) exec(i *Inst, cie *CIE, ini *initial) error {
	st := &in.state
	switch i.Op {
	case CFADefCFAOffset, CFADefCFAOffsetSF:
		st.cfaOffset = i.Offset
		if st.row.CFA.Kind == CFARegOffset { // after an expression the offset only waits for a register
			st.row.CFA.Offset = i.Offset
		}
	case CFADefCFA, CFADefCFASF:
		st.setCFA(clampReg(i.Reg), i.Offset)
	case CFADefCFARegister:
		st.setCFA(clampReg(i.Reg), st.cfaOffset)
	case CFADefCFAExpression:
		id, err := in.exprs.intern(i.Block, false, cie.section.moved)
		if err != nil {
			return err
		}
		st.row.CFA = CFARule{Kind: CFAExpr, Expr: id}
	case CFAOffset, CFAOffsetExtended, CFAOffsetExtendedSF, CFAGNUNegativeOffsetExtended:
		st.setRule(cie, i.Reg, RegRule{Kind: RuleOffset, Offset: i.Offset})
	case CFAValOffset, CFAValOffsetSF:
		st.setRule(cie, i.Reg, RegRule{Kind: RuleValOffset, Offset: i.Offset})
	case CFAExpression, CFAValExpression:
		id, err := in.exprs.intern(i.Block, true, cie.section.moved)
		if err != nil {
			return err
		}
		kind := RuleExpression
		if i.Op == CFAValExpression {
			kind = RuleValExpression
		}
		st.setRule(cie, i.Reg, RegRule{Kind: kind, Expr: id})
	case CFARegister:
		st.setRule(cie, i.Reg, RegRule{Kind: RuleRegister, Reg: clampReg(i.Source)})
	case CFASameValue:
		st.setRule(cie, i.Reg, RegRule{Kind: RuleSameValue})
	case CFAUndefinedReg:
		st.setRule(cie, i.Reg, RegRule{Kind: RuleUndefined})
	case CFARestore, CFARestoreExtended:
		if col, ok := column(cie, i.Reg); ok {
			st.row.Regs[col] = ini.state.row.Regs[col]
			st.fresh &^= 1 << col
			st.above &^= 1 << col
		}
	case CFARememberState:
		if len(in.stack) >= MaxRememberDepth {
			return cause(ErrUnsupported, "%v nested more than %d deep", i.Op, MaxRememberDepth)
		}
		in.stack = append(in.stack, *st)
	case CFARestoreState:
		if len(in.stack) == 0 {
			return cause(ErrBadEncoding, "%v with an empty stack", i.Op)
		}
		*st = in.stack[len(in.stack)-1]
		in.stack = in.stack[:len(in.stack)-1]
		in.settled = min(in.settled, len(in.stack)) // remembered states below keep their rules settled
	case CFANop, CFAGNUArgsSize:
	default:
		return cause(ErrUnsupported, "%v", i.Op)
	}
	return nil
}
