// Package verify tests that an eh_elf means its table: translation validation by
// samples. It loads the finished file and runs its code on this machine, at the
// first and the last pc of every row range and of every gap between ranges, on
// random registers and memory, and compares every result with the reference
// evaluator's. The random numbers are seeded from the file's content, so that a
// disagreement can be reproduced.
package verify

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/testing/thunk"
)

// ErrDisagree is wrapped by errors about code that disagrees with the table.
var ErrDisagree = errors.New("the code disagrees with the table")

// Result counts what was compared.
type Result struct {
	PCs   int // pcs at which single steps were compared
	Steps int // single steps
	Walks int // walks of several steps
}

// Image runs the code of an eh_elf and compares it with the table that it was
// made from. The error wraps ErrDisagree, or is ehelf.ErrUnsupportedHost if the
// code cannot run here.
func Image(image []byte, t *dwarfcfa.Table) (Result, error) {
	return with(image, t, (*checker).run)
}

// with loads an eh_elf and calls compare. The result counts what was compared before an error.
func with(image []byte, t *dwarfcfa.Table, compare func(*checker) error) (Result, error) {
	obj, err := ehelf.FromBytes(image)
	if err != nil {
		return Result{}, err
	}
	defer obj.Close()
	c, err := newChecker(obj, t, seed(image))
	if err != nil {
		return Result{}, err
	}
	defer c.close()
	err = compare(c)
	return c.result, err
}

// seed returns a number that depends on the whole file.
func seed(image []byte) uint64 {
	h := fnv.New64a()
	h.Write(image)
	return h.Sum64()
}

// checker compares one object.
type checker struct {
	obj     *ehelf.EhElf
	table   *dwarfcfa.Table
	rng     rng
	noDeref bool    // _eh_elf has no callback
	deref   uintptr // address of the callback of _eh_elf
	mem     *target // for single steps
	stack   *target // for walks
	chains  *chains // nil for a table without rows
	result  Result
	record  *[]kept // collects states; nil: they are not kept

	start, got, want *abi.Regs
	pcs, wantPCs     []uint64
}

const (
	maxWalk = 40 // steps of a walk: more than two segments without pcs
	// smallWindow bytes are filled with random words; a larger window, for rows
	// with a larger frame, is filled where a step reads.
	smallWindow = 64 << 10
)

// newChecker returns a checker with memory for the table's largest frame. Close it.
func newChecker(obj *ehelf.EhElf, t *dwarfcfa.Table, seed uint64) (*checker, error) {
	c := &checker{
		obj: obj, table: t,
		rng:     rng{seed},
		noDeref: obj.Note().Flags&abi.FlagNoDeref != 0,
		deref:   thunk.HashDerefThunk(),
		start:   new(abi.Regs), got: new(abi.Regs), want: new(abi.Regs),
		pcs: make([]uint64, maxWalk), wantPCs: make([]uint64, 0, maxWalk),
	}
	size := int64(0)
	for i := range t.Rows {
		cfa := t.Rows[i].CFA
		if cfa.Kind == dwarfcfa.CFARegOffset && cfa.Reg == abi.RSP && cfa.Offset <= 1<<30 {
			size = max(size, cfa.Offset)
		}
	}
	var err error
	if c.mem, err = newTarget(size+smallWindow, &c.rng); err != nil {
		return nil, err
	}
	if c.stack, err = newTarget(smallWindow, &c.rng); err != nil {
		c.mem.close()
		return nil, err
	}
	return c, nil
}

// close unmaps the memory.
func (c *checker) close() {
	c.mem.close()
	c.stack.close()
}

// run compares at the ends of all ranges and gaps, then walks.
func (c *checker) run() error {
	ranges := c.table.Ranges
	var gap dwarfcfa.Addr // end of the last range
	for i := range ranges {
		r := &ranges[i]
		if r.Start > gap {
			if err := c.both(gap, r.Start, nil); err != nil {
				return err
			}
		}
		if err := c.both(r.Start, r.End, &c.table.Rows[r.Row]); err != nil {
			return err
		}
		gap = r.End
	}
	if err := c.both(gap, 0, nil); err != nil { // up to the last address
		return err
	}
	if len(ranges) == 0 {
		return nil
	}
	c.chains = newChains(c.obj, c.table, &c.rng)
	for range len(ranges)/8 + 64 { // walks in proportion to the table
		if err := c.walk(); err != nil {
			return err
		}
		if err := c.chain(); err != nil {
			return err
		}
	}
	return nil
}

