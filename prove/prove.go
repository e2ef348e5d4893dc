// Package prove shows that an eh_elf means its table, for every pc, all registers and
// all memory, from the bytes of the file alone. It runs nothing. PROOF.md describes the
// claim, the assumptions and the method.
package prove

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// ErrNotProven is wrapped by errors about files whose proof fails. The message names
// the pc or the place, the row, and the difference.
var ErrNotProven = errors.New("not proven")

// Result counts the parts of a proof.
type Result struct {
	Pages        int `json:"pages"`        // of the lookup
	Borders      int `json:"borders"`      // pcs at which the path of a lookup changes
	Rows         int `json:"rows"`         // heads of rows
	Expressions  int `json:"expressions"`  // programs of expressions
	Instructions int `json:"instructions"` // run on terms
}

// prover proves one file.
type prover struct {
	t     *terms
	x     *exec
	im    *image
	table *dwarfcfa.Table
	base  uint64 // pcs are looked up less this

	v      vars
	any    [16]term
	anyXMM [6][2]term

	noDeref bool
	packed  bool
	rows    []ownRange
	lastRow int // in rows, where ownRow found one
	result  Result

	loads, lookups, segmentEnds    todo
	slowFast, slowRow, cfas, nexts todo
	finals, ends, reads, leaves    todo
	heads                          heads
	pairs                          map[leafPair]bool
	exprs                          map[uint64]dwarfcfa.ExprID
	exprWork                       []exprJob
	descs                          map[descKey]bool
	fastLow, fastHigh              uint64 // code that runs with the target's registers in place
	searches                       map[pageTable]bool
	segmented                      map[uint64]bool // searches of segments
	packedTables                   map[uint64]packedTable
	longs                          map[uint64]uint64 // searches of long records: where they find the slots
}

// todo is a set of addresses whose proof is owed.
type todo struct {
	list []uint64
	done int
}

func (w *todo) add(pc uint64) {
	for _, at := range w.list {
		if at == pc {
			return
		}
	}
	w.list = append(w.list, pc)
}

// vars are the variables that proofs share.
type vars struct {
	ret, callerRBP, regs, mem, bias, pcsArg, max, next term
	result, deref, pc                                  term
	left, cfaHost, cfa, desc, state, w, rule, exact    term
	exprValue, exprStatus, word, scratch               term
	walk                                               loop // a walk between two steps
	shared                                             loop // the same, or a step of _eh_elf
	regOf                                              [numRegs]term
	valid, exactNow, status                            term
}

// Image proves an eh_elf against the table that it was made from. If the proof
// fails, the error wraps ErrNotProven.
func Image(file []byte, table *dwarfcfa.Table) (result Result, err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case tooLong:
			err = fmt.Errorf("%w: a value of the code grows too long to follow", ErrNotProven)
		case runtime.Error: // a fault of this package refuses a file; it never accepts one
			err = fmt.Errorf("%w: internal error: %v", ErrNotProven, e)
		default:
			panic(e)
		}
	}()
	im, err := openImage(file)
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	p := newProver(im, table)
	if err := p.prove(); err != nil {
		return p.result, fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	p.result.Instructions = p.x.steps
	return p.result, nil
}

// Sites returns the table of sites of an eh_elf that has been proven, and whether the file
// says that it has what exceptions need. Of the table's content nothing is proven.
func Sites(file []byte) (table []byte, has bool, err error) {
	im, err := openImage(file)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrNotProven, err)
	}
	return im.sites, im.note.Flags&abi.FlagSites != 0, nil
}

func newProver(im *image, table *dwarfcfa.Table) *prover {
	t := newTerms()
	p := &prover{
		t: t, im: im, table: table, base: uint64(table.Low()) &^ (baseAlign - 1),
		noDeref: im.note.Flags&abi.FlagNoDeref != 0, packed: im.note.Flags&abi.FlagPacked != 0,
		pairs: map[leafPair]bool{}, exprs: map[uint64]dwarfcfa.ExprID{},
		descs: map[descKey]bool{}, searches: map[pageTable]bool{}, segmented: map[uint64]bool{}, packedTables: map[uint64]packedTable{}, longs: map[uint64]uint64{}, fastLow: ^uint64(0),
	}
	all := ^uint64(0)
	v := func(name string, mask uint64) term { return t.variable(name, mask) }
	p.x = &exec{
		t: t, code: im.text, data: func(at uint64, n int) []byte { return im.at(at, uint64(n)) },
		sp: v("sp", all), image: v("image", all), pcSlot: noTerm, limit: stackLimit, args: stackReturn, first: noTerm,
	}
	for i := range p.any {
		p.any[i] = v("reg"+strconv.Itoa(i), all)
	}
	for i := range p.anyXMM {
		p.anyXMM[i] = [2]term{v("xmm"+strconv.Itoa(i), all), v("xmm"+strconv.Itoa(i)+"h", all)}
	}
	p.v = vars{
		ret: v("return", all), callerRBP: v("callerRBP", all), regs: v("regs", all), mem: v("mem", all), bias: v("bias", all),
		pcsArg: v("pcs", all), max: v("max", all), next: v("next", all), result: v("result", all), deref: v("deref", all), pc: v("pc", all),
		left: v("left", all), cfaHost: v("cfaHost", all), cfa: v("cfa", all), desc: v("desc", all), state: v("state", 0x1ffff|0x1ffff<<32),
		w: v("unset", 0x1ffff), rule: v("rule", 31), exact: v("exactNext", 1), exprValue: v("exprValue", all), exprStatus: v("exprStatus", 0xffffffff),
		word: v("word", all), scratch: v("scratch", all), valid: v("valid", 0xffffffff), exactNow: v("exact", 0xffff), status: v("status", 0xffff),
	}
	for i := range p.v.regOf {
		p.v.regOf[i] = v(abi.RegName(i), all)
	}
	w := &p.v.walk
	*w = loop{
		rel: v("rel", all), mask: t.or(t.con(needed), v("mask", inRegisters&^needed)), cursor: v("cursor", all), base: v("base1", all),
		pcs: v("pcsEnd", all), rsp: v("hostRSP", all), delta: v("delta", all), rbp: v("rbpNow", all), first: v("first", all), low: v("low", all),
		regs: p.v.regs, mem: p.v.mem, sync: v("sync", all), high: v("high", all), left: p.v.left, next: p.v.next, result: noTerm,
	}
	w.slotBase = w.base
	for i, at := range placeOf {
		w.place[i] = v(abi.RegName(at.dwarf)+"Now", all)
	}
	// A step of _eh_elf has its pc where a walk has the base, and anything in rcx.
	p.v.shared = *w
	p.v.shared.slotBase, p.v.shared.mask, p.v.shared.result = v("slotBase", all), v("rcx", all), v("slotResult", all)
	p.x.objects = []pointer{{p.v.regs, objRegs}, {p.v.mem, objMemory}, {p.v.desc, objDesc}, {p.v.result, objResult}, {p.v.word, objWord}}
	p.x.indices = []index{{p.v.rule, t.con(1)}}
	p.x.walkRegs = p.v.regs
	p.x.regsField = p.regsField
	p.x.ownRows = p.ownRow
	return p
}

