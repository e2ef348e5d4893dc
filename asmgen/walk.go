package asmgen

import (
	"math"

	"github.com/twitchyliquid64/golang-asm/obj"
	"github.com/twitchyliquid64/golang-asm/obj/x86"

	"ehasm/abi"
)

// entry emits _eh_elf_walk up to the first lookup, its end, and what leads from
// one segment to the next. In C terms its arguments are (rdi regs, rsi mem, rdx
// bias, rcx pcs, r8 max).
func (g *generator) entry() {
	a := g.asm
	null, segment, setUp, zero := a.newLabel(), a.newLabel(), a.newLabel(), a.newLabel()
	const begin, end, left = x86.REG_CX, x86.REG_AX, x86.REG_R8
	a.bind(g.walk)
	g.prologue(&g.walkFrame)
	g.store(x86.REG_DI, slotRegs)
	g.store(x86.REG_SI, slotMem)
	g.store(x86.REG_DX, slotBias)
	a.op(x86.ATESTQ, reg(begin), reg(begin))
	a.branch(x86.AJEQ, null)
	a.op(x86.ALEAQ, memIndex(begin, left, 8, 0), reg(end))
	g.store(begin, slotBegin)
	a.op(x86.AMOVQ, imm(0), mem(x86.REG_SP, slotLeft))
	a.bind(setUp)
	g.store(end, slotEnd)
	g.store(begin, slotSync)
	a.op(x86.ACMPQ, reg(begin), reg(end))
	a.op(x86.AMOVQ, reg(begin), reg(rCursor))
	a.branch(x86.AJEQ, zero)
	g.loadState()

	a.bind(zero) // no steps asked for
	a.op(x86.AXORL, reg(rTmp), reg(rTmp))
	a.branch(obj.AJMP, g.exit)

	// The caller wants no pcs: they are written to slotNew, a segment of
	// pcsBuffer steps after the other. slotBegin moves so that its distance from
	// the cursor remains 8 bytes for each step taken; rdx holds the bytes so far.
	a.bind(null)
	a.op(x86.AXORL, reg(x86.REG_DX), reg(x86.REG_DX))
	a.bind(segment)
	a.op(x86.ALEAQ, mem(x86.REG_SP, slotNew), reg(begin))
	a.op(x86.AMOVL, imm(pcsBuffer), reg(end))
	a.op(x86.ACMPQ, reg(left), reg(end))
	a.op(x86.ACMOVQCS, reg(left), reg(end))
	a.op(x86.ASUBQ, reg(end), reg(left))
	g.store(left, slotLeft)
	a.op(x86.ALEAQ, memIndex(begin, end, 8, 0), reg(end))
	a.op(x86.AMOVQ, reg(begin), reg(left))
	a.op(x86.ASUBQ, reg(x86.REG_DX), reg(left))
	g.store(left, slotBegin)
	a.branch(obj.AJMP, setUp)

	// The segment is full: the end, or the next one.
	a.bind(g.segmentEnd)
	a.op(x86.ACMPQ, mem(x86.REG_SP, slotRegs), imm(0))
	a.jump(x86.AJEQ, g.stepDone)
	a.op(x86.ACMPQ, mem(x86.REG_SP, slotLeft), imm(0))
	a.branch(x86.AJEQ, zero)
	a.call(g.spill)
	g.loadSlot(slotRegs, x86.REG_DI)
	g.loadSlot(slotMem, x86.REG_SI)
	g.loadSlot(slotLeft, left)
	a.op(x86.ASUBQ, mem(x86.REG_SP, slotBegin), reg(x86.REG_DX))
	a.branch(obj.AJMP, segment)

	g.exits()
}

// exits emits the stops, and the one way out: edi is the status.
func (g *generator) exits() {
	a := g.asm
	for _, stop := range []struct {
		at     label
		status abi.Status
	}{
		{g.badRegister, abi.StatusBadRegister}, {g.notCompiled, abi.StatusNotCompiled},
		{g.outermost, abi.StatusOutermost}, {g.noInfo, abi.StatusNoInfo},
	} {
		a.bind(stop.at)
		a.op(x86.AMOVL, imm(int64(stop.status)), reg(rTmp))
		if stop.at != g.noInfo { // the most frequent one: the walk leaves the object
			a.branch(obj.AJMP, g.exit)
		}
	}
	a.bind(g.exit)
	g.loadSlot(slotRegs, spillRegs)
	a.op(x86.ATESTQ, reg(spillRegs), reg(spillRegs))
	a.jump(x86.AJEQ, g.stepStop)
	g.spillState(0)
	a.op(x86.AMOVW, reg(rTmp), mem(spillRegs, int64(abi.RegsStatus)))
	a.op(x86.AMOVQ, reg(rCursor), reg(x86.REG_AX))
	a.op(x86.ASUBQ, mem(x86.REG_SP, slotBegin), reg(x86.REG_AX))
	a.op(x86.ASHRQ, imm(3), reg(x86.REG_AX))
	g.epilogue(&g.walkFrame)
}