// both checks the first and last pc of [from, to), for which row holds; nil: no
// row.
func (c *checker) both(from, to dwarfcfa.Addr, row *dwarfcfa.Row) error {
	if err := c.at(from, row); err != nil {
		return err
	}
	if to-1 == from {
		return nil
	}
	return c.at(to-1, row)
}

// at compares steps at one pc: with every word in the window; at the edges of a
// window, with and without a read callback and with registers missing; through
// the original interface.
func (c *checker) at(pc dwarfcfa.Addr, row *dwarfcfa.Row) error {
	c.result.PCs++
	c.whole(pc, row)
	if err := c.compare(pc, "window", c.mem, 1, true); err != nil {
		return err
	}
	c.edge(pc, row)
	if err := c.compare(pc, "edge", c.mem, 1, c.rng.oneIn(2)); err != nil {
		return err
	}
	if c.noDeref {
		return c.direct(pc, row)
	}
	return c.original(pc)
}

// frame fills start with random registers, all valid, at a pc of any bias.
func (c *checker) frame(pc dwarfcfa.Addr, m *target) { c.frameAt(pc, c.rng.word()&^0xfff, m) }

// frameAt is frame with a bias.
func (c *checker) frameAt(pc dwarfcfa.Addr, bias uint64, m *target) {
	s := c.start
	kinds := c.rng.word()
	for i := range s.Reg {
		switch kinds >> (3 * i) & 7 {
		case 0:
			s.Reg[i] = c.rng.word()
		case 1:
			s.Reg[i] = c.rng.word() & 63 // counts and flags
		default:
			s.Reg[i] = m.lo + c.rng.below(m.size+1)
		}
	}
	s.Valid = abi.AllRegs
	s.Exact = uint16(kinds >> 63)
	s.Status = 99 // a status that no step sets
	s.Reg[abi.RIP] = uint64(pc) + bias
	if s.Exact == 0 {
		s.Reg[abi.RIP]++
	}
	m.bias = bias
}

// whole sets up a frame whose saved words lie in the window, if the row allows it. So the fast path
// can take the step.
func (c *checker) whole(pc dwarfcfa.Addr, row *dwarfcfa.Row) {
	m := c.mem
	m.place(&c.rng)
	m.open(0, m.room)
	m.seed = nil
	c.frame(pc, m)
	s := c.start
	s.Reg[abi.RSP] = m.lo + c.rng.below(m.size)
	if row == nil || row.CFA.Kind != dwarfcfa.CFARegOffset || row.CFA.Reg == abi.RIP {
		return
	}
	low, high := uint64(2048), m.size-8 // of the CFA in the window
	if row.CFA.Reg == abi.RSP && row.CFA.Offset > 0 {
		low = min(uint64(row.CFA.Offset), high-1)
	}
	if high > low+smallWindow/2 {
		high = low + smallWindow/2
	}
	cfa := m.lo + low + c.rng.below(high-low)
	if !c.rng.oneIn(4) {
		cfa &^= 7
		if cfa < m.lo+low {
			cfa += 8
		}
	}
	s.Reg[row.CFA.Reg] = cfa - uint64(row.CFA.Offset)
	if m.size > smallWindow {
		m.fill(cfa, row, &c.rng)
	}
}

// edge sets up a frame at the border of a small window, or off it.
func (c *checker) edge(pc dwarfcfa.Addr, row *dwarfcfa.Row) {
	m := c.mem
	m.place(&c.rng)
	from := c.rng.below(smallWindow / 2)
	m.open(from, c.rng.below(256))
	m.seed = nil
	if c.rng.oneIn(2) {
		m.seed = new(uint64)
		*m.seed = c.rng.word()
	}
	c.frame(pc, m)
	s := c.start
	near := func(r int) { s.Reg[r] = m.lo + c.rng.below(m.size+64) - 32 }
	near(abi.RSP)
	near(abi.RBP)
	if row != nil && row.CFA.Kind == dwarfcfa.CFARegOffset && row.CFA.Reg != abi.RIP && c.rng.oneIn(2) {
		s.Reg[row.CFA.Reg] -= uint64(row.CFA.Offset)
	}
	if c.rng.oneIn(4) {
		s.Valid &= uint32(c.rng.word())
		if !c.rng.oneIn(8) {
			s.Valid |= 1<<abi.RSP | 1<<abi.RIP
		}
	} else if c.rng.oneIn(4) {
		s.Valid &^= 1 << c.rng.below(abi.NumRegs-1)
	}
}

