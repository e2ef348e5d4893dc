package asmgen

import (
	"github.com/twitchyliquid64/golang-asm/obj"
	"github.com/twitchyliquid64/golang-asm/obj/x86"

	"github.com/ehasm/ehasm/abi"
)

// This file emits _eh_elf, the step of one frame with the original project's signature, on the code that walks use.

// _eh_elf has the stack frame of the walk and goes through the same lookup and heads; a
// null slotRegs marks it. With a callback its window fails every check and rDelta is 0,
// so that a tail leads to stepTail with the CFA; without, its window is the lower half
// of memory and the step ends in stepDone. A row of the slow path, and one without a
// callback outside the lower half, is done by a walk of one step, on registers and
// memory described in the frame.
const (
	stepCtx   = frameSize + 8 + 8 // the context given by value: above the frame, rbp, the return address
	stepValid = 1<<abi.RIP | 1<<abi.RSP | 1<<abi.RBP | 1<<abi.RBX
	stepFlags = abi.ContextRIP | abi.ContextRSP | abi.ContextRBP | abi.ContextRBX
)

// context lists the registers of unwind_context_t.
var context = [...]struct {
	dwarf int
	off   int64
	flag  int64
}{
	{abi.RIP, int64(abi.ContextRIPOff), abi.ContextRIP},
	{abi.RSP, int64(abi.ContextRSPOff), abi.ContextRSP},
	{abi.RBP, int64(abi.ContextRBPOff), abi.ContextRBP},
	{abi.RBX, int64(abi.ContextRBXOff), abi.ContextRBX},
}

// onStack is a place in the frame or above it.
func onStack(off int64) obj.Addr { return mem(x86.REG_SP, off) }

// stepEntry emits _eh_elf. Its arguments are (rdi result, rsi pc, rdx deref) and
// the context on the stack.
func (g *generator) stepEntry() {
	a := g.asm
	direct := a.newLabel()
	a.bind(g.text.step)
	a.prologue(&g.frames.step, imm(0), a.newLabel())
	a.store(x86.REG_DI, slotResult)
	a.store(x86.REG_SI, slotStepPC)
	a.op(x86.AMOVQ, imm(0), onStack(slotRegs))
	a.op(x86.AMOVQ, onStack(stepCtx+int64(abi.ContextRBPOff)), reg(rBP))
	a.op(x86.AMOVQ, onStack(stepCtx+int64(abi.ContextRSPOff)), reg(rSP))
	if !g.opt.NoDeref {
		a.store(x86.REG_DX, slotDeref)
		a.store(rCursor, slotSync) // the cursor will not move, see exits
		a.op(x86.ATESTQ, reg(x86.REG_DX), reg(x86.REG_DX))
		a.branch(x86.AJEQ, direct)
		a.noWindow()
		a.addConst(-int64(g.plan.Base), x86.REG_SI, rPC)
		a.jump(obj.AJMP, g.find.lookup)
	}
	a.bind(direct) // see loadState
	a.op(x86.AMOVLPS, onStack(stepCtx+int64(abi.ContextRBXOff)), reg(homes[fastBX].xmm))
	a.op(x86.AMOVQ, imm(0), onStack(slotLow))
	a.op(x86.AMOVQ, reg(rSP), reg(x86.REG_AX))
	a.lowerHalf(x86.REG_AX)
	a.store(x86.REG_AX, slotHigh)
	a.op(x86.AMOVQ, imm(-1), reg(rCursor)) // one step
	a.store(rCursor, slotSync)
	a.op(x86.AXORL, reg(rDelta), reg(rDelta))
	a.op(x86.ALEAQ, onStack(slotNew+8), reg(rPCs))
	a.addConst(-int64(g.plan.Base), x86.REG_SI, rPC)
	a.op(x86.AXORL, reg(rBase), reg(rBase)) // the caller's pc is not made relative
	a.jump(obj.AJMP, g.find.lookup)

	g.stepEnds()
	a.bind(g.stepped.general)
	if g.opt.NoDeref {
		a.bind(g.stepped.tail)
	} else {
		a.loadSlot(slotDeref, x86.REG_DX)
	}
	g.stepByWalk()
	a.epilogue(&g.frames.step)
	g.callThunk()
}

// callThunk emits the read callback that calls deref.
func (g *generator) callThunk() {
	if g.opt.NoDeref {
		return
	}
	a := g.asm
	// int read(void *deref, uint64_t addr, uint64_t *word), which never fails.
	ax := reg(x86.REG_AX)
	a.bind(g.text.thunk)
	a.push(reg(x86.REG_DX))
	g.frames.thunk.grow(a.bindNew(), 8)
	a.op(x86.AMOVQ, reg(x86.REG_DI), ax)
	a.op(x86.AMOVQ, reg(x86.REG_SI), reg(x86.REG_DI))
	a.op1(obj.ACALL, ax)
	a.op1(x86.APOPQ, reg(x86.REG_DX))
	g.frames.thunk.grow(a.bindNew(), -8)
	a.op(x86.AMOVQ, ax, mem(x86.REG_DX, 0))
	a.op(x86.AXORL, ax, ax)
	a.op0(obj.ARET)
}

