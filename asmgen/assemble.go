// Package asmgen turns a plan into x86-64 machine code, with golang-asm.
//
// The text begins with _eh_elf; the rest is _eh_elf_walk: its entry, the
// dispatch, the slow path, the row blocks and the pages' compare trees. The data
// hold the table of pages and the descriptors that the slow path reads.
package asmgen

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// Options are the settings of code generation.
type Options struct {
	NoDeref bool // _eh_elf has no deref argument and reads memory directly
}

// generator holds the state of code generation: the plan, and what each stage leaves for
// the others. Labels of code that several stages jump to are made before the first.
type generator struct {
	asm  *assembler
	plan *plan.Plan
	opt  Options

	data   rodata
	layout layout
	exprs  []label // by dwarfcfa.ExprID; 0: not used

	text    textLabels
	find    findLabels
	stop    stopLabels
	slow    slowLabels
	stepped steppedLabels

	block []label // by plan.Blocks: where a page leads to
	tree  []label // by plan.Trees: where the page table leads to; 0 if a page has no code
	tails []label // by plan.Tails

	frames ownFrames
}

// rodata is the data beside the code: tables of pages, then descriptors.
type rodata struct {
	bytes []byte
	refs  []descRef         // places of expressions in descriptors, filled in at the end
	descs map[string]uint32 // offsets of placed descriptors

	words  int   // entries in all tables of pages
	tables []int // by plan.Segments: where the entries of its table begin
}

// textLabels are the bounds of the text and its functions.
type textLabels struct {
	start, end   label
	step, thunk  label // _eh_elf, and the read callback that it gives its walk
	chain, begin label // _eh_elf_chain_1 and what it shares with the other
	walk         label // _eh_elf_walk
	subroutines  label // spill, readWord and expressions: the last part of the text
}

// findLabels are the places of a walk between two rows.
type findLabels struct {
	load             label // sets the registers up
	dispatch, lookup label // from a pc to its row
	search           label // of the segment
	segmentEnd, exit label
}

// stopLabels end a walk with a status.
type stopLabels struct{ noInfo, outermost, notCompiled, badRegister label }

// slowLabels are the entries of the slow path and its subroutines.
type slowLabels struct {
	fast, row                   label // from a row that is fast otherwise, and from others
	spill, readWord             label
	exprInvalid, exprUnreadable label // ends of expressions without a value
}

// steppedLabels are the places of _eh_elf that the code of rows leads to.
type steppedLabels struct{ tail, general, done, stop label }

// ownFrames are the unwind information of the generated functions.
type ownFrames struct{ step, thunk, chain, walk, sub frameRows }

// Assemble generates the code of a plan. The error wraps ErrAssemble, a defect here, or ErrTooLarge, for which the
// caller plans a tree instead. The code depends on the plan and the options alone, byte for byte.
func Assemble(p *plan.Plan, opt Options) (*Code, error) {
	g := &generator{
		asm: newAssembler(), plan: p, opt: opt,
		data:  rodata{descs: map[string]uint32{}},
		exprs: make([]label, len(p.Table.Exprs)),
		block: make([]label, len(p.Blocks)),
		tree:  make([]label, len(p.Trees)),
		tails: make([]label, len(p.Tails)),
	}
	g.asm.newLabel() // no label is 0
	g.layout = treeLayout{g}
	if p.Dispatch == plan.DispatchPacked {
		g.layout = &packedLayout{g: g, slots: g.asm.newLabel()}
	}
	a := g.asm
	for _, l := range []*label{&g.text.start, &g.text.chain, &g.text.begin, &g.text.walk, &g.find.dispatch, &g.find.lookup,
		&g.find.load,
		&g.find.segmentEnd, &g.find.exit, &g.stop.noInfo, &g.stop.outermost, &g.stop.notCompiled, &g.stop.badRegister,
		&g.slow.fast, &g.slow.row, &g.slow.spill, &g.slow.readWord, &g.slow.exprInvalid, &g.slow.exprUnreadable,
		&g.stepped.tail, &g.stepped.general, &g.stepped.done, &g.stepped.stop,
		&g.text.subroutines, &g.text.end, &g.text.step, &g.text.thunk, &g.find.search} {
		*l = a.newLabel()
	}
	for i := range p.Segments {
		g.data.tables = append(g.data.tables, g.data.words)
		g.data.words += len(p.Segments[i].Table)
	}
	if err := g.layout.table(); err != nil {
		return nil, err
	}

	// The text is emitted in this order: what runs most lies close together, subroutines last.
	a.bind(g.text.start)
	g.stepEntry()
	g.chainEntry()
	g.entry()
	g.slowPath()
	g.dispatchCode()
	if err := a.flush(); err != nil {
		return nil, err
	}
	if err := g.blocks(); err != nil {
		return nil, err
	}
	if err := g.layout.pages(); err != nil {
		return nil, err
	}
	if err := g.segmentSearch(); err != nil {
		return nil, err
	}
	if err := a.flush(); err != nil {
		return nil, err
	}
	a.bind(g.text.subroutines)
	g.spillCode()
	g.readWordCode()
	if err := g.expressions(); err != nil {
		return nil, err
	}
	a.bind(g.text.end)
	if err := a.finish(); err != nil {
		return nil, err
	}
	// Only now all labels have places.
	for _, r := range g.data.refs {
		binary.LittleEndian.PutUint32(g.data.bytes[r.off:], uint32(a.where[r.to]))
	}
	return g.code(), nil
}

