package dwarfcfa

import "github.com/ehasm/ehasm/abi"

// Addr is an address of the object as it was linked: a run-time address minus
// the object's load bias.
type Addr uint64

// NumRegs is the number of columns a row keeps: DWARF registers 0 to 15 and
// the return address (x86-64 psABI figure 3.36).
const NumRegs = abi.NumRegs

// ExprID names an expression of a Table's pool; 0 is none.
type ExprID uint32

// CFAKind says how a row gives the canonical frame address.
type CFAKind uint16

const (
	CFAUndefined CFAKind = iota // the program never defined it
	CFARegOffset                // Reg + Offset
	CFAExpr                     // value of Expr
)

// CFARule is the CFA column of a row (DWARF 5 §6.4.1). It is comparable, and
// has no padding.
type CFARule struct {
	Offset int64 // CFARegOffset: bytes
	Expr   ExprID
	Reg    uint16 // CFARegOffset: DWARF number, below NumRegs
	Kind   CFAKind
}

// RuleKind is the kind of a register rule (DWARF 5 §6.4.1).
type RuleKind uint16

const (
	RuleUnspecified   RuleKind = iota // the program has no rule; not in a normalised row
	RuleUndefined                     // the caller's value is lost
	RuleSameValue                     // the caller's value is this frame's
	RuleOffset                        // saved at CFA + Offset
	RuleValOffset                     // is CFA + Offset
	RuleRegister                      // is the value of register Reg in this frame
	RuleExpression                    // saved at the address that Expr gives
	RuleValExpression                 // is the value that Expr gives
)

// RegRule is one register column of a row. Fields that Kind does not use are
// zero, so that == compares meaning. It has no padding.
type RegRule struct {
	Offset int64 // bytes, already multiplied by the data alignment factor
	Expr   ExprID
	Reg    uint16
	Kind   RuleKind
}

// RowFlags are properties of a row that no column holds.
type RowFlags uint64

const (
	// RowSignal marks a row of a signal frame (CIE augmentation S): the
	// caller's pc was executing and is looked up unchanged.
	RowSignal RowFlags = 1 << iota
	// RowNotCompiled marks the one normalised row that stands for all rows
	// holding something that cannot be compiled; a step answers
	// abi.StatusNotCompiled. All other fields are zero.
	RowNotCompiled
)

// Row is one row of the interpreted table without its address range. Rows of
// one Table (or of one Interp) may be compared with ==.
type Row struct {
	CFA   CFARule
	Regs  [NumRegs]RegRule
	Flags RowFlags
}

// Range says that Row holds for the pcs in [Start, End).
type Range struct {
	Start, End Addr
	Row        uint32 // index into Table.Rows
}

// Table is the normalised unwind table of a whole object: it maps pcs to rows.
// In its rows
//
//   - no column is RuleUnspecified: callee-saved registers without a rule are
//     RuleSameValue, others RuleUndefined, rsp is RuleValOffset 0;
//   - a row whose return address is undefined is the canonical end-of-stack
//     row: Regs[16] RuleUndefined, everything else zero;
//   - a row that cannot be compiled is the canonical RowNotCompiled row.
//
// A pc in no range has no unwind information.
//
// Its methods do not change a Table and are safe for concurrent use.
type Table struct {
	Ranges []Range // ascending, disjoint, not empty, neighbours that touch differ in Row
	Rows   []Row   // distinct, in order of first use by Ranges
	Exprs  []Expr  // pool; an ExprID is its index, Exprs[0] is unused
}

// Low returns the lowest pc covered, High one past the highest; both are 0 in
// an empty table.
func (t *Table) Low() Addr {
	if len(t.Ranges) == 0 {
		return 0
	}
	return t.Ranges[0].Start
}

// High returns one past the highest pc covered.
func (t *Table) High() Addr {
	if len(t.Ranges) == 0 {
		return 0
	}
	return t.Ranges[len(t.Ranges)-1].End
}
