package dwarfcfa

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"

	"github.com/ehasm/ehasm/abi"
)

// This file brings rows to one form, so that equal meanings are equal values: a few hundred distinct rows of an
// object's many thousand are left, and each gets code once.

// tableBuilder turns the raw rows of FDEs into ranges of normalised rows, each
// distinct row kept once.
type tableBuilder struct {
	s      tableSource // the section that spans come from
	rep    *Report     // counts what is left out
	in     *Interp
	ranges []Range // rows of the spans so far, ascending

	rows  []*Row            // distinct normalised rows
	seed  maphash.Seed      // of the keys of index
	index map[uint64]uint32 // rows by hash; of two with one hash, which is unlikely, the first may be kept twice
	// normal maps a raw row to its normalised one. Its Flags say beside
	// RowSignal which registers were popped and which column is the return
	// address, on which normalising depends too.
	normal  map[Row]normalRow
	meaning map[string]ExprID // encoded operations to the first expression with them
	canon   map[ExprID]ExprID // an expression to the first of the same meaning
	key     []byte            // scratch

	span *span // being interpreted
	ra   int   // its return address column
	err  error // why it must be left out, besides errors in its program
}

// maxKnown bounds tableBuilder.normal, which is forgotten when it is full: objects of compilers have a few thousand raw
// rows.
const maxKnown = 1 << 17

// normalRow is the outcome of normalising a raw row.
type normalRow struct {
	row    uint32 // index of the row
	reason error  // why it is the RowNotCompiled row
}

// Fields of Row.Flags in keys of tableBuilder.normal. Both lie above RowSignal and RowNotCompiled.
const (
	keyPopped = 8
	keyRA     = 32
)

// newTableBuilder returns a builder without rows. It counts in rep.
func newTableBuilder(s tableSource, rep *Report) *tableBuilder {
	return &tableBuilder{
		s: s, rep: rep, in: NewInterp(),
		seed: maphash.MakeSeed(), index: make(map[uint64]uint32), normal: make(map[Row]normalRow),
		meaning: make(map[string]ExprID), canon: make(map[ExprID]ExprID),
	}
}

// interpret appends the ranges of spans, which are ascending and disjoint.
func (b *tableBuilder) interpret(spans []span) {
	b.ranges = make([]Range, 0, rangesOf(spans))
	for i := range spans {
		b.interpretOne(&spans[i])
	}
}

// interpretOne appends the ranges of a span: all of it, or none if it returns why the FDE is left out. An FDE counts as
// a whole or not at all: rows up to an error could hide that later ones are missing.
func (b *tableBuilder) interpretOne(sp *span) error {
	// If the span is lost, its rows and what they counted are taken back.
	mark, rows, notCompiled, listed := len(b.ranges), b.rep.Rows.Ranges, b.rep.Rows.NotCompiled, len(b.rep.NotCompiled)
	b.span, b.ra = sp, abi.RIP
	if ra := b.s.returnColumn(sp); ra < NumRegs {
		b.ra = ra
	}
	err := b.s.interpret(sp, b.in, b)
	if err == nil {
		err = b.err
	}
	b.err = nil
	if err != nil {
		b.ranges, b.rep.Rows.Ranges = b.ranges[:mark], rows
		b.rep.Rows.NotCompiled, b.rep.NotCompiled = notCompiled, b.rep.NotCompiled[:listed]
		b.rep.lose(b.s.errorOf(sp, err))
	}
	return err
}

// rangesOf guesses how many rows spans have: seldom less than needed.
func rangesOf(spans []span) int {
	const perRow = 4 // bytes of instructions: an advance and a new CFA or a rule
	n := len(spans)
	for i := range spans {
		n += spans[i].size / perRow
	}
	return n
}