// exprLabel returns the label of an expression's code, which is then compiled.
func (g *generator) exprLabel(id dwarfcfa.ExprID) label {
	if g.exprs[id] == 0 {
		g.exprs[id] = g.asm.newLabel()
	}
	return g.exprs[id]
}

// expressions emits the expressions that descriptors refer to. Chunks may break between expressions, whose jumps inside
// are all long.
func (g *generator) expressions() error {
	any := false
	for id, entry := range g.exprs {
		if entry == 0 {
			continue
		}
		any = true
		if err := g.expression(&g.plan.Table.Exprs[id], entry); err != nil {
			return err
		}
		if err := g.asm.breakChunk(); err != nil {
			return err
		}
	}
	if any {
		g.exprFailures()
	}
	return nil
}

// code builds the result once all labels are known. The thunk's rows are empty with NoDeref, which has none.
func (g *generator) code() *Code {
	where := func(l label) uint32 { return uint32(g.asm.where[l]) }
	textWords := g.layout.fill(where)
	p := g.plan
	c := &Code{
		Text: g.asm.text, Data: g.data.bytes, Fixups: g.asm.fixups,
		Low: p.Low, High: p.High,
		Ranges: len(p.Table.Ranges), Rows: len(p.Table.Rows),
		NoDeref: g.opt.NoDeref,
		Packed:  p.Dispatch == plan.DispatchPacked, TextWords: textWords,
		Symbols: []Symbol{
			{Name: abi.SymbolStep, Start: where(g.text.step), End: where(g.text.chain), Exported: true},
			{Name: abi.SymbolChain, Start: where(g.text.chain), End: where(g.text.walk), Exported: true},
			{Name: abi.SymbolWalk, Start: where(g.text.walk), End: where(g.text.end), Exported: true},
		},
	}
	thunk := g.text.chain
	if !g.opt.NoDeref {
		thunk = g.text.thunk
	}
	frame := Frame{End: where(g.text.end)}
	add := func(from, to label, rows *frameRows) {
		if from != to {
			frame.Rows = append(frame.Rows, rows.within(where(from), where(to), where)...)
		}
	}
	add(g.text.step, thunk, &g.frames.step)
	add(thunk, g.text.chain, &g.frames.thunk)
	add(g.text.chain, g.text.walk, &g.frames.chain)
	add(g.text.walk, g.text.subroutines, &g.frames.walk)
	add(g.text.subroutines, g.text.end, &g.frames.sub)
	c.Frames = []Frame{frame} // one, which saves each file 0.1 KB
	c.Marks = g.marks(where)
	c.locate = func(pc dwarfcfa.Addr) (uint32, uint32) {
		block := where(g.block[p.Lookup(pc)])
		if pc < p.Base || pc >= p.High {
			return block, block
		}
		page := label(0)
		if s := p.SegmentOf(pc); s.Table != nil {
			page = g.tree[p.TreeOf(s, pc)]
		}
		if page == 0 {
			return block, block // the page has no code
		}
		return where(page), block
	}
	return c
}

