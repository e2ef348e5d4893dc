package asmgen

import (
	"github.com/twitchyliquid64/golang-asm/obj"
	"github.com/twitchyliquid64/golang-asm/obj/x86"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen/plan"
)

// This file emits _eh_elf_walk: its entry, the loading and the spilling of registers, the ends, and the way from a pc
// to its row.

// entry emits _eh_elf_walk up to the first lookup, its end, and the code
// between segments. In C terms its arguments are (rdi regs, rsi mem, rdx bias,
// rcx pcs, r8 max).
func (g *generator) entry() {
	a := g.asm
	null, segment, setUp, zero := a.newLabel(), a.newLabel(), a.newLabel(), a.newLabel()
	const pcs, steps, left = x86.REG_CX, x86.REG_R9, x86.REG_R8
	a.bind(g.text.walk)
	a.prologue(&g.frames.walk, imm(0), g.text.begin)
	// First what needs no memory: stores straight behind the prologue cost 5 % of a walk's time.
	a.addConst(int64(g.plan.Base)+1, x86.REG_DX, x86.REG_AX)
	a.op(x86.ATESTQ, reg(pcs), reg(pcs))
	a.branch(x86.AJEQ, null)
	a.op(x86.AMOVQ, reg(left), reg(rCursor))
	a.op(x86.ALEAQ, memIndex(pcs, left, 8, 0), reg(rPCs))
	a.op1(x86.ANEGQ, reg(rCursor))
	a.store(rCursor, slotFirst)
	a.bind(setUp) // with the flags of the cursor
	a.store(x86.REG_DI, slotRegs)
	a.store(x86.REG_SI, slotMem)
	a.store(x86.REG_AX, slotBase)
	a.store(rCursor, slotSync)
	a.branch(x86.AJEQ, zero)
	g.loadState()

	a.bind(zero) // no steps asked for
	a.op(x86.AXORL, reg(rTmp), reg(rTmp))
	a.branch(obj.AJMP, g.find.exit)

	// pcs is null: they are written to slotNew, in segments of pcsBuffer steps.
	a.bind(null)
	a.op(x86.AMOVQ, imm(0), mem(x86.REG_SP, slotFirst))
	a.bind(segment)
	a.op(x86.AMOVL, imm(pcsBuffer), reg(steps))
	a.op(x86.ACMPQ, reg(left), reg(steps))
	a.op(x86.ACMOVQCS, reg(left), reg(steps))
	a.op(x86.ASUBQ, reg(steps), reg(left))
	a.store(left, slotLeft)
	a.op(x86.ALEAQ, memIndex(x86.REG_SP, steps, 8, slotNew), reg(rPCs))
	a.op(x86.ASUBQ, reg(steps), mem(x86.REG_SP, slotFirst))
	a.op(x86.AMOVQ, reg(steps), reg(rCursor))
	a.op1(x86.ANEGQ, reg(rCursor))
	a.branch(obj.AJMP, setUp)

	// The segment is full: the end, or the next one if pcs go to this frame, where
	// no caller's can be.
	a.bind(g.find.segmentEnd)
	a.ifStep(g.stepped.done)
	a.op(x86.AMOVQ, reg(rPCs), reg(rTmp))
	a.op(x86.ASUBQ, reg(x86.REG_SP), reg(rTmp))
	a.op(x86.ACMPQ, reg(rTmp), imm(frameSize))
	a.branch(x86.AJCC, zero)
	a.op(x86.ACMPQ, mem(x86.REG_SP, slotLeft), imm(0))
	a.branch(x86.AJEQ, zero)
	a.call(g.slow.spill)
	a.loadSlot(slotRegs, x86.REG_DI)
	a.loadSlot(slotMem, x86.REG_SI)
	a.loadSlot(slotLeft, left)
	a.loadSlot(slotBase, x86.REG_AX)
	a.branch(obj.AJMP, segment)

	g.exits()
}

// ifStep emits a jump to where _eh_elf's own step goes on, if this is one.
func (a *assembler) ifStep(to label) {
	a.op(x86.ACMPQ, mem(x86.REG_SP, slotRegs), imm(0))
	a.jump(x86.AJEQ, to)
}

