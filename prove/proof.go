package prove

import (
	"strconv"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// This file holds what the parts of a proof share. Each part runs a piece of code from its invariant on; a place that
// the code leads to is added to owed, and proven once, however many ways lead there.

// proof is what the proofs of all parts share: the file and the table, the machine that runs the
// code on terms, the variables of the invariants, and the list of what is still to be proven.
type proof struct {
	t     *terms
	x     *exec
	im    *image
	table *dwarfcfa.Table
	base  uint64 // lookups subtract it from pcs: the table's lowest pc, rounded down to baseAlign
	v     vars
	owed  *owed

	// any and anyXMM are the registers of the machine where nothing is known of them.
	any    [16]term
	anyXMM [6][2]term
	result Result
}

// owed lists the places whose proof is still owed, by the part that proves them. A part that
// finds a path to that place has proven that the part's invariant holds there.
type owed struct {
	loads, lookups, segmentEnds, leaves          todo[uint64]
	slowFast, slowRow, cfas, rules, copies, ends todo[uint64]
	reads                                        todo[uint64]
	exprs                                        todo[exprJob]
}

// todo is a list without repetition. done counts the elements that are proven, from the first on.
type todo[K comparable] struct {
	list []K
	seen map[K]bool // elements of list
	done int        // elements before it are proven
}

// add appends k unless it is in the list.
func (w *todo[K]) add(k K) {
	if w.seen[k] {
		return
	}
	if w.seen == nil {
		w.seen = map[K]bool{}
	}
	w.seen[k] = true
	w.list = append(w.list, k)
}

// exprJob is the code of an expression, at addr.
type exprJob struct {
	addr uint64
	id   dwarfcfa.ExprID
}

// vars are the variables of the invariants.
type vars struct {
	args   arguments
	old    oldRegs
	slow   slowVars
	walk   loop // a walk between two steps
	shared loop // the same, or a step of _eh_elf
}

// arguments are what the exported functions are called with.
type arguments struct {
	ret, callerRBP                     term // of _eh_elf_walk and _eh_elf_chain_1, see docs/abi.md
	regs, mem, bias, pcsArg, max, next term // of _eh_elf_walk and _eh_elf_chain_1
	result, deref, pc                  term // of _eh_elf
}

// oldRegs is eh_elf_regs_t as long as nothing is written to it.
type oldRegs struct {
	regOf                   [numRegs]term
	valid, exactNow, status term
}

// slowVars are the variables of the slow path.
type slowVars struct {
	cfaHost, cfa          term // the CFA, as a host address and as the target's
	desc, state           term // the descriptor; which registers are valid, and have a value
	rule, exact           term // the register of a rule; exact of the caller
	unset                 term // the registers that are still to be copied
	exprValue, exprStatus term // what an expression's code leaves
	word, scratch         term // what a callback leaves; a register without a meaning
}

// newProof prepares the proof of a file: the machine and the variables, in a fixed order.
func newProof(im *image, table *dwarfcfa.Table) *proof {
	p := &proof{t: newTerms(), im: im, table: table, base: uint64(table.Low()) &^ (baseAlign - 1), owed: &owed{}}
	p.x = &exec{
		t: p.t, code: im.text, data: func(addr uint64, n int) []byte { return im.at(addr, uint64(n)) },
		sp: p.word("sp"), image: p.word("image"),
	}
	for i := range p.any {
		p.any[i] = p.word("reg" + strconv.Itoa(i))
	}
	for i := range p.anyXMM {
		p.anyXMM[i] = [2]term{p.word("xmm" + strconv.Itoa(i)), p.word("xmm" + strconv.Itoa(i) + "h")}
	}
	p.setVars()
	v := &p.v
	p.x.objects = []pointer{{v.args.regs, objRegs}, {v.args.mem, objMemory}, {v.slow.desc, objDesc},
		{v.args.result, objResult}, {v.slow.word, objWord}}
	p.x.walkRegs, p.x.regsField = v.args.regs, p.regsField
	p.x.may = permit{pcSlot: noTerm, limit: stackLimit, args: stackReturn, first: noTerm,
		indices: []index{{v.slow.rule, p.t.con(1)}}}
	return p
}

// word makes a variable of 64 bits.
func (p *proof) word(name string) term { return p.t.variable(name, ^uint64(0)) }

// setVars makes the variables. Those of a walk and of a step of _eh_elf are the same where both share code.
func (p *proof) setVars() {
	t, v, word := p.t, &p.v, p.word
	v.args = arguments{
		ret: word("return"), callerRBP: word("callerRBP"), regs: word("regs"), mem: word("mem"), bias: word("bias"),
		pcsArg: word("pcs"), max: word("max"), next: word("next"), result: word("result"), deref: word("deref"),
		pc: word("pc"),
	}
	v.slow = slowVars{
		cfaHost: word("cfaHost"), cfa: word("cfa"), desc: word("desc"), state: t.variable("state", 0x1ffff|0x1ffff<<32),
		unset: t.variable("unset", 0x1ffff), rule: t.variable("rule", 31), exact: t.variable("exactNext", 1),
		exprValue: word("exprValue"), exprStatus: t.variable("exprStatus", 0xffffffff), word: word("word"),
		scratch: word("scratch"),
	}
	v.old = oldRegs{valid: t.variable("valid", 0xffffffff), exactNow: t.variable("exact", 0xffff),
		status: t.variable("status", 0xffff)}
	for i := range v.old.regOf {
		v.old.regOf[i] = word(abi.RegName(i))
	}
	v.walk = loop{
		rel: word("rel"), mask: t.or(t.con(needed), t.variable("mask", inRegisters&^needed)), cursor: word("cursor"),
		base: word("base1"),
		pcs:  word("pcsEnd"), rsp: word("hostRSP"), delta: word("delta"), rbp: word("rbpNow"), first: word("first"),
		low:  word("low"),
		regs: v.args.regs, mem: v.args.mem, sync: word("sync"), high: word("high"), left: word("left"), next: v.args.next,
		result: noTerm,
	}
	v.walk.slotBase = v.walk.base
	for i, home := range homeOf {
		v.walk.home[i] = word(abi.RegName(home.dwarf) + "Now")
	}
	// A step of _eh_elf has its pc where a walk has the base, and anything in rcx.
	v.shared = v.walk
	v.shared.slotBase, v.shared.mask, v.shared.result = word("slotBase"), word("rcx"), word("slotResult")
}

// Result counts the parts of a proof.
type Result struct {
	Pages        int `json:"pages"`        // of the lookup
	Borders      int `json:"borders"`      // pcs at which the path of a lookup changes
	Rows         int `json:"rows"`         // heads of rows
	Expressions  int `json:"expressions"`  // programs of expressions
	Instructions int `json:"instructions"` // run on terms
}

// regsField returns what eh_elf_regs_t holds as long as nothing is written to it. A read across two
// fields is a load from memory, of which nothing else is known.
func (p *proof) regsField(off int64, size uint8) term {
	cut := func(v term, from int64) term { return p.t.low(p.t.shrConst(v, uint(8*(off-from))), size) }
	end := off + int64(size)
	switch {
	case off < abi.RegsValid && end <= off&^7+8:
		return cut(p.v.old.regOf[off/8], off&^7)
	case off >= abi.RegsValid && end <= abi.RegsExact:
		return cut(p.v.old.valid, abi.RegsValid)
	case off >= abi.RegsExact && end <= abi.RegsStatus:
		return cut(p.v.old.exactNow, abi.RegsExact)
	case off >= abi.RegsStatus:
		return cut(p.v.old.status, abi.RegsStatus)
	}
	return p.t.load(p.t.plus(p.v.args.regs, off), size)
}