// prologue emits the set-up of the walk's stack frame.
func (g *generator) prologue(f *frameRows) {
	a := g.asm
	for i, p := range pushed {
		a.push(p.reg)
		f.push(a.bindNew(), 16+8*i, p.dwarf, -16-8*i)
	}
	a.op(x86.ASUBQ, imm(frameSize), reg(x86.REG_SP))
	f.grow(a.bindNew(), frameSize)
}

// epilogue emits its inverse and the return; code with the frame may follow.
func (g *generator) epilogue(f *frameRows) { g.epilogueOf(f, len(pushed)) }

// epilogueOf is epilogue where only the first n pushed registers have changed.
func (g *generator) epilogueOf(f *frameRows, n int) {
	a := g.asm
	f.save(a.bindNew())
	skip := frameSize + 8*(len(pushed)-n)
	a.op(x86.AADDQ, imm(int64(skip)), reg(x86.REG_SP))
	at := a.bindNew()
	f.grow(at, -skip)
	for _, p := range pushed[n:] {
		f.unchanged(p.dwarf)
	}
	for i := n - 1; i >= 0; i-- {
		a.op1(x86.APOPQ, reg(pushed[i].reg))
		f.pop(a.bindNew(), pushed[i].dwarf)
	}
	a.op0(obj.ARET)
	f.restore(a.bindNew())
}

// inRegisters are the registers whose validity is kept in ecx on the fast path.
const inRegisters = int64(abi.CalleeSaved | 1<<abi.RSP | 1<<abi.RIP)

// loadState emits load: from the registers in memory, at rdi, and the memory's
// description, at rsi, to the fast path and the first lookup. The cursor equals
// slotSync.
func (g *generator) loadState() {
	a := g.asm
	const needed = 1<<abi.RSP | 1<<abi.RIP
	slow, ready, rare, window, noBP := a.newLabel(), a.newLabel(), a.newLabel(), a.newLabel(), a.newLabel()
	const regs, memory, lo, size = x86.REG_DI, x86.REG_SI, x86.REG_R10, x86.REG_R8
	ax := reg(x86.REG_AX)
	a.bind(g.load)
	a.op(x86.AMOVL, mem(regs, int64(abi.RegsValid)), reg(rMask))
	a.op(x86.AMOVL, reg(rMask), ax)
	a.op(x86.AANDL, imm(needed), ax)
	a.op(x86.ACMPL, ax, imm(needed))
	a.branch(x86.AJNE, g.badRegister)
	a.op(x86.AANDL, imm(inRegisters), reg(rMask))
	for i, m := range machineReg {
		a.op(x86.AMOVQ, mem(regs, regOff(fastReg(i))), reg(m))
	}
	a.op(x86.AMOVQ, mem(regs, regOff(abi.RSP)), reg(rSP))

	// Is rsp in a window that the fast path can take? bytes and size have to be
	// below 2^60 each, and so their sum far from wrapping.
	a.op(x86.AMOVQ, mem(memory, int64(abi.MemoryLo)), reg(lo))
	a.op(x86.AMOVQ, mem(memory, int64(abi.MemorySize)), reg(size))
	a.op(x86.AMOVQ, mem(memory, int64(abi.MemoryBytes)), reg(rDelta))
	a.op(x86.AMOVQ, reg(rSP), ax)
	a.op(x86.ASUBQ, reg(lo), ax)
	a.op(x86.ACMPQ, ax, reg(size))
	a.branch(x86.AJHI, slow)
	a.op(x86.AMOVQ, reg(rDelta), ax)
	a.op(x86.AORQ, reg(size), ax)
	a.op(x86.ASHRQ, imm(60), ax)
	a.branch(x86.AJNE, rare)
	a.op(x86.AADDQ, reg(rDelta), reg(rEnd)) // rEnd is size
	g.store(rDelta, slotLow)
	a.bind(window)
	a.op(x86.ASUBQ, reg(lo), reg(rDelta))
	a.op(x86.AADDQ, reg(rDelta), reg(rSP))
	a.op(x86.ATESTB, imm(1<<abi.RBP), reg(rMask))
	a.branch(x86.AJEQ, noBP)
	a.bind(ready)
	a.op(x86.AMOVQ, imm(int64(uint64(g.plan.Base)+1)), reg(rBase))
	a.op(x86.AADDQ, mem(x86.REG_SP, slotBias), reg(rBase))
	a.op(x86.ACMPW, mem(regs, int64(abi.RegsExact)), imm(1)) // carry: not exact
	a.op(x86.AMOVQ, mem(regs, regOff(abi.RIP)), reg(rPC))
	a.op(x86.ASBBQ, reg(rBase), reg(rPC)) // pc - base - 1, less one if not exact
	a.op1(x86.AINCQ, reg(rPC))
	a.bind(g.lookup)
	g.findRow()

	a.bind(noBP)
	a.op(x86.AMOVQ, imm(outside), reg(x86.REG_BP))
	a.op(x86.ASUBQ, reg(rDelta), reg(x86.REG_BP))
	a.branch(obj.AJMP, ready)

	// All of memory is readable: no comparison may fail. Without a valid rbp
	// that would be wrong.
	a.bind(rare)
	a.op(x86.ACMPQ, reg(size), imm(-1))
	a.branch(x86.AJNE, slow)
	a.op(x86.ATESTB, imm(1<<abi.RBP), reg(rMask))
	a.branch(x86.AJEQ, slow)
	a.op(x86.AMOVQ, imm(math.MinInt64), ax)
	g.store(x86.REG_AX, slotLow)
	a.branch(obj.AJMP, window)

	a.bind(slow)
	g.noWindow()
	a.branch(obj.AJMP, ready)
}

