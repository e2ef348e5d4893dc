package asmgen

import (
	"math"

	"github.com/twitchyliquid64/golang-asm/obj"
	"github.com/twitchyliquid64/golang-asm/obj/x86"

	"ehasm/abi"
)

// entry emits _eh_elf_walk up to the first lookup, its end, and what leads from
// one step to the next. In C terms its arguments are (rdi regs, rsi mem, rdx bias,
// rcx pcs, r8 max).
func (g *generator) entry() {
	a := g.asm
	begin, null, setUp := a.newLabel(), a.newLabel(), a.newLabel()
	a.bind(g.walk)
	a.op(x86.AMOVL, imm(int64(abi.AllRegs)), reg(x86.REG_R9))
	// An entry of _eh_elf: r9d holds the registers that are asked for.
	a.bind(g.walkWanted)
	for i, p := range pushed {
		a.push(p.reg)
		g.walkFrame.push(a.bindNew(), 16+8*i, p.dwarf, -16-8*i)
	}
	a.op(x86.ASUBQ, imm(frameSize), reg(x86.REG_SP))
	g.walkFrame.grow(a.bindNew(), frameSize)
	g.store(x86.REG_DI, slotRegs)
	g.store(x86.REG_SI, slotMem)
	g.store(x86.REG_DX, slotBias)
	g.store(x86.REG_R9, slotWant)
	a.op(x86.AXORL, reg(x86.REG_AX), reg(x86.REG_AX))
	g.store(x86.REG_AX, slotDone)
	a.op(x86.ATESTQ, reg(x86.REG_CX), reg(x86.REG_CX))
	a.branch(x86.AJEQ, null)
	a.op(x86.AMOVQ, reg(x86.REG_CX), reg(rCursor))
	a.op(x86.ALEAQ, memIndex(x86.REG_CX, x86.REG_R8, 8, 0), reg(x86.REG_R8))
	g.store(x86.REG_AX, slotLeft)
	a.bind(setUp)
	g.store(x86.REG_R8, slotEnd)
	g.store(rCursor, slotBegin)
	g.store(rCursor, slotSync)
	a.op(x86.ACMPQ, reg(rCursor), reg(x86.REG_R8))
	a.jump(x86.AJNE, g.load)
	a.op(x86.AXORL, reg(rTmp), reg(rTmp)) // no steps asked for
	a.jump(obj.AJMP, g.exit)

	// The caller wants no pcs: they are written to slotNew, a segment of
	// pcsBuffer steps after the other.
	a.bind(null)
	a.op(x86.ALEAQ, mem(x86.REG_SP, slotNew), reg(rCursor))
	a.bind(begin)
	a.op(x86.AMOVL, imm(pcsBuffer), reg(x86.REG_AX))
	a.op(x86.ACMPQ, reg(x86.REG_R8), reg(x86.REG_AX))
	a.op(x86.ACMOVQCS, reg(x86.REG_R8), reg(x86.REG_AX))
	a.op(x86.ASUBQ, reg(x86.REG_AX), reg(x86.REG_R8))
	g.store(x86.REG_R8, slotLeft)
	a.op(x86.ALEAQ, memIndex(rCursor, x86.REG_AX, 8, 0), reg(x86.REG_R8))
	a.branch(obj.AJMP, setUp)

	// The segment is full: the end, or the next one.
	a.bind(g.segmentEnd)
	a.op(x86.AXORL, reg(rTmp), reg(rTmp))
	a.op(x86.ACMPQ, mem(x86.REG_SP, slotLeft), imm(0))
	a.jump(x86.AJEQ, g.exit)
	a.call(g.spill)
	a.op(x86.ASUBQ, mem(x86.REG_SP, slotBegin), reg(rCursor))
	a.op(x86.ASHRQ, imm(3), reg(rCursor))
	a.op(x86.AADDQ, reg(rCursor), mem(x86.REG_SP, slotDone))
	g.loadSlot(slotBegin, rCursor)
	g.loadSlot(slotLeft, x86.REG_R8)
	a.branch(obj.AJMP, begin)

	// Stops, and the one way out: edi is the status.
	a.bind(g.badRegister)
	a.op(x86.AMOVL, imm(int64(abi.StatusBadRegister)), reg(rTmp))
	a.branch(obj.AJMP, g.exit)
	a.bind(g.notCompiled)
	a.op(x86.AMOVL, imm(int64(abi.StatusNotCompiled)), reg(rTmp))
	a.branch(obj.AJMP, g.exit)
	a.bind(g.outermost)
	a.op(x86.AMOVL, imm(int64(abi.StatusOutermost)), reg(rTmp))
	a.branch(obj.AJMP, g.exit)
	a.bind(g.noInfo)
	a.op(x86.AMOVL, imm(int64(abi.StatusNoInfo)), reg(rTmp))
	a.bind(g.exit)
	a.call(g.spill)
	g.loadSlot(slotRegs, x86.REG_CX)
	a.op(x86.AMOVW, reg(rTmp), mem(x86.REG_CX, int64(abi.RegsStatus)))
	a.op(x86.AMOVQ, reg(rCursor), reg(x86.REG_AX))
	a.op(x86.ASUBQ, mem(x86.REG_SP, slotBegin), reg(x86.REG_AX))
	a.op(x86.ASHRQ, imm(3), reg(x86.REG_AX))
	a.op(x86.AADDQ, mem(x86.REG_SP, slotDone), reg(x86.REG_AX))
	g.walkFrame.save(a.bindNew())
	a.op(x86.AADDQ, imm(frameSize), reg(x86.REG_SP))
	g.walkFrame.grow(a.bindNew(), -frameSize)
	for i := len(pushed) - 1; i >= 0; i-- {
		a.op1(x86.APOPQ, reg(pushed[i].reg))
		g.walkFrame.pop(a.bindNew(), pushed[i].dwarf)
	}
	a.op0(obj.ARET)
	g.walkFrame.restore(a.bindNew())
}