// addConst stores the register from, plus c, in the register to. lea takes 32 bits, sign-extended; objects linked above
// 2 GB need more.
func (a *assembler) addConst(c int64, from, to int16) {
	if c == int64(int32(c)) {
		a.op(x86.ALEAQ, mem(from, c), reg(to))
		return
	}
	a.op(x86.AMOVQ, imm(c), reg(to))
	a.op(x86.AADDQ, reg(from), reg(to))
}

// exits emits the stops, and the only exit: edi is the status.
func (g *generator) exits() {
	a := g.asm
	for _, stop := range []struct {
		label  label
		status abi.Status
	}{
		{g.stop.badRegister, abi.StatusBadRegister}, {g.stop.notCompiled, abi.StatusNotCompiled},
		{g.stop.outermost, abi.StatusOutermost},
	} {
		a.bind(stop.label)
		a.op(x86.AMOVL, imm(int64(stop.status)), reg(rTmp))
		a.branch(obj.AJMP, g.find.exit)
	}
	chained, leave := a.newLabel(), a.newLabel()
	a.bind(g.stop.noInfo) // mostly: the walk leaves the object
	a.op(x86.ACMPQ, mem(x86.REG_SP, slotNext), imm(0))
	a.branch(x86.AJNE, chained)
	a.bind(leave)
	a.op(x86.AMOVL, imm(int64(abi.StatusNoInfo)), reg(rTmp))
	// How most walks end, in one piece.
	untaken := a.newLabel()
	a.loadSlot(slotRegs, spillRegs)
	a.op(x86.ACMPQ, reg(rCursor), mem(x86.REG_SP, slotSync))
	a.branch(x86.AJEQ, untaken)
	a.spillState()
	a.op(x86.AMOVW, reg(rTmp), mem(spillRegs, int64(abi.RegsStatus)))
	g.leaveWalk()
	a.bind(untaken)
	// In _eh_elf's own step, which has no registers in memory, the cursor has not
	// moved when it comes here.
	same := a.newLabel()
	done := a.newLabel()
	a.bind(g.find.exit)
	a.loadSlot(slotRegs, spillRegs)
	a.op(x86.ACMPQ, reg(rCursor), mem(x86.REG_SP, slotSync))
	a.branch(x86.AJEQ, same)
	a.spillState()
	a.bind(done)
	a.op(x86.AMOVW, reg(rTmp), mem(spillRegs, int64(abi.RegsStatus)))
	g.leaveWalk()
	a.bind(same)
	a.op(x86.ATESTQ, reg(spillRegs), reg(spillRegs))
	a.branch(x86.AJNE, done)
	a.jump(obj.AJMP, g.stepped.stop)
	a.chained(chained, leave)
}

// leaveWalk emits the return with the number of steps.
func (g *generator) leaveWalk() {
	g.asm.op(x86.AMOVQ, reg(rCursor), reg(x86.REG_AX))
	g.asm.op(x86.ASUBQ, mem(x86.REG_SP, slotFirst), reg(x86.REG_AX))
	g.asm.epilogue(&g.frames.walk)
}

// prologue emits the set-up of the stack frame, with next in slotNext. It is the
// same in all functions, since they share code. From common on nothing depends on
// next.
func (a *assembler) prologue(f *frameRows, next obj.Addr, common label) {
	a.pushes(f, next)
	a.bind(common)
	a.op(x86.ASUBQ, imm(slotNext), reg(x86.REG_SP))
	f.grow(a.bindNew(), slotNext)
}

// pushes emits the part of the prologue before common.
func (a *assembler) pushes(f *frameRows, next obj.Addr) {
	a.push(reg(rBP))
	f.push(a.bindNew(), abi.RBP)
	a.push(next)
	f.grow(a.bindNew(), frameSize-slotNext)
}

// epilogue emits its inverse and the return; code with the frame may follow.
func (a *assembler) epilogue(f *frameRows) {
	f.save(a.bindNew())
	a.op(x86.AADDQ, imm(frameSize), reg(x86.REG_SP))
	f.grow(a.bindNew(), -frameSize)
	a.op1(x86.APOPQ, reg(rBP))
	f.pop(a.bindNew(), abi.RBP)
	a.op0(obj.ARET)
	f.restore(a.bindNew())
}

// inRegisters are the registers whose validity is kept in ecx on the fast path.
const inRegisters = int64(abi.CalleeSaved | 1<<abi.RSP | 1<<abi.RIP)

