package asmgen

import (
	"github.com/twitchyliquid64/golang-asm/obj"
	"github.com/twitchyliquid64/golang-asm/obj/x86"

	"github.com/ehasm/ehasm/abi"
)

// The code that a walk goes on at, outside of the object, finds in rNextPC the address
// to look up, plus one, and in rLeave where to jump to end the walk, with rBase 0.
// The second entry of the next object takes the same rNextPC, and its load bias in
// rBias.
const (
	rNextPC = rPC
	rBias   = rCFA
	rLeave  = rCFA
)

// chainEntry emits abi.SymbolChain, which is _eh_elf_walk with the address to go on at
// in r9, and straight after its first jump the entry from another object's walk,
// which is jumped to with the walk's stack frame in place and its registers as the
// fast path has them. What is in memory stays as it is but for slotBase.
func (g *generator) chainEntry() {
	a := g.asm
	f := &g.frames.chain
	first, second := a.newLabel(), a.newLabel()
	a.bind(g.text.chain)
	a.jumpShort(obj.AJMP, first)
	f.save(g.text.chain)
	a.bind(second)
	f.push(second, abi.RBP)
	f.grow(second, frameSize)
	// The base of this object replaces the last one's; the pc becomes relative to it.
	a.addConst(int64(g.plan.Base)+1, rBias, rBase)
	a.store(rBase, slotBase)
	a.op(x86.ASUBQ, reg(rBase), reg(rPC))
	a.jump(obj.AJMP, g.find.lookup)
	a.bind(first)
	f.restore(first)
	a.pushes(f, reg(x86.REG_R9))
	a.branch(obj.AJMP, g.text.begin)
}

// chained emits the way out of the object where others may follow. Where none does,
// the walk ends at leave, with a base of 0: the pc is not relative to one.
func (a *assembler) chained(entry, leave label) {
	a.bind(entry)
	a.op(x86.AADDQ, reg(rBase), reg(rNextPC))
	a.leaLabel(leave, rLeave)
	a.op1(obj.AJMP, mem(x86.REG_SP, slotNext))
}