// regsField returns what eh_elf_regs_t holds as long as nothing is written to it.
func (p *prover) regsField(off int64, size uint8) term {
	cut := func(v term, at int64) term { return p.t.low(p.t.shrConst(v, uint(8*(off-at))), size) }
	end := off + int64(size)
	switch {
	case off < abi.RegsValid && end <= off&^7+8:
		return cut(p.v.regOf[off/8], off&^7)
	case off >= abi.RegsValid && end <= abi.RegsExact:
		return cut(p.v.valid, abi.RegsValid)
	case off >= abi.RegsExact && end <= abi.RegsStatus:
		return cut(p.v.exactNow, abi.RegsExact)
	case off >= abi.RegsStatus:
		return cut(p.v.status, abi.RegsStatus)
	}
	return p.t.load(p.t.plus(p.v.regs, off), size)
}

// prove proves part by part. Each part finds places whose proof is owed to
// the parts after it.
func (p *prover) prove() error {
	if err := p.readOwnRows(); err != nil {
		return err
	}
	if err := p.identity(); err != nil {
		return err
	}
	for _, part := range []struct {
		name  string
		prove func() error
	}{
		{abi.SymbolWalk, p.walkEntry}, {abi.SymbolChain, p.chainEntry}, {abi.SymbolStep, p.stepEntry},
		{"set-up of the registers", p.each(&p.loads, p.load)},
		{"lookup", p.each(&p.lookups, p.lookup)},
		{"end of a segment", p.each(&p.segmentEnds, p.segmentEnd)},
		{"slow path of a row that is fast", p.each(&p.slowFast, p.slowFromFast)},
		{"slow path", p.each(&p.slowRow, p.slowFromRow)},
		{"CFA in the slow path", p.each(&p.cfas, p.slowCFA)},
		{"rules in the slow path", p.each(&p.nexts, p.slowRules)},
		{"end of the slow path", p.each(&p.finals, p.slowFinal)},
		{"end of the slow path", p.each(&p.ends, p.slowEnd)},
		{"end of a chain", p.each(&p.leaves, p.chainLeave)},
		{"end of a segment", p.each(&p.segmentEnds, p.segmentEnd)},
		{"set-up of the registers", p.each(&p.loads, p.load)},
		{"lookup", p.each(&p.lookups, p.lookup)},
		{"expressions", p.expressions},
		{"reading of words", p.each(&p.reads, p.readWord)},
		{"unwind information of the code", p.fastRows},
	} {
		if err := part.prove(); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	for _, w := range []*todo{&p.loads, &p.lookups, &p.segmentEnds, &p.slowFast, &p.slowRow, &p.cfas, &p.nexts, &p.finals, &p.ends, &p.reads, &p.leaves} {
		if w.done != len(w.list) {
			return fmt.Errorf("%#x is reached in a way that has no proof", w.list[w.done])
		}
	}
	return nil
}

func (p *prover) each(w *todo, prove func(pc uint64) error) func() error {
	return func() error {
		for ; w.done < len(w.list); w.done++ {
			if err := prove(w.list[w.done]); err != nil {
				return err
			}
		}
		return nil
	}
}

// identity checks what the note says of the table.
func (p *prover) identity() error {
	n, t := p.im.note, p.table
	if n.Low != uint64(t.Low()) || n.High != uint64(t.High()) || int64(n.Ranges) != int64(len(t.Ranges)) || int64(n.Rows) != int64(len(t.Rows)) {
		return imageError("the note says %#x..%#x, %d ranges, %d rows; the table has %#x..%#x, %d, %d",
			n.Low, n.High, n.Ranges, n.Rows, uint64(t.Low()), uint64(t.High()), len(t.Ranges), len(t.Rows))
	}
	return nil
}