// loadState emits load: from the registers in memory to the fast path. The
// cursor equals slotSync.
func (g *generator) loadState() {
	a := g.asm
	slow, ready, full, window := a.newLabel(), a.newLabel(), a.newLabel(), a.newLabel()
	const regs, lo, size = x86.REG_DI, x86.REG_R10, x86.REG_R8
	a.bind(g.load)
	g.loadSlot(slotRegs, regs)
	a.op(x86.AMOVL, mem(regs, int64(abi.RegsValid)), reg(x86.REG_CX))
	a.op(x86.AMOVL, reg(x86.REG_CX), reg(x86.REG_AX))
	a.op1(x86.ANOTL, reg(x86.REG_AX))
	a.op(x86.ATESTL, imm(1<<abi.RSP|1<<abi.RIP), reg(x86.REG_AX))
	a.branch(x86.AJNE, g.badRegister)
	g.maskFromValid()
	for i, m := range machineReg {
		a.op(x86.AMOVQ, mem(regs, regOff(fastReg(i))), reg(m))
	}
	a.op(x86.AMOVQ, mem(regs, regOff(abi.RSP)), reg(rSP))

	// Is rsp in a window that the fast path can take?
	g.loadSlot(slotMem, rBase)
	a.op(x86.AMOVQ, mem(rBase, int64(abi.MemoryLo)), reg(lo))
	a.op(x86.AMOVQ, mem(rBase, int64(abi.MemorySize)), reg(size))
	a.op(x86.AMOVQ, mem(rBase, int64(abi.MemoryBytes)), reg(rDelta))
	a.op(x86.AMOVQ, reg(rSP), reg(x86.REG_AX))
	a.op(x86.ASUBQ, reg(lo), reg(x86.REG_AX))
	a.op(x86.ACMPQ, reg(x86.REG_AX), reg(size))
	a.branch(x86.AJHI, slow)
	a.op(x86.AMOVQ, reg(size), reg(rBase))
	a.op1(x86.AINCQ, reg(rBase))
	a.branch(x86.AJEQ, full)
	// bytes and size each below maxWindow, and so their sum far from wrapping.
	a.op(x86.AMOVQ, reg(rDelta), reg(x86.REG_AX))
	a.op(x86.AORQ, reg(size), reg(x86.REG_AX))
	a.op(x86.ASHRQ, imm(60), reg(x86.REG_AX))
	a.branch(x86.AJNE, slow)
	a.op(x86.AADDQ, reg(rDelta), reg(rEnd)) // rEnd is size
	g.store(rDelta, slotLow)
	a.bind(window)
	a.op(x86.ASUBQ, reg(lo), reg(rDelta))
	a.op(x86.AADDQ, reg(rDelta), reg(rSP))
	a.op(x86.ATESTB, imm(int64(maskBit[1])), reg(x86.REG_CX))
	a.branch(x86.AJNE, ready)
	a.op(x86.AMOVQ, imm(outside), reg(x86.REG_BP))
	a.op(x86.ASUBQ, reg(rDelta), reg(x86.REG_BP))
	a.branch(obj.AJMP, ready)

	// All of memory is readable: no comparison may fail. Without a valid rbp
	// that would be wrong.
	a.bind(full)
	a.op(x86.ATESTB, imm(int64(maskBit[1])), reg(x86.REG_CX))
	a.branch(x86.AJEQ, slow)
	a.op(x86.AMOVQ, imm(math.MinInt64), reg(x86.REG_AX))
	g.store(x86.REG_AX, slotLow)
	a.branch(obj.AJMP, window)

	// No window: every comparison fails, and the difference of rSP and rDelta is
	// still the target's rsp.
	a.bind(slow)
	a.op(x86.AMOVQ, imm(math.MaxInt64), reg(x86.REG_AX))
	g.store(x86.REG_AX, slotLow)
	a.op(x86.AXORL, reg(rEnd), reg(rEnd))
	a.op(x86.AMOVQ, imm(outside), reg(rDelta))
	a.op(x86.AXCHGQ, reg(rSP), reg(rDelta))
	a.op1(x86.ANEGQ, reg(rDelta))
	a.op(x86.AADDQ, reg(rSP), reg(rDelta))

	a.bind(ready)
	a.op(x86.AMOVQ, imm(int64(uint64(g.plan.Base)+1)), reg(rBase))
	a.op(x86.AADDQ, mem(x86.REG_SP, slotBias), reg(rBase))
	a.op(x86.ACMPW, mem(regs, int64(abi.RegsExact)), imm(1)) // carry: not exact
	a.op(x86.AMOVQ, mem(regs, regOff(abi.RIP)), reg(rPC))
	a.op(x86.ASBBQ, reg(rBase), reg(rPC)) // pc - base - 1, less one if not exact
	a.op1(x86.AINCQ, reg(rPC))
	a.jump(obj.AJMP, g.lookup)
}