// stepResult is the register that holds the address of the result.
const stepResult = x86.REG_AX

// inResult returns a place in the result.
func inResult(off uintptr) obj.Addr { return mem(stepResult, int64(off)) }

// storeResult emits the storing of a caller's context except its rbx.
func (a *assembler) storeResult(rip, rsp, rbp int16) {
	a.op(x86.AMOVQ, reg(rip), inResult(abi.ContextRIPOff))
	a.op(x86.AMOVQ, reg(rsp), inResult(abi.ContextRSPOff))
	a.op(x86.AMOVQ, reg(rbp), inResult(abi.ContextRBPOff))
	a.op(x86.AMOVQ, imm(stepFlags), inResult(abi.ContextFlagsOff))
}

// stepThroughCallback emits stepTail, the tail of a row through the callback: rdi
// is its descriptor, rCFA the CFA, rbp the target's. What the next step waits for
// stays in registers that the callback keeps.
func (g *generator) stepThroughCallback() {
	a := g.asm
	const cfa, desc, rip = x86.REG_BX, x86.REG_R12, x86.REG_R13
	ax, tmp := reg(x86.REG_AX), reg(rTmp)
	saved := slowSaved[:3]
	// value leaves in to what the callback says of a slot.
	value := func(to int16) {
		a.op(x86.ALEAQ, memIndex(cfa, rTmp, 8, 0), tmp)
		a.op1(obj.ACALL, onStack(slotDeref))
		if to != x86.REG_AX {
			a.op(x86.AMOVQ, ax, reg(to))
		}
	}
	ifSaved := func(off int64, to int16) {
		same := a.newLabel()
		a.op(x86.AMOVBQSX, mem(desc, off), tmp)
		a.op(x86.ATESTQ, tmp, tmp)
		a.branch(x86.AJEQ, same)
		value(to)
		a.bind(same)
	}
	a.bind(g.stepped.tail)
	a.op(x86.ACMPQ, onStack(slotDeref), imm(0))
	a.branch(x86.AJEQ, g.stepped.general)
	a.op(x86.ACMPB, mem(rTmp, stepRA), imm(0))
	a.branch(x86.AJEQ, g.stepped.general)
	g.frames.step.save(a.bindNew())
	a.saveMachine(saved, &g.frames.step)
	a.op(x86.AMOVQ, tmp, reg(desc))
	a.op(x86.AMOVQ, reg(rCFA), reg(cfa))
	a.op(x86.AMOVBQSX, mem(desc, stepRA), tmp)
	value(rip)
	ifSaved(stepBP, rBP)
	a.op(x86.AMOVQ, onStack(stepCtx+int64(abi.ContextRBXOff)), ax)
	ifSaved(stepBX, x86.REG_AX)
	a.op(x86.AMOVQ, ax, reg(x86.REG_CX))
	a.loadSlot(slotResult, stepResult)
	a.op(x86.AMOVQ, reg(x86.REG_CX), inResult(abi.ContextRBXOff))
	a.storeResult(rip, cfa, rBP)
	a.loadMachine(saved)
	g.frames.step.restore(a.bindNew())
	a.epilogue(&g.frames.step)
}

// stepEnds emits the ends of a step that needed no slow path.
func (g *generator) stepEnds() {
	a := g.asm
	if !g.opt.NoDeref {
		g.stepThroughCallback()
	}
	// A tail has read memory directly; rBase and rDelta are 0.
	a.bind(g.stepped.done)
	a.op(x86.AMOVQ, reg(rPC), reg(x86.REG_CX))
	a.loadSlot(slotResult, stepResult)
	a.op(x86.AMOVLPS, reg(homes[fastBX].xmm), inResult(abi.ContextRBXOff))
	a.storeResult(x86.REG_CX, rSP, rBP)
	a.epilogue(&g.frames.step)

	// No row, or the end of the stack: edi is the status.
	a.bind(g.stepped.stop)
	a.loadSlot(slotResult, stepResult)
	// Errors are below 0, the end of the stack is 1: the shift makes all ones or 0.
	a.op(x86.ASARL, imm(31), reg(rTmp))
	a.op(x86.AANDL, imm(abi.ContextError), reg(rTmp))
	a.op(x86.AMOVQ, reg(rTmp), inResult(abi.ContextFlagsOff))
	for _, c := range context {
		a.op(x86.AMOVQ, onStack(stepCtx+c.off), reg(x86.REG_CX))
		a.op(x86.AMOVQ, reg(x86.REG_CX), mem(stepResult, c.off))
	}
	a.epilogue(&g.frames.step)
}