// row takes a raw row of the current span: a rowSink. A row like the one before it extends its
// range.
func (b *tableBuilder) row(start, end Addr, st *state) {
	b.rep.Rows.Ranges++
	flags := st.row.Flags
	st.row.Flags = flags | RowFlags(b.popped(st))<<keyPopped | RowFlags(b.ra)<<keyRA
	n, ok := b.normal[st.row]
	if !ok {
		n = b.normalise(st, flags)
		if len(b.normal) >= maxKnown {
			clear(b.normal)
		}
		if b.err == nil {
			b.normal[st.row] = n
		}
	}
	st.row.Flags = flags
	if n.reason != nil {
		b.rep.Rows.NotCompiled++
		if len(b.rep.NotCompiled) < maxListed {
			b.rep.NotCompiled = append(b.rep.NotCompiled, NotCompiled{b.span.offset, start, end, n.reason})
		}
	}
	if last := len(b.ranges) - 1; last >= 0 && b.ranges[last].Row == n.row && b.ranges[last].End == start &&
		start > b.span.start {
		b.ranges[last].End = end
		return
	}
	b.ranges = append(b.ranges, Range{start, end, n.row})
}

// popped returns the registers whose save slot lies below rsp in this row and
// did not when the rule was set: an epilogue has popped them, and compilers
// keep the rule. A slot that was below rsp from the start is a save in the red
// zone. The return address is not among them: popping it is the return.
func (b *tableBuilder) popped(st *state) (mask uint32) {
	above := st.above &^ (1<<abi.RIP | 1<<b.ra)
	if above == 0 {
		return 0
	}
	cfa := b.in.exprs.cfa(st.row.CFA)
	if cfa.Kind != CFARegOffset || cfa.Reg != abi.RSP {
		return 0
	}
	for m := above; m != 0; m &= m - 1 {
		r := bits.TrailingZeros32(m)
		if cfa.Offset+st.row.Regs[r].Offset < 0 {
			mask |= 1 << r
		}
	}
	return mask
}

// normalise gives the raw row of st the form that Table documents. Its Flags are those of a key of normal; flags are its
// own. A return address without a rule ends the stack, as one that is undefined (RATIONALE.md, "Decisions").
func (b *tableBuilder) normalise(st *state, flags RowFlags) normalRow {
	row := st.row
	row.Flags = flags
	// Column 16 takes the return address; a CIE may keep it in another one.
	row.Regs[abi.RIP] = row.Regs[b.ra]
	if kind := row.Regs[abi.RIP].Kind; kind == RuleUnspecified || kind == RuleUndefined {
		return normalRow{row: b.intern(endOfStackRow())}
	}
	popped := uint32(st.row.Flags >> keyPopped & RowFlags(abi.AllRegs))
	if popped != 0 {
		b.rep.Rows.PoppedRules++
	}
	for r := range row.Regs {
		rule := &row.Regs[r]
		switch {
		case popped&(1<<r) != 0:
			*rule = RegRule{Kind: RuleSameValue}
		case rule.Kind == RuleUnspecified:
			*rule = defaultRule(r)
		}
	}
	if err := b.resolve(&row); err != nil {
		return normalRow{row: b.intern(Row{Flags: RowNotCompiled}), reason: err}
	}
	return normalRow{row: b.intern(row)}
}

// endOfStackRow returns the row of an outermost frame.
func endOfStackRow() Row {
	var row Row
	row.Regs[abi.RIP].Kind = RuleUndefined
	return row
}

// defaultRule returns the rule of a column that the program does not mention
// (x86-64 psABI figure 3.4): callee-saved registers keep their value, the
// stack pointer becomes the CFA, others are lost.
func defaultRule(reg int) RegRule {
	switch {
	case reg == abi.RSP:
		return RegRule{Kind: RuleValOffset}
	case abi.CalleeSaved&(1<<reg) != 0:
		return RegRule{Kind: RuleSameValue}
	}
	return RegRule{Kind: RuleUndefined}
}