// maskFromValid turns abi.Regs.Valid in ecx into the mask in cl. It clobbers rax.
func (g *generator) maskFromValid() {
	a := g.asm
	a.op(x86.AMOVL, reg(x86.REG_CX), reg(x86.REG_AX))
	a.op(x86.ASHRL, imm(8), reg(x86.REG_AX))
	a.op(x86.AANDL, imm(0xf0), reg(x86.REG_AX)) // r12 to r15
	a.op(x86.ATESTB, imm(1<<abi.RBP), reg(x86.REG_CX))
	a.op1(x86.ASETNE, reg(x86.REG_R10))
	a.op(x86.AANDL, imm(1<<abi.RBX), reg(x86.REG_CX))
	a.op(x86.AORL, reg(x86.REG_AX), reg(x86.REG_CX))
	a.op(x86.AMOVBLZX, reg(x86.REG_R10), reg(x86.REG_R10))
	a.op(x86.ALEAL, memIndex(x86.REG_CX, x86.REG_R10, 4, 0), reg(x86.REG_CX))
}

// spillState emits the subroutine spill: the registers in memory are brought up
// to date. It keeps edi, the cursor and rCFA.
func (g *generator) spillState() {
	a := g.asm
	done := a.newLabel()
	const frame = 8 // the return address
	a.bind(g.spill)
	a.op(x86.ACMPQ, reg(rCursor), mem(x86.REG_SP, frame+slotSync))
	a.branch(x86.AJEQ, done)
	a.op(x86.AADDQ, reg(rBase), reg(rPC))
	a.op(x86.AMOVQ, mem(x86.REG_SP, frame+slotRegs), reg(rBase))
	a.op(x86.AMOVQ, reg(rPC), mem(rBase, regOff(abi.RIP)))
	for i, m := range machineReg {
		a.op(x86.AMOVQ, reg(m), mem(rBase, regOff(fastReg(i))))
	}
	a.op(x86.ASUBQ, reg(rDelta), reg(rSP))
	a.op(x86.AMOVQ, reg(rSP), mem(rBase, regOff(abi.RSP)))
	// valid = mask's r12 to r15 << 8 | rbx | rbp << 4 | rsp | rip
	a.op(x86.AMOVBLZX, reg(x86.REG_CX), reg(x86.REG_CX))
	a.op(x86.AMOVL, reg(x86.REG_CX), reg(x86.REG_AX))
	a.op(x86.AMOVL, reg(x86.REG_CX), reg(x86.REG_R9))
	a.op(x86.AANDL, imm(0xf0), reg(x86.REG_AX))
	a.op(x86.ASHLL, imm(8), reg(x86.REG_AX))
	a.op(x86.AANDL, imm(int64(maskBit[0])), reg(x86.REG_R9))
	a.op(x86.AORL, reg(x86.REG_R9), reg(x86.REG_AX))
	a.op(x86.AANDL, imm(int64(maskBit[1])), reg(x86.REG_CX))
	a.op(x86.ASHLL, imm(4), reg(x86.REG_CX))
	a.op(x86.AORL, reg(x86.REG_CX), reg(x86.REG_AX))
	a.op(x86.AORL, imm(1<<abi.RSP|1<<abi.RIP), reg(x86.REG_AX))
	a.op(x86.AMOVL, reg(x86.REG_AX), mem(rBase, int64(abi.RegsValid)))
	a.op(x86.AMOVW, imm(0), mem(rBase, int64(abi.RegsExact)))
	a.op(x86.AMOVQ, reg(rCursor), mem(x86.REG_SP, frame+slotSync))
	a.bind(done)
	a.op0(obj.ARET)
}