// Places of the arguments of the walk of one step, from rsp.
const (
	stepRegs   = slotNew // eh_elf_regs_t
	stepMemory = stepRegs + int64(abi.RegsSize)
	stepPCs    = stepMemory + int64(abi.MemoryLen) // one pc
)

// stepByWalk emits a walk of one step on four registers, and leaves the result's address
// in rax. The callback is in rdx.
func (g *generator) stepByWalk() {
	a := g.asm
	ax, cx := reg(x86.REG_AX), reg(x86.REG_CX)
	const size, read = x86.REG_R8, x86.REG_R10
	memory := func(off uintptr) obj.Addr { return onStack(stepMemory + int64(off)) }
	inRegs := func(off int64) obj.Addr { return onStack(stepRegs + off) }
	valid, exact, status := inRegs(int64(abi.RegsValid)), inRegs(int64(abi.RegsExact)), inRegs(int64(abi.RegsStatus))
	for _, c := range context {
		a.op(x86.AMOVQ, onStack(stepCtx+c.off), ax)
		a.op(x86.AMOVQ, ax, inRegs(regOff(c.dwarf)))
	}
	a.op(x86.AMOVL, imm(stepValid), valid)
	a.op(x86.AMOVL, imm(1), exact)

	// Without deref all of memory is the window; with it, the window is empty.
	a.op(x86.AXORL, cx, cx)
	a.op(x86.AMOVQ, cx, memory(abi.MemoryLo))
	a.op(x86.AMOVQ, cx, memory(abi.MemoryBytes))
	if g.opt.NoDeref {
		a.op(x86.AMOVQ, cx, memory(abi.MemoryRead))
		a.op(x86.AMOVQ, imm(-1), memory(abi.MemorySize))
	} else {
		a.op(x86.AMOVQ, reg(x86.REG_DX), memory(abi.MemoryArg))
		a.leaLabel(g.text.thunk, read)
		a.op(x86.ACMPQ, reg(x86.REG_DX), imm(1)) // carry: null
		a.op(x86.ASBBQ, reg(size), reg(size))    // all ones if null
		a.op(x86.ATESTQ, reg(x86.REG_DX), reg(x86.REG_DX))
		a.op(x86.ACMOVQEQ, cx, reg(read))
		a.op(x86.AMOVQ, reg(size), memory(abi.MemorySize))
		a.op(x86.AMOVQ, reg(read), memory(abi.MemoryRead))
	}
	a.op(x86.AMOVQ, onStack(stepCtx+int64(abi.ContextRIPOff)), reg(x86.REG_DX))
	a.op(x86.ASUBQ, onStack(slotStepPC), reg(x86.REG_DX)) // bias = rip - pc
	a.op(x86.ALEAQ, onStack(stepRegs), reg(x86.REG_DI))
	a.op(x86.ALEAQ, onStack(stepMemory), reg(x86.REG_SI))
	a.op(x86.ALEAQ, onStack(stepPCs), cx)
	a.op(x86.AMOVL, imm(1), reg(x86.REG_R8))
	a.call(g.text.walk)

	// The flags: the valid ones of four registers, or the error, or nothing at the
	// end of the stack.
	store := a.newLabel()
	a.loadSlot(slotResult, x86.REG_DI)
	a.op(x86.AMOVWLSX, status, cx)
	a.op(x86.AMOVL, cx, ax)
	a.op(x86.ASARL, imm(31), ax)
	a.op(x86.AANDL, imm(abi.ContextError), ax)
	a.op(x86.ATESTL, cx, cx)
	a.branch(x86.AJNE, store)
	a.op(x86.AMOVL, valid, cx)
	a.op(x86.AMOVL, imm(abi.ContextRIP), ax)
	for _, c := range context[1:] {
		skip := a.newLabel()
		// The immediate is a signed byte: the three registers are columns 7, 6 and 3.
		a.op(x86.ATESTB, imm(int64(int8(uint8(1<<c.dwarf)))), cx)
		a.branch(x86.AJEQ, skip)
		a.op(x86.AORL, imm(c.flag), ax)
		a.bind(skip)
	}
	a.bind(store)
	a.op(x86.AMOVQ, ax, mem(x86.REG_DI, int64(abi.ContextFlagsOff)))
	for _, c := range context {
		a.op(x86.AMOVQ, inRegs(regOff(c.dwarf)), cx)
		a.op(x86.AMOVQ, cx, mem(x86.REG_DI, c.off))
	}
	a.op(x86.AMOVQ, reg(x86.REG_DI), ax)
}