// resolve brings the expressions of a row to their canonical form. An error
// says why the row cannot be compiled.
func (b *tableBuilder) resolve(row *Row) error {
	switch row.CFA.Kind {
	case CFAUndefined:
		return cause(ErrBadEncoding, "the CFA is undefined")
	case CFAExpr:
		if err := b.in.exprs.entries[row.CFA.Expr].err; err != nil {
			return &exprError{"the CFA", err}
		}
		row.CFA = b.in.exprs.cfa(row.CFA)
		if row.CFA.Kind == CFAExpr {
			row.CFA.Expr = b.canonical(row.CFA.Expr)
		}
	}
	if row.CFA.Kind == CFARegOffset && row.CFA.Reg >= NumRegs {
		return cause(ErrUnsupported, "the CFA is on register %d", row.CFA.Reg)
	}
	for r := range row.Regs {
		rule := &row.Regs[r]
		switch rule.Kind {
		case RuleExpression, RuleValExpression:
			e := &b.in.exprs.entries[rule.Expr]
			if e.err != nil {
				return &exprError{abi.RegName(r), e.err}
			}
			if *rule = asRule(*rule, e.expr.Ops); rule.Expr != 0 {
				rule.Expr = b.canonical(rule.Expr)
			}
		}
		if rule.Kind != RuleRegister {
			continue
		}
		if rule.Reg >= NumRegs {
			return cause(ErrUnsupported, "%s is in register %d", abi.RegName(r), rule.Reg)
		}
		if int(rule.Reg) == r {
			*rule = RegRule{Kind: RuleSameValue}
		}
	}
	return nil
}

// exprError says for which column an expression cannot be compiled.
type exprError struct {
	column string
	err    error
}

func (e *exprError) Error() string { return "rule of " + e.column + ": " + e.err.Error() }
func (e *exprError) Unwrap() error { return e.err }

// intern returns the index of a normalised row. It sets b.err where there are
// too many.
func (b *tableBuilder) intern(row Row) uint32 {
	key := maphash.Comparable(b.seed, row)
	id, ok := b.index[key]
	if !ok || *b.rows[id] != row {
		if len(b.rows) >= MaxRows {
			b.err = cause(errBound, "more than %d distinct rows", MaxRows)
			return 0
		}
		id = uint32(len(b.rows))
		kept := row // row itself is on the stack
		b.rows = append(b.rows, &kept)
		b.index[key] = id
	}
	return id
}

// canonical returns the first expression that means the same as id.
func (b *tableBuilder) canonical(id ExprID) ExprID {
	if c, ok := b.canon[id]; ok {
		return c
	}
	e := &b.in.exprs.entries[id].expr
	// The key holds all that the evaluator looks at.
	key := append(b.key[:0], 0)
	if e.Pushed {
		key[0] = 1
	}
	for _, op := range e.Ops {
		key = append(key, byte(op.Code), byte(op.Reg))
		key = binary.LittleEndian.AppendUint64(key, uint64(op.Arg))
		key = binary.LittleEndian.AppendUint16(key, uint16(op.Jump))
	}
	b.key = key
	c, ok := b.meaning[string(key)]
	if !ok {
		c = id
		b.meaning[string(key)] = id
	}
	b.canon[id] = c
	return c
}

// table numbers rows and expressions in the order of their first use.
func (b *tableBuilder) table() *Table {
	t := &Table{Ranges: b.ranges, Exprs: make([]Expr, 1)}
	const unused = ^uint32(0)
	rowID := make([]uint32, len(b.rows))
	for i := range rowID {
		rowID[i] = unused
	}
	exprID := make(map[ExprID]ExprID)
	renumber := func(id *ExprID) {
		if *id == 0 {
			return
		}
		n, ok := exprID[*id]
		if !ok {
			n = ExprID(len(t.Exprs))
			t.Exprs = append(t.Exprs, b.in.exprs.entries[*id].expr)
			exprID[*id] = n
		}
		*id = n
	}
	for i := range t.Ranges {
		r := &t.Ranges[i].Row
		if rowID[*r] == unused {
			rowID[*r] = uint32(len(t.Rows))
			row := *b.rows[*r]
			renumber(&row.CFA.Expr)
			for c := range row.Regs {
				renumber(&row.Regs[c].Expr)
			}
			t.Rows = append(t.Rows, row)
		}
		*r = rowID[*r]
	}
	b.rep.Rows.Merged, b.rep.Rows.Distinct, b.rep.Rows.Exprs = len(t.Ranges), len(t.Rows), len(t.Exprs)-1
	return t
}