// noWindow makes every comparison with the window fail: the CFA is above the end
// or, where it is 0, its slots are below the beginning. The difference of rSP and
// rDelta is still the target's rsp, which comes in rSP.
func (g *generator) noWindow() {
	a := g.asm
	a.op(x86.AMOVQ, imm(0), mem(x86.REG_SP, slotLow))
	a.op(x86.AXORL, reg(rEnd), reg(rEnd))
	a.op(x86.AMOVQ, imm(outside), reg(rDelta))
	a.op(x86.ASUBQ, reg(rSP), reg(rDelta))
	a.op(x86.AADDQ, reg(rDelta), reg(rSP))
}

// spillRegs holds the address of the registers in memory while they are spilled.
const spillRegs = x86.REG_R8

// spillState brings the registers in memory, at spillRegs, up to date. It keeps
// edi, the cursor and rCFA. frame is how much lower rsp is than in the walk.
func (g *generator) spillState(frame int64) {
	a := g.asm
	done := a.newLabel()
	a.op(x86.ACMPQ, reg(rCursor), mem(x86.REG_SP, frame+slotSync))
	a.branch(x86.AJEQ, done)
	a.op(x86.AADDQ, reg(rBase), reg(rPC))
	a.op(x86.AMOVQ, reg(rPC), mem(spillRegs, regOff(abi.RIP)))
	for i, m := range machineReg {
		a.op(x86.AMOVQ, reg(m), mem(spillRegs, regOff(fastReg(i))))
	}
	a.op(x86.ASUBQ, reg(rDelta), reg(rSP))
	a.op(x86.AMOVQ, reg(rSP), mem(spillRegs, regOff(abi.RSP)))
	a.op(x86.AMOVL, reg(rMask), mem(spillRegs, int64(abi.RegsValid)))
	// exact is 0; status is written on the way out.
	a.op(x86.AMOVL, imm(0), mem(spillRegs, int64(abi.RegsExact)))
	a.bind(done)
}

// spillCode emits the subroutine spill.
func (g *generator) spillCode() {
	const returnAddress = 8
	a := g.asm
	a.bind(g.spill)
	a.op(x86.AMOVQ, mem(x86.REG_SP, returnAddress+slotRegs), reg(spillRegs))
	g.spillState(returnAddress)
	a.op(x86.AMOVQ, reg(rCursor), mem(x86.REG_SP, returnAddress+slotSync))
	a.op0(obj.ARET)
}

// dispatchCode emits dispatch, the way from a step to the next row, with the
// caller's run-time pc in rax. lookup is the same from the relative pc on.
func (g *generator) dispatchCode() {
	g.asm.bind(g.dispatch)
	g.nextStep()
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