// marks names the places of the text for listings.
func (g *generator) marks(where func(label) uint32) []Mark {
	var marks []Mark
	add := func(l label, format string, args ...any) {
		marks = append(marks, Mark{where(l), fmt.Sprintf(format, args...)})
	}
	for _, n := range []struct {
		label label
		name  string
	}{
		{g.text.step, abi.SymbolStep}, {g.text.chain, abi.SymbolChain}, {g.text.walk, abi.SymbolWalk},
		{g.find.segmentEnd, "segment_end"}, {g.stop.badRegister, "bad_register"}, {g.stop.notCompiled, "not_compiled"},
		{g.stop.outermost, "outermost"}, {g.stop.noInfo, "no_info"}, {g.find.exit, "exit"}, {g.find.load, "load"},
		{g.stepped.tail, "step_tail"}, {g.stepped.general, "step_general"},
		{g.stepped.done, "step_done"}, {g.stepped.stop, "step_stop"}, {g.slow.fast, "slow_fast"}, {g.slow.row, "slow_row"},
		{g.find.dispatch, "dispatch"}, {g.find.lookup, "lookup"},
		{g.slow.spill, "spill"}, {g.slow.readWord, "read_word"},
	} {
		add(n.label, "%s", n.name)
	}
	for i, b := range g.plan.Blocks {
		if b.Kind != plan.BlockStop {
			add(g.block[i], "block_%d", i)
		}
	}
	for i, entry := range g.tails {
		add(entry, "tail_%d", i)
	}
	for i, t := range g.plan.Trees {
		if len(t.Keys) > 0 && g.tree[i] != 0 {
			add(g.tree[i], "tree_%d", i)
		}
	}
	for id, entry := range g.exprs {
		if entry != 0 {
			add(entry, "expression_%d", id)
		}
	}
	slices.SortStableFunc(marks, func(a, b Mark) int { return cmp.Compare(a.Off, b.Off) })
	return marks
}

// frameRows collects the unwind information of generated code while it is emitted. The rows become the eh_elf's own
// .eh_frame: a profiler's signal may come at any instruction of the generated code.
type frameRows struct {
	rows  []labelRow
	saved []labelRow // of save
}

// labelRow is a row that begins at a label.
type labelRow struct {
	label label
	row   FrameRow
}

// now returns a copy of the row that holds at present: at first the one of a function's entry.
func (f *frameRows) now() FrameRow {
	if len(f.rows) == 0 {
		return FrameRow{CFAOffset: 8}
	}
	r := f.rows[len(f.rows)-1].row
	r.Saved = slices.Clone(r.Saved)
	return r
}

// add begins a new row at a label.
func (f *frameRows) add(from label, r FrameRow) { f.rows = append(f.rows, labelRow{from, r}) }

// push notes that a register was pushed.
func (f *frameRows) push(from label, dwarf uint8) {
	r := f.now()
	r.CFAOffset += 8
	r.Saved = append(r.Saved, FrameSave{Reg: dwarf, Off: -r.CFAOffset})
	f.add(from, r)
}

// pop notes that the last pushed register was popped.
func (f *frameRows) pop(from label, dwarf uint8) {
	r := f.now()
	r.CFAOffset -= 8
	r.Saved = slices.DeleteFunc(r.Saved, func(s FrameSave) bool { return s.Reg == dwarf })
	f.add(from, r)
}

// keep notes that registers were stored to slots from rsp+slot on, in order.
func (f *frameRows) keep(from label, regs []machineSave, slot int) {
	r := f.now()
	for i, m := range regs {
		r.Saved = append(r.Saved, FrameSave{Reg: m.dwarf, Off: int32(slot+8*i) - r.CFAOffset})
	}
	f.add(from, r)
}

// grow notes that rsp went down by n bytes.
func (f *frameRows) grow(from label, n int) {
	r := f.now()
	r.CFAOffset += int32(n)
	f.add(from, r)
}

// save and restore bracket code after which the row before it applies again.
func (f *frameRows) save(from label) { f.saved = append(f.saved, labelRow{from, f.now()}) }

// restore brings the row of the last save back.
func (f *frameRows) restore(from label) {
	last := len(f.saved) - 1
	f.add(from, f.saved[last].row)
	f.saved = f.saved[:last]
}

// within returns the rows of [start, end) with offsets in the text, the first at start. where is the assembler's, so it
// runs when all labels are bound.
func (f *frameRows) within(start, end uint32, where func(label) uint32) []FrameRow {
	out := []FrameRow{{Off: start, CFAOffset: 8}}
	for _, r := range f.rows {
		r.row.Off = where(r.label)
		if r.row.Off == end { // the rest belongs to code behind an epilogue that does not exist here
			break // after the last epilogue
		}
		if r.row.Off == start { // a row at the start replaces the entry's
			out = out[:0]
		}
		out = append(out, r.row)
	}
	return out
}