// dispatchCode emits dispatch, the way from a step to the next row, with the
// caller's run-time pc in rax, and lookup, the same from the relative pc on.
func (g *generator) dispatchCode() {
	g.asm.bind(g.dispatch)
	g.nextStep()
	g.asm.bind(g.lookup)
	g.findRow()
}

// nextStep notes the caller's pc and ends the segment if it is full.
func (g *generator) nextStep() {
	a := g.asm
	a.op(x86.AMOVQ, reg(rPC), mem(rCursor, 0))
	a.op(x86.AADDQ, imm(8), reg(rCursor))
	a.op(x86.ASUBQ, reg(rBase), reg(rPC))
	a.op(x86.ACMPQ, reg(rCursor), mem(x86.REG_SP, slotEnd))
	a.jump(x86.AJEQ, g.segmentEnd)
}

// findRow jumps to the row block of the relative pc.
func (g *generator) findRow() {
	a := g.asm
	a.op(x86.ACMPQ, reg(rPC), imm(int64(g.plan.High-g.plan.Base)))
	a.jump(x86.AJCC, g.noInfo)
	g.layout.lookup()
}

func (g *generator) store(r int16, slot int64) {
	g.asm.op(x86.AMOVQ, reg(r), mem(x86.REG_SP, slot))
}

func (g *generator) loadSlot(slot int64, r int16) {
	g.asm.op(x86.AMOVQ, mem(x86.REG_SP, slot), reg(r))
}
