package check

import (
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"sort"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file goes through the functions, keeps findings open while they continue, and decides their class and severity
// when they end.

// Options are options of Run.
type Options struct {
	Workers  int            // 0: one per processor
	Progress func(more int) // called with how many more functions are done, also concurrently
	// ABI says that each function restores the registers that the psABI has it keep: none has a private calling
	// convention.
	ABI bool
	// Listing, if not nil, gets each instruction of the functions with findings.
	Listing func(i int, lines []Line)
	// Fix, if not nil, gets patches for the functions with errors and warnings.
	Fix *Fix
}

// function is one function being compared.
type function struct {
	s     *Subject
	rows  *rows
	r     *codeflow.Result
	i     int
	rep   partial
	open  []*run
	lines []Line
	list  bool
	truly []int // by row: instructions at which it was right
	last  verdict

	row   *dwarfcfa.RawRow // the current one; nil if there is none
	k     int              // its index
	plain plainRow         // made from it
	buf   [8]wrong         // for mismatches
}

// verdict caches the last judgement, for a next instruction that changes
// nothing.
type verdict struct {
	holds bool   // the last instruction agreed with its row and changes nothing that the row describes
	below bool   // the row also read a word below rsp
	next  uint64 // the address behind the instruction
	row   *dwarfcfa.RawRow
	basis codeflow.Basis
}

// run is a finding under construction.
type run struct {
	f    Finding
	w    wrong
	live bool
	row  *dwarfcfa.RawRow
	// shifted: the row before or after, which begins or ends at this instruction, is what the code did
	shifted bool
	call    bool // the first instruction is a call: all stacks through it are looked up inside it
}

// partial is a function's share of the report.
type partial struct {
	numbers
	details
}

// numbers count instructions, of which a function has less than 2^31.
type numbers struct {
	instructions, judged, agree, cfaDiffer, assumed, below int32
	saved                                                  uint16 // mask of the registers that rows save on the stack
}

// details are what most functions have none of.
type details struct {
	reasons  map[string]int
	findings []Finding
	lines    []Line
}

// Run checks the object and returns the findings and counts. The order of findings depends on the file alone: workers
// fill parts by function, and the report is made of these afterwards.
func (s *Subject) Run(opt Options) *Report {
	parts := make([]struct {
		numbers
		*details
	}, len(s.Functions))
	p := codeflow.New(s.Image, s.Functions, codeflow.Options{
		Begin:    func() codeflow.Beginner { return s.newRows() },
		Workers:  opt.Workers,
		Progress: opt.Progress,
	})
	// A callback may come again for the same function; the last result replaces the others, so nothing is added up
	// here.
	p.Run(func(i int, r *codeflow.Result) {
		w := r.Beginner().(*rows)
		c := &w.compared
		*c = function{s: s, rows: w, r: r, i: i, list: opt.Listing != nil, open: c.open[:0], truly: c.truly[:0]}
		c.compare()
		parts[i].numbers, parts[i].details = c.rep.numbers, nil
		if d := c.rep.details; d.reasons != nil || d.findings != nil {
			parts[i].details = &d
		}
	})
	rep := &Report{NotJudged: map[string]int{}, Notes: map[string]int{}, LostFDEs: s.Unread, OutsideFDEs: s.Outside}
	var saving [16]int // by register: functions whose rows save it
	for i := range parts {
		q := &parts[i]
		if s.first(i) {
			rep.FDEs++
		}
		for m := q.saved; m != 0; m &= m - 1 {
			saving[bits.TrailingZeros16(m)]++
		}
		rep.Instructions += int(q.instructions)
		rep.Judged += int(q.judged)
		rep.Agree += int(q.agree)
		rep.CFADiffer += int(q.cfaDiffer)
		rep.Assumed += int(q.assumed)
		if q.below > 0 {
			rep.Notes["a saved word below rsp, whose register is restored already"] += int(q.below)
		}
		if q.details == nil {
			continue
		}
		for k, n := range q.reasons {
			rep.NotJudged[k] += n
		}
		for k := range q.findings {
			s.classify(&q.findings[k], p, opt.ABI || q.saved != 0 || !p.Inner(s.Functions[i].Lo))
		}
		found := merge(q.findings)
		for k := range found {
			s.name(&found[k], s.Functions[i].Hi)
		}
		rep.Findings = append(rep.Findings, found...)
		if opt.Listing != nil && len(q.findings) > 0 {
			opt.Listing(i, q.lines)
		}
	}
	variables(rep.Findings, &saving)
	if opt.Fix != nil {
		opt.Fix.Patches = s.fixes(p, rep.Findings, opt.Fix)
	}
	s.whole(rep)
	s.noRows(p, rep)
	return rep
}

// noRowCode is how many bytes, from its start, tell code without an FDE and without a symbol from other such code: its
// end is not known.
const noRowCode = 64

// name names the function of a finding, and its code. end is where the FDE ends.
func (s *Subject) name(f *Finding, end uint64) {
	lo, hi := f.Start, end
	if sym, ok := s.Image.Symbol(f.PC); ok {
		f.Function, f.Symbol = sym.Name, sym.Addr
		lo, hi = f.PC, max(f.End, f.PC+1)
	}
	f.Code = fmt.Sprintf("%016x", s.Image.Fingerprint(lo, hi))
}

// noRows notes calls and jumps to code without any row.
func (s *Subject) noRows(p *codeflow.Program, rep *Report) {
	for _, t := range p.Targets() {
		if s.Image.SectionOf(t) == ".undefined" {
			continue // of a relocatable file: in another one
		}
		f := Finding{Kind: KindNoRow, Severity: SeverityNote, Class: ClassTable, Start: t, PC: t, End: t,
			Actual: "called or jumped to", Claimed: "nothing"}
		s.name(&f, t+noRowCode)
		rep.Findings = append(rep.Findings, f)
	}
}

// reason counts n instructions that were not judged, by why.
func (c *function) reason(why string, n int) {
	if c.rep.reasons == nil {
		c.rep.reasons = map[string]int{}
	}
	c.rep.reasons[why] += n
}

// compare judges the function's instructions.
func (c *function) compare() {
	c.rows.load(c.i)
	switch {
	// A signal frame's rows are about the interrupted code's registers, which its own code does not set.
	case c.r.Func().Signal && c.s.FDEs[c.i].CIE.Signal:
		c.unjudged(ReasonSignal)
		return
	case c.r.Func().Signal:
		c.unjudged(ReasonMany)
		return
	case c.rows.err != nil:
		c.unjudged(ReasonBadRow)
		return
	}
	// One pass in address order: findings are runs of neighbours, whatever order control takes.
	n := len(c.rows.rows)
	c.truly = slices.Grow(c.truly, n)[:n]
	clear(c.truly)
	c.r.Each(c.instruction)
	for _, r := range c.open {
		c.close(r)
	}
	why := ReasonUnreached
	if c.r.TooLarge() {
		why = ReasonLimit
	}
	c.unjudged(why)
	c.borders()
	if slices.ContainsFunc(c.rep.findings, func(f Finding) bool { return f.Kind == KindClobbered }) {
		c.restores()
	}
	sort.SliceStable(c.rep.findings, func(i, j int) bool { return c.rep.findings[i].PC < c.rep.findings[j].PC })
	if len(c.rep.findings) > 0 {
		c.rep.lines = c.lines
		c.paths()
	}
}

// unjudged counts the instructions that were not reached.
func (c *function) unjudged(why string) {
	n, odd := c.gaps()
	c.rep.instructions += int32(n)
	if odd && why == ReasonUnreached {
		why = ReasonUndecoded
	}
	if n > 0 {
		c.reason(why, n)
	}
}

// instruction compares the row at an instruction with the state that the code has there.
func (c *function) instruction(pc uint64, in *x86.Inst, s *codeflow.State, basis codeflow.Basis) {
	if isFiller(in) {
		return
	}
	c.rep.instructions++
	if len(c.open) > 0 && c.leavesStack(pc, in, s) {
		c.intended()
	}
	c.seek(pc)
	// Most instructions follow one that agreed and change nothing that the row is about.
	if v := &c.last; v.holds && v.next == pc && v.row == c.row && v.basis == basis && in.Op != x86.OpRET &&
		!c.r.Leads(pc) {
		c.judged(basis)
		c.agrees(v.below)
		c.line(pc, in, s, false)
		v.next += uint64(in.Len)
		v.holds = keepsFrame(in, s)
		return
	}
	c.last.holds = false
	if c.row == nil {
		c.reason(ReasonNoRow, 1)
		return
	}
	if basis == codeflow.Guessed {
		c.reason(ReasonGuess, 1)
		return
	}
	ws, why := c.mismatches(pc, in, s)
	if why != "" {
		c.reason(why, 1)
		c.line(pc, in, s, false)
		return
	}
	c.judged(basis)
	if len(ws) == 0 {
		below := c.plain.belowStack(s)
		c.agrees(below)
		c.last = verdict{below: below, next: pc + uint64(in.Len), row: c.row, basis: basis,
			holds: len(c.open) == 0 && c.plain.keeps && keepsFrame(in, s)}
	} else if ws[0].kind == KindCFA {
		c.rep.cfaDiffer++
	}
	if len(ws)+len(c.open) > 0 {
		c.note(pc, in, c.row, ws, basis, s)
		if s.ChangesReturn(in) {
			c.callersFrame()
		}
	}
	c.line(pc, in, s, len(ws) > 0)
}

// seek makes the row at pc the current one.
func (c *function) seek(pc uint64) {
	if c.row != nil && pc >= uint64(c.row.Start) && pc < uint64(c.row.End) {
		return
	}
	if c.row, c.k = nil, c.rows.find(pc); c.k >= 0 {
		c.row = &c.rows.rows[c.k]
		c.plain.set(&c.row.Row, c.rows.interp)
		for _, x := range c.plain.locs[:c.plain.nLoc] {
			c.rep.saved |= 1 << x.v.Reg & codeflow.CalleeSaved
		}
	}
}

// judged counts an instruction as judged.
func (c *function) judged(basis codeflow.Basis) {
	c.rep.judged++
	if basis == codeflow.Assumed {
		c.rep.assumed++
	}
}

// agrees counts an instruction at which the current row is right. below says that the row reads a word below rsp.
func (c *function) agrees(below bool) {
	c.rep.agree++
	c.truly[c.k]++
	if below {
		c.rep.below++
	}
}

// mismatches compares the current row with a state. why says why that is not possible. The result is valid until the
// next call. A ret needs more than its row: rsp itself must be at the return address, whatever register the CFA is
// counted from.
func (c *function) mismatches(pc uint64, in *x86.Inst, s *codeflow.State) (ws []wrong, why string) {
	if !c.plain.fits(s) {
		ws, why = c.judge(pc, &c.row.Row, s, c.buf[:0])
	}
	if in.Op != x86.OpRET || len(ws) > 0 || why != "" {
		return ws, why
	}
	r := s.Regs[x86.RSP]
	if r.Kind != codeflow.Base || r.Reg != 0 || r.Off == -8 {
		return ws, ""
	}
	if top := (location{off: r.Off, v: s.Slot(0, r.Off)}); c.topSet(pc) &&
		!slices.Contains(c.plain.locs[:c.plain.nLoc], top) {
		return ws, "" // a jump: the row does not say that a register was saved there
	}
	return append(ws, wrong{kind: KindRet, actual: "rsp is " + cfaOffset(int64(r.Off)), claimed: "CFA-8 at a ret"}), ""
}

// note adds the mismatches at an instruction to the findings that are open, and closes those that it does not continue.
func (c *function) note(pc uint64, in *x86.Inst, row *dwarfcfa.RawRow, ws []wrong, basis codeflow.Basis,
	s *codeflow.State) {
	for _, r := range c.open {
		r.live = false
	}
	// What is wrong with the same thing as before goes on, also if the row has changed meanwhile.
	for _, w := range ws {
		found := false
		for _, r := range c.open {
			if r.w.kind == w.kind && r.w.reg == w.reg {
				r.f.Count++
				r.f.End = pc + uint64(in.Len)
				r.live = true
				found = true
				break
			}
		}
		if found {
			continue
		}
		f := Finding{Kind: w.kind, PC: pc, End: pc + uint64(in.Len), Count: 1, Actual: w.actual, Claimed: w.claimed,
			Start: c.r.Func().Lo, Assumed: basis == codeflow.Assumed, Class: ClassTable}
		switch {
		case w.class != "":
			f.Class = w.class
		case w.kind == KindCFA && in.Op == x86.OpRET && returnsElsewhere(&row.Row, s):
			f.Class = ClassReturn
		case w.kind == KindCFA && takesStack(in, &row.Row):
			f.Class = ClassContext
		}
		if w.kind == KindSaved || w.kind == KindClobbered {
			f.Register = regName(w.reg)
		}
		f.stated = w.stated
		f.Directive = directive(&w, &row.Row, s)
		c.open = append(c.open, &run{f: f, w: w, live: true, row: row, call: in.Op == x86.OpCALL,
			shifted: c.neighbourFits(pc, in, row, w.kind, s)})
	}
	// What was not wrong at this instruction ends before it.
	k := 0
	for _, r := range c.open {
		if r.live {
			c.open[k] = r
			k++
		} else {
			c.close(r)
		}
	}
	c.open = c.open[:k]
}

// keepsFrame reports whether an instruction changes nothing that a plain row
// describes.
func keepsFrame(in *x86.Inst, s *codeflow.State) bool {
	if in.Writes&(codeflow.CalleeSaved|1<<x86.RSP) != 0 {
		return false
	}
	if in.MemWrite && s.Overwrites(in) {
		return false
	}
	return in.Op != x86.OpJCC || in.Cond != x86.CondNE // after jne, rsp may be known: see flow.equal
}

// close makes a finding of a run that has ended. The class is decided here and not at its first instruction, for it
// depends on what follows: a row that is true elsewhere is one that the code has moved under, and one wrong
// instruction beside a border is a border off by one.
func (c *function) close(r *run) {
	f := r.f
	truly := c.truly[c.rows.find(uint64(r.row.Start))]
	// A register may be where the row says on one of the ways to it; all have the same CFA.
	f.Never = f.Kind == KindCFA && truly == 0 && uint64(r.row.Start) >= f.PC && uint64(r.row.End) <= f.End
	switch {
	case f.Class == ClassContext && r.w.class == ClassContext && f.Kind != KindRet && truly > 0:
		f.Class = ClassTable // true before: the code moved, and the row did not
	// Code that nothing leads to begins from its row, which may be about other code before it.
	case f.Kind == KindRet && f.Class == ClassTable && c.unreachable(f.PC),
		f.Kind == KindReturn && f.Class == ClassTable && f.Assumed: // only the row said that this is its frame
		f.Class = ClassUnreachable
	case f.Class == ClassTable && f.Count == 1 && r.shifted:
		f.Class = ClassOffByOne
	}
	f.Severity = r.severity(&f)
	c.rep.findings = append(c.rep.findings, f)
}

// severity goes by what an unwinder gets: a wrong caller or a wrong register of it, at more than an instruction or at a
// call, is an error.
func (r *run) severity(f *Finding) Severity {
	switch {
	case f.Class != ClassTable && f.Class != ClassOffByOne:
		return SeverityNote
	case f.Class == ClassOffByOne, f.Count == 1 && !r.call && f.Kind != KindRet, f.Kind == KindClobbered &&
		codeflow.CalleeSaved>>r.w.reg&1 == 0:
		return SeverityWarning
	}
	return SeverityError
}

// unreachable reports whether nothing leads to the ret at pc: it follows another end of the function, without padding.
// Hand-written code has such tails behind a ret, jumped to through tables that the analysis did not find.
func (c *function) unreachable(pc uint64) bool {
	return c.r.Begun(pc) && c.r.Inst(pc-1) != nil && c.r.Inst(pc-1).Op == x86.OpRET
}

// neighbourFits reports whether a row border is off by the instruction at pc: the row before it, or after it, is what
// the code did as far as the kind of mismatch goes.
//
// It is false for a call: all stacks through it are looked up inside it.
func (c *function) neighbourFits(pc uint64, in *x86.Inst, row *dwarfcfa.RawRow, kind Kind, s *codeflow.State) bool {
	if in.Op == x86.OpCALL {
		return false
	}
	// A right neighbour means that the border was put an instruction too early or too late.
	fits := func(addr uint64) bool {
		n := c.rows.at(addr)
		if n == nil || n == row {
			return false
		}
		ws, why := c.judge(pc, &n.Row, s, nil)
		for _, w := range ws {
			if w.kind == kind || w.kind == KindCFA {
				return false
			}
		}
		return why == ""
	}
	return uint64(row.Start) == pc && fits(pc-1) || uint64(row.End) == pc+uint64(in.Len) && fits(uint64(row.End))
}

// gaps counts the instructions that were not reached, without padding. odd says that bytes among them are none. Bytes
// that are no instruction count as one each.
func (c *function) gaps() (n int, odd bool) {
	if !c.r.Gaps() {
		return 0, false
	}
	fn := c.r.Func()
	code := c.s.Image.Code(fn.Lo)
	if uint64(len(code)) > fn.Hi-fn.Lo {
		code = code[:fn.Hi-fn.Lo]
	}
	var in x86.Inst
	for off := 0; off < len(code); {
		pc := fn.Lo + uint64(off)
		if q := c.r.Inst(pc); q != nil {
			off += int(q.Len)
			continue
		}
		if x86.Decode(code[off:], &in) != nil {
			off++
			n++
			odd = true
			continue
		}
		if !codeflow.IsPadding(&in) {
			n++
		}
		off += int(in.Len)
	}
	return n, odd
}

// borders finds rows that begin inside an instruction. An unwinder never asks for such an address, but the FDE's author
// meant another one.
func (c *function) borders() {
	fn := c.r.Func()
	for k := range c.rows.rows {
		pc := uint64(c.rows.rows[k].Start)
		if pc <= fn.Lo || pc >= fn.Hi {
			continue
		}
		if addr, ok := c.r.Within(pc); ok {
			c.rep.findings = append(c.rep.findings, Finding{Kind: KindBorder, Severity: SeverityNote, Class: ClassTable,
				Start: fn.Lo, PC: pc, End: pc, Count: 1,
				Actual: "inside the instruction at " + hex(addr), Claimed: "a row begins"})
		}
	}
}

// ocaml matches the functions that OCaml's compiler makes, which keep no registers: camlModule__name_123, caml_apply2,
// caml_curry3. Those of its runtime, caml_alloc and the like, are of C.
var ocaml = regexp.MustCompile(`^caml([A-Z]|_(apply|curry|tuplify)[0-9])`)

// classify separates registers that Go or a private calling convention loses from wrong
// tables. Not to restore a register is an error in a function that keeps the psABI.
func (s *Subject) classify(f *Finding, p *codeflow.Program, keepsABI bool) {
	if (f.Kind == KindClobbered || f.Kind == KindSaved) && s.Image.IsGo(f.Start) {
		f.Class, f.Severity = ClassGo, SeverityNote
	}
	if f.Kind == KindClobbered && f.Class == ClassTable && !f.stated {
		symbol, _ := s.Image.Symbol(f.PC)
		private := ocaml.MatchString(symbol.Name)
		for h := range uint8(16) {
			if codeflow.CalleeSaved>>h&1 != 0 && regName(h) == f.Register && p.Broken(f.Start)>>h&1 != 0 {
				f.Severity, private = SeverityError, private || !keepsABI
			}
		}
		if private {
			f.Class, f.Severity = ClassPrivate, SeverityNote
		}
	}
}