// walk compares a walk of several steps on a stack that leads from row to row.
func (c *checker) walk() error {
	m := c.stack
	pc := c.anyPC()
	bias := c.rng.word() &^ 0xfff
	c.deepStack(pc, bias, func() uint64 { return uint64(c.anyPC()) + bias })
	m.seed = nil
	if c.rng.oneIn(8) {
		m.seed = new(uint64)
	}
	c.result.Walks++
	return c.compare(pc, "walk", m, 1+int(c.rng.below(maxWalk)), !c.rng.oneIn(4))
}

// anyPC returns a pc of any range.
func (c *checker) anyPC() dwarfcfa.Addr {
	r := &c.table.Ranges[c.rng.below(uint64(len(c.table.Ranges)))]
	return r.Start + dwarfcfa.Addr(c.rng.below(uint64(r.End-r.Start)))
}

// deepStack fills the stack with results of pc, which are run-time addresses to look
// up, and with pointers into the stack, and sets start to a frame there.
func (c *checker) deepStack(start dwarfcfa.Addr, bias uint64, pc func() uint64) {
	m := c.stack
	m.place(&c.rng)
	m.open(0, m.room)
	c.frameAt(start, bias, m)
	c.start.Reg[abi.RSP] = m.lo + c.rng.below(m.size)&^7
	// Only the part that a walk is likely to reach is filled again.
	begin := (c.start.Reg[abi.RSP] - m.lo) &^ 7
	for off := begin; off+8 <= m.size && off < begin+256; off += 8 {
		word := c.rng.word()
		switch word & 3 {
		case 0, 1:
			word = pc() + 1
		case 2:
			word = m.lo + c.rng.below(m.size)
		}
		m.put(off, word)
	}
}

// compare takes up to max steps from start, by the code and by the evaluator.
func (c *checker) compare(pc dwarfcfa.Addr, form string, m *target, max int, pcs bool) error {
	bias := m.bias
	*c.want = *c.start
	c.wantPCs = c.wantPCs[:0]
	c.want.Status = abi.StatusOK
	for len(c.wantPCs) < max {
		if c.table.Step(c.want, m, bias) != abi.StatusOK {
			break
		}
		c.wantPCs = append(c.wantPCs, c.want.Reg[abi.RIP])
	}
	if c.record != nil {
		*c.record = append(*c.record, kept{start: *c.start, want: *c.want, form: form, steps: len(c.wantPCs),
			pcs: pcs, window: *m})
	}
	return c.runCode(pc, form, m, max, pcs)
}

// runCode takes up to max steps from start by the code, and compares with the
// evaluator's result.
func (c *checker) runCode(pc dwarfcfa.Addr, form string, m *target, max int, pcs bool) error {
	c.result.Steps++
	bias := m.bias
	*c.got = *c.start
	var out *uint64
	if pcs {
		clear(c.pcs)
		out = &c.pcs[0]
	}
	n := c.obj.WalkRaw(c.got, m.raw(), bias, out, uint64(max))
	same := n == uint64(len(c.wantPCs)) && sameFrame(c.got, c.want)
	if pcs && same {
		for i, w := range c.wantPCs {
			same = same && c.pcs[i] == w
		}
		same = same && (max == maxWalk || c.pcs[len(c.wantPCs)] == 0)
	}
	if same {
		return nil
	}
	return fmt.Errorf("%w: pc %#x (%s): from %s: the code takes %d steps to %s, the table %d to %s; %s", ErrDisagree,
		uint64(pc), form,
		regsString(c.start), n, regsString(c.got), len(c.wantPCs), regsString(c.want), m)
}

// original compares a step of _eh_elf with its callback.
func (c *checker) original(pc dwarfcfa.Addr) error {
	m := c.mem
	c.frame(pc, m)
	return c.context(pc, c.deref, derefMemory{})
}

// direct compares a step of an _eh_elf without callback. It reads this process's
// own memory, so only rows whose words can be placed in the window are run; the
// others have been compared through the full interface.
func (c *checker) direct(pc dwarfcfa.Addr, row *dwarfcfa.Row) error {
	c.whole(pc, row)
	m := c.mem
	move := m.host - m.lo
	for i := range abi.RIP {
		c.start.Reg[i] += move
	}
	m.lo = m.host
	if row != nil && !c.placed(row) {
		return nil
	}
	return c.context(pc, 0, m)
}