// movePairs emits the moves between registers in memory, at base, and their places.
func (a *assembler) movePairs(base int16, load bool) {
	for i := 0; i < plan.NumFast; i++ {
		if i == fastBP {
			continue
		}
		as, half := x86.AMOVLPS, reg(homes[i].xmm)
		if pairs(i) {
			as = x86.AMOVUPS
		}
		if m := mem(base, regOff(fastReg(i))); load {
			a.op(as, m, half)
		} else {
			a.op(as, half, m)
		}
		if as == x86.AMOVUPS {
			i++
		}
	}
}

// loadState emits load: from the registers in memory, at rdi, and the memory's
// description, at rsi, to the fast path and the first lookup. The cursor equals
// slotSync.
func (g *generator) loadState() {
	a := g.asm
	const needed = 1<<abi.RSP | 1<<abi.RIP
	const usual = needed | 1<<abi.RBP
	slow, ready, rare, window, unusual := a.newLabel(), a.newLabel(), a.newLabel(), a.newLabel(), a.newLabel()
	const regs, memory, end = x86.REG_DI, x86.REG_SI, x86.REG_R10 // end: at first the size
	ax, lo := reg(x86.REG_AX), mem(memory, int64(abi.MemoryLo))
	a.bind(g.find.load)
	a.movePairs(regs, true)
	a.op(x86.AMOVQ, mem(regs, regOff(abi.RBP)), reg(rBP))
	a.op(x86.AMOVQ, mem(regs, regOff(abi.RSP)), reg(rSP))

	// Is rsp in a window that the fast path can take? Its end must be below 2^63.
	// Whether a window that wraps is readable is up to the caller.
	a.op(x86.AMOVQ, mem(memory, int64(abi.MemoryBytes)), reg(rDelta))
	a.op(x86.AMOVQ, mem(memory, int64(abi.MemorySize)), reg(end))
	a.op(x86.AMOVQ, reg(rSP), ax)
	a.op(x86.ASUBQ, lo, ax)
	a.op(x86.ACMPQ, ax, reg(end))
	a.branch(x86.AJHI, slow)
	a.store(rDelta, slotLow)
	a.op(x86.AADDQ, reg(rDelta), reg(end))
	a.branch(x86.AJMI, rare)
	a.op1(x86.AINCQ, reg(end)) // a CFA at the end is right: its frame lies below
	a.bind(window)
	a.store(end, slotHigh)
	a.op(x86.ASUBQ, lo, reg(rDelta))
	a.op(x86.AADDQ, reg(rDelta), reg(rSP))
	a.bind(ready)
	// Are rsp, rip and rbp valid? If one is not, the subtraction borrows from bits
	// that are not in the mask.
	a.op(x86.AMOVL, mem(regs, int64(abi.RegsValid)), reg(rMask))
	a.op(x86.AANDL, imm(inRegisters), reg(rMask))
	a.op(x86.ALEAL, mem(rMask, -usual), ax)
	a.op(x86.ATESTL, imm(^(inRegisters &^ usual)), ax)
	a.branch(x86.AJNE, unusual)
	located := a.bindNew()
	a.loadSlot(slotBase, rBase)
	a.op(x86.ACMPW, mem(regs, int64(abi.RegsExact)), imm(1)) // carry: not exact
	a.op(x86.AMOVQ, mem(regs, regOff(abi.RIP)), reg(rPC))
	a.op(x86.ASBBQ, reg(rBase), reg(rPC)) // pc - base - 1, less one if not exact
	a.op1(x86.AINCQ, reg(rPC))
	a.bind(g.find.lookup)
	g.findRow()

	a.bind(unusual)
	a.op(x86.AMOVL, reg(rMask), ax)
	a.op(x86.AANDL, imm(needed), ax)
	a.op(x86.ACMPL, ax, imm(needed))
	a.branch(x86.AJNE, g.stop.badRegister)
	a.op(x86.AMOVQ, imm(outside), reg(rBP))
	a.op(x86.ASUBQ, reg(rDelta), reg(rBP))
	a.branch(obj.AJMP, located)

	// A window from the host's address 0 over at least its lower half, such as all of
	// memory: the fast path takes the lower half, in which no sum with an offset wraps.
	a.bind(rare)
	a.op(x86.ATESTQ, reg(rDelta), reg(rDelta))
	a.branch(x86.AJNE, slow)
	a.op(x86.AMOVQ, ax, reg(end))
	a.lowerHalf(end)
	a.branch(obj.AJMP, window)

	a.bind(slow)
	a.noWindow()
	a.branch(obj.AJMP, ready)
}

// lowerHalf turns the frame's rsp, a host address, into the end of the lower half of
// memory, or 0, which fails every comparison, if rsp is not in it.
func (a *assembler) lowerHalf(r int16) {
	a.op1(x86.ANOTQ, reg(r))
	a.op(x86.ASHRQ, imm(63), reg(r))
	a.op(x86.ASHLQ, imm(63), reg(r))
}

// noWindow makes every comparison with the window's end fail.
func (a *assembler) noWindow() {
	a.op(x86.AXORL, reg(rDelta), reg(rDelta))
	a.store(rDelta, slotHigh)
}

// spillRegs holds the address of the registers in memory while they are spilled.
const spillRegs = x86.REG_R8

// spillState brings the registers in memory, at spillRegs, up to date. It keeps
// edi, the cursor and rCFA.
func (a *assembler) spillState() {
	a.op(x86.AADDQ, reg(rBase), reg(rPC))
	a.op(x86.AMOVQ, reg(rPC), mem(spillRegs, regOff(abi.RIP)))
	a.movePairs(spillRegs, false)
	a.op(x86.AMOVQ, reg(rBP), mem(spillRegs, regOff(abi.RBP)))
	a.op(x86.ASUBQ, reg(rDelta), reg(rSP))
	a.op(x86.AMOVQ, reg(rSP), mem(spillRegs, regOff(abi.RSP)))
	// exact, after it, is 0, as is the upper half of rMask; status is written on the way out.
	a.op(x86.AMOVQ, reg(rMask), mem(spillRegs, int64(abi.RegsValid)))
}

// spillCode emits the subroutine spill.
func (g *generator) spillCode() {
	const returnAddress = 8
	a := g.asm
	done := a.newLabel()
	a.bind(g.slow.spill)
	a.op(x86.ACMPQ, reg(rCursor), mem(x86.REG_SP, returnAddress+slotSync))
	a.branch(x86.AJEQ, done)
	a.op(x86.AMOVQ, reg(rCursor), mem(x86.REG_SP, returnAddress+slotSync))
	a.op(x86.AMOVQ, mem(x86.REG_SP, returnAddress+slotRegs), reg(spillRegs))
	a.spillState()
	a.bind(done)
	a.op0(obj.ARET)
}

// dispatchCode emits dispatch, the way from a step to the next row, with the
// caller's run-time pc in rax. lookup is the same from the relative pc on.
func (g *generator) dispatchCode() {
	g.asm.bind(g.find.dispatch)
	g.nextStep()
	g.findRow()
}

// nextStep stores the caller's pc and ends the segment if it is full. The cursor counts from minus the number of steps
// up to 0, so that one instruction counts and compares.
func (g *generator) nextStep() {
	a := g.asm
	a.op(x86.AMOVQ, reg(rPC), memIndex(rPCs, rCursor, 8, 0))
	a.op(x86.ASUBQ, reg(rBase), reg(rPC))
	a.op1(x86.AINCQ, reg(rCursor))
	a.jump(x86.AJEQ, g.find.segmentEnd)
}

// findRow jumps to the row block of the relative pc. One unsigned comparison covers pcs below the object, too.
func (g *generator) findRow() {
	a := g.asm
	a.op(x86.ACMPQ, reg(rPC), imm(int64(g.plan.High-g.plan.Base)))
	a.jump(x86.AJCC, g.stop.noInfo)
	if g.segmented() {
		a.jump(obj.AJMP, g.find.search)
		return
	}
	g.layout.lookup(0)
}

// store and loadSlot move a register to and from a slot of the frame.
func (a *assembler) store(r int16, slot int64) {
	a.op(x86.AMOVQ, reg(r), mem(x86.REG_SP, slot))
}

func (a *assembler) loadSlot(slot int64, r int16) {
	a.op(x86.AMOVQ, mem(x86.REG_SP, slot), reg(r))
}