// placed reports whether a step from start by row reads nothing but the window.
func (c *checker) placed(row *dwarfcfa.Row) bool {
	if row.CFA.Kind == dwarfcfa.CFAExpr || row.CFA.Reg == abi.RIP {
		return false
	}
	m := c.mem
	cfa := c.start.Reg[row.CFA.Reg] + uint64(row.CFA.Offset)
	for _, rule := range row.Regs {
		switch rule.Kind {
		case dwarfcfa.RuleExpression, dwarfcfa.RuleValExpression:
			return false
		case dwarfcfa.RuleOffset:
			if cfa+uint64(rule.Offset)-m.lo > m.size-8 {
				return false
			}
		}
	}
	return true
}

// contextCase is a state of _eh_elf, and the result of a step from it.
type contextCase struct {
	in    abi.Context // before the step
	flags uint8       // of the result
	want  abi.Regs    // registers of the result, where flags says so
	deref uintptr     // the callback; 0: none
}

// context compares a step of _eh_elf from the registers in start.
func (c *checker) context(pc dwarfcfa.Addr, deref uintptr, m dwarfcfa.WordReader) error {
	s := c.start
	s.Exact = 1
	s.Valid = 1<<abi.RIP | 1<<abi.RSP | 1<<abi.RBP | 1<<abi.RBX
	s.Reg[abi.RIP] = uint64(pc) + c.mem.bias
	k := contextCase{want: *s, deref: deref}
	k.in = abi.Context{Flags: uint8(c.rng.word()), RIP: s.Reg[abi.RIP], RSP: s.Reg[abi.RSP], RBP: s.Reg[abi.RBP],
		RBX: s.Reg[abi.RBX]}
	switch status := c.table.Step(&k.want, m, c.mem.bias); status {
	case abi.StatusOK:
		k.flags = abi.ContextRIP
		for _, f := range [...]struct{ valid, flag uint32 }{
			{1 << abi.RSP, abi.ContextRSP}, {1 << abi.RBP, abi.ContextRBP}, {1 << abi.RBX, abi.ContextRBX},
		} {
			if k.want.Valid&f.valid != 0 {
				k.flags |= uint8(f.flag)
			}
		}
	case abi.StatusOutermost:
	default:
		k.flags = abi.ContextError
	}
	if c.record != nil {
		*c.record = append(*c.record, kept{window: *c.mem, context: &k})
	}
	return c.runContext(pc, &k)
}

// runContext takes a step of _eh_elf and compares.
func (c *checker) runContext(pc dwarfcfa.Addr, k *contextCase) error {
	c.result.Steps++
	out := c.obj.StepContext(k.in, uint64(pc), k.deref)
	flags, w := k.flags, &k.want
	if out.Flags != flags || flags&abi.ContextRIP != 0 && out.RIP != w.Reg[abi.RIP] ||
		flags&abi.ContextRSP != 0 && out.RSP != w.Reg[abi.RSP] ||
		flags&abi.ContextRBP != 0 && out.RBP != w.Reg[abi.RBP] ||
		flags&abi.ContextRBX != 0 && out.RBX != w.Reg[abi.RBX] {
		return fmt.Errorf("%w: pc %#x (%s): from %+v: %+v, the table says flags %#x, %s", ErrDisagree, uint64(pc),
			abi.SymbolStep, k.in, out, flags, regsString(w))
	}
	return nil
}

// derefMemory is the memory that the deref thunk reads.
type derefMemory struct{}

// ReadWord gives what the thunk gives.
func (derefMemory) ReadWord(addr uint64) (uint64, bool) { return thunk.HashDeref(addr), true }

// sameFrame compares two frames. The values of invalid registers do not count.
func sameFrame(a, b *abi.Regs) bool {
	if a.Valid != b.Valid || a.Exact != b.Exact || a.Status != b.Status {
		return false
	}
	for i := range a.Reg {
		if a.Valid&(1<<i) != 0 && a.Reg[i] != b.Reg[i] {
			return false
		}
	}
	return true
}

// regsString writes the valid registers of a frame for messages.
func regsString(r *abi.Regs) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{%s", r.Status)
	for i, v := range r.Reg {
		if r.Valid&(1<<i) != 0 {
			fmt.Fprintf(&b, " %s=%#x", abi.RegName(i), v)
		}
	}
	fmt.Fprintf(&b, " exact=%d}", r.Exact)
	return b.String()
}
