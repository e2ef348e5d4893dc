package asmgen

import (
	"github.com/twitchyliquid64/golang-asm/obj"
	"github.com/twitchyliquid64/golang-asm/obj/x86"

	"github.com/ehasm/ehasm/abi"
)

// This file emits the slow path: a loop over a row's descriptor. It runs for signal frames, PLTs, realigned stacks and
// frames at the edges of a window. RATIONALE.md, "The slow path interprets", says why it is no code for
// each row.

// slowPath emits the step on all registers in memory, which reads a row's
// descriptor: slowFast comes from a tail whose words are not all in the window,
// with the CFA in rCFA as a host address; slowRow from rows that the fast path
// does not handle. edi is the descriptor's offset in the data. It decides the
// statuses.
func (g *generator) slowPath() {
	a := g.asm
	rules, fail := a.newLabel(), a.newLabel()
	a.bind(g.slow.fast)
	a.ifStep(g.stepped.tail)
	a.op(x86.ASUBQ, reg(rDelta), reg(rCFA))
	a.bind(g.slow.row)
	a.ifStep(g.stepped.general)
	a.store(rPCs, slotPCs)
	a.call(g.slow.spill)
	a.store(rCursor, slotCursor)
	g.frames.walk.save(a.bindNew())
	a.saveMachine(slowSaved[:], &g.frames.walk)
	a.op(x86.AMOVQ, reg(rCFA), reg(sCFA))
	a.loadSlot(slotRegs, sRegs)
	a.loadSlot(slotMem, sMem)
	a.op(x86.AMOVQ, reg(rTmp), reg(sDesc))
	// Callee-saved registers keep their validity.
	a.op(x86.AMOVL, mem(sRegs, int64(abi.RegsValid)), reg(sState))
	a.op(x86.AANDL, imm(int64(abi.CalleeSaved)), reg(sState))

	// Without a CFA the step fails.
	g.slowCFA(rules, fail)
	a.bind(rules)
	a.op(x86.AMOVL, imm(abi.RSP), reg(sReg)) // rsp is the CFA unless a rule says otherwise
	a.op(x86.AMOVQ, reg(sCFA), reg(x86.REG_AX))
	g.slowRules(fail)
	g.slowDone()

	// The step fails with the status in edx.
	a.bind(fail)
	a.op(x86.AMOVL, reg(x86.REG_DX), reg(rTmp))
	a.loadSlot(slotCursor, rCursor)
	a.loadMachine(slowSaved[:])
	a.branch(obj.AJMP, g.find.exit)
	g.frames.walk.restore(a.bindNew())
}

// slowCFA emits the header of a descriptor: the CFA goes to sCFA. fail is left with a status in edx.
func (g *generator) slowCFA(rules, fail label) {
	a := g.asm
	byReg, byExpr, invalid := a.newLabel(), a.newLabel(), a.newLabel()
	// The first byte holds the kind of the CFA, and the signal bit.
	const kind, from = x86.REG_AX, x86.REG_CX
	a.op(x86.AMOVBLZX, mem(sDesc, 0), reg(kind))
	a.op1(x86.AINCQ, reg(sDesc))
	// The signal bit reports whether the caller's pc is exact.
	a.op(x86.AMOVL, reg(kind), reg(from))
	a.op(x86.ASHRL, imm(7), reg(from))
	a.op(x86.AMOVL, reg(from), mem(x86.REG_SP, slotExact))
	a.op(x86.AANDL, imm(descSignal-1), reg(kind))
	a.branch(x86.AJEQ, rules) // descCFAGiven
	// Kinds ascend: given, from rbp, register, expression.
	a.op(x86.ACMPL, reg(kind), imm(descCFAReg))
	a.branch(x86.AJEQ, byReg)
	a.branch(x86.AJHI, byExpr)
	a.op(x86.ATESTB, imm(1<<abi.RBP), mem(sRegs, int64(abi.RegsValid))) // descCFAFromBP
	a.branch(x86.AJNE, rules)
	a.bind(invalid)
	a.op(x86.AMOVL, imm(int64(abi.StatusBadRegister)), reg(x86.REG_DX))
	a.branch(obj.AJMP, fail)

	// A register's number and 8 bytes of offset follow.
	a.bind(byReg)
	a.op(x86.AMOVBLZX, mem(sDesc, 0), reg(from))
	a.op(x86.AMOVL, mem(sRegs, int64(abi.RegsValid)), reg(kind))
	a.op(x86.ABTL, reg(from), reg(kind))
	a.branch(x86.AJCC, invalid)
	a.op(x86.AMOVQ, memIndex(sRegs, from, 8, 0), reg(sCFA))
	a.op(x86.AADDQ, mem(sDesc, 1), reg(sCFA))
	a.op(x86.AADDQ, imm(9), reg(sDesc))
	a.branch(obj.AJMP, rules)
	// The offset of the expression's code follows, 4 bytes.
	a.bind(byExpr)
	a.op(x86.AMOVL, mem(sDesc, 0), reg(kind))
	a.op(x86.AADDQ, imm(4), reg(sDesc))
	g.callExpr()
	a.branch(x86.AJCS, fail)
	a.op(x86.AMOVQ, reg(x86.REG_AX), reg(sCFA))
}

// callExpr emits the call of the expression whose offset in the text is in eax.
// The result comes in rax, or carry set and a status in edx.
func (g *generator) callExpr() {
	a := g.asm
	a.leaLabel(g.text.start, x86.REG_CX)
	a.op(x86.AADDQ, reg(x86.REG_CX), reg(x86.REG_AX))
	a.op(x86.ASUBQ, imm(exprPad), reg(x86.REG_SP))
	g.frames.walk.grow(a.bindNew(), exprPad)
	a.op1(obj.ACALL, reg(x86.REG_AX))
	a.op(x86.ALEAQ, mem(x86.REG_SP, exprPad), reg(x86.REG_SP)) // keeps the carry
	g.frames.walk.grow(a.bindNew(), -exprPad)
}

// slowRules emits the loop over the rules. A rule whose value is not available
// makes its register invalid, or the step fail if it is the return address. It
// begins with the value in rax for the register in sReg.
func (g *generator) slowRules(fail label) {
	a := g.asm
	next, set, saved, unset := a.newLabel(), a.newLabel(), a.newLabel(), a.newLabel()
	lost, unreadable, done := a.newLabel(), a.newLabel(), a.newLabel()
	off64, undefined, same := a.newLabel(), a.newLabel(), a.newLabel()
	value, other, fromReg := a.newLabel(), a.newLabel(), a.newLabel()
	const op, val = x86.REG_CX, x86.REG_AX

	// Values go to slotNew first, so that a step that fails changes nothing.
	a.bind(set) // the register's value is in rax
	a.op(x86.AMOVQ, reg(val), memIndex(x86.REG_SP, sReg, 8, slotNew))
	a.op(x86.ABTSQ, reg(sReg), reg(sState))
	a.op(x86.ALEAL, mem(sReg, 32), reg(op))
	a.op(x86.ABTSQ, reg(op), reg(sState))

	// The next rule: operation in the upper three bits, register in the lower five.
	a.bind(next)
	a.op(x86.AMOVBLZX, mem(sDesc, 0), reg(op))
	a.op1(x86.AINCQ, reg(sDesc))
	a.op(x86.AMOVL, reg(op), reg(sReg))
	a.op(x86.AANDL, imm(31), reg(sReg))
	a.op(x86.ASHRL, imm(5), reg(op))
	a.branch(x86.AJEQ, done)
	// Operations in ascending order; see descriptor.go.
	a.op(x86.ACMPL, reg(op), imm(ruleOffset))
	a.branch(x86.AJEQ, off64)
	a.branch(x86.AJHI, other)
	a.op(x86.AMOVBQSX, mem(sDesc, 0), reg(x86.REG_SI)) // ruleOffset8
	a.op1(x86.AINCQ, reg(sDesc))
	a.op(x86.ASHLQ, imm(3), reg(x86.REG_SI))

	a.bind(saved) // saved at CFA + rsi
	a.op(x86.AADDQ, reg(sCFA), reg(x86.REG_SI))
	a.bind(unreadable) // saved at rsi
	a.call(g.slow.readWord)
	a.branch(x86.AJCC, set)
	a.op(x86.AMOVL, imm(int64(abi.StatusUnreadable)), reg(x86.REG_DX))
	a.bind(lost) // edx says why
	a.op(x86.ACMPL, reg(sReg), imm(abi.RIP))
	a.branch(x86.AJEQ, fail)
	a.bind(undefined)
	a.op(x86.ABTRQ, reg(sReg), reg(sState))
	a.branch(obj.AJMP, next)

	// An offset of 8 bytes.
	a.bind(off64)
	a.op(x86.AMOVQ, mem(sDesc, 0), reg(x86.REG_SI))
	a.op(x86.AADDQ, imm(8), reg(sDesc))
	a.branch(obj.AJMP, saved)

	// Undefined, same value, value at an offset, register, expression: in the order of their
	// numbers.
	a.bind(other)
	a.op(x86.ACMPL, reg(op), imm(ruleSame))
	a.branch(x86.AJCS, undefined)
	a.branch(x86.AJEQ, same)
	a.op(x86.ACMPL, reg(op), imm(ruleRegister))
	a.branch(x86.AJCS, value)
	a.branch(x86.AJEQ, fromReg)
	a.op(x86.AMOVL, mem(sDesc, 1), reg(val))
	a.op(x86.AADDQ, imm(5), reg(sDesc))
	g.callExpr()
	a.branch(x86.AJCS, lost)
	// The byte before the code's offset tells a value from an address.
	a.op(x86.ACMPB, mem(sDesc, -5), imm(0))
	a.branch(x86.AJEQ, set)
	a.op(x86.AMOVQ, reg(val), reg(x86.REG_SI))
	a.branch(obj.AJMP, unreadable)

	a.bind(value)
	a.op(x86.AMOVQ, mem(sDesc, 0), reg(val))
	a.op(x86.AADDQ, imm(8), reg(sDesc))
	a.op(x86.AADDQ, reg(sCFA), reg(val))
	a.branch(obj.AJMP, set)

	a.bind(fromReg)
	a.op(x86.AMOVBLZX, mem(sDesc, 0), reg(op))
	a.op1(x86.AINCQ, reg(sDesc))
	a.branch(obj.AJMP, unset)
	a.bind(same)
	a.op(x86.AMOVL, reg(sReg), reg(op))
	a.bind(unset) // the value of register ecx
	a.op(x86.AMOVL, imm(int64(abi.StatusBadRegister)), reg(x86.REG_DX))
	a.op(x86.AMOVL, mem(sRegs, int64(abi.RegsValid)), reg(val))
	// A value is there only if the register's bit is set.
	a.op(x86.ABTL, reg(op), reg(val))
	a.branch(x86.AJCC, lost)
	a.op(x86.AMOVQ, memIndex(sRegs, op, 8, 0), reg(val))
	a.branch(obj.AJMP, set)

	a.bind(done)
}

// slowDone emits the end of a step: the registers in memory become the caller's. Only now memory changes, so that a
// step that fails leaves it as it was.
func (g *generator) slowDone() {
	a := g.asm
	loop := a.newLabel()
	// The mask of the caller's registers.
	a.op(x86.AMOVL, reg(sState), mem(sRegs, int64(abi.RegsValid)))
	a.op(x86.ASHRQ, imm(32), reg(sState))
	a.bind(loop) // rsp is always among them
	a.op(x86.ABSFL, reg(sState), reg(x86.REG_AX))
	a.op(x86.AMOVQ, memIndex(x86.REG_SP, x86.REG_AX, 8, slotNew), reg(x86.REG_CX))
	a.op(x86.AMOVQ, reg(x86.REG_CX), memIndex(sRegs, x86.REG_AX, 8, 0))
	// Clear the lowest bit set.
	a.op(x86.ALEAL, mem(sState, -1), reg(x86.REG_CX))
	a.op(x86.AANDL, reg(x86.REG_CX), reg(sState))
	a.branch(x86.AJNE, loop)
	a.op(x86.AMOVL, mem(x86.REG_SP, slotExact), reg(x86.REG_AX))
	a.op(x86.AMOVW, reg(x86.REG_AX), mem(sRegs, int64(abi.RegsExact)))
	a.loadSlot(slotCursor, rCursor)
	a.loadSlot(slotPCs, rPCs)
	// The caller's pc goes to the array of pcs.
	a.op(x86.AMOVQ, mem(sRegs, regOff(abi.RIP)), reg(x86.REG_AX))
	a.op(x86.AMOVQ, reg(x86.REG_AX), memIndex(rPCs, rCursor, 8, 0))
	a.op(x86.AMOVQ, reg(sMem), reg(x86.REG_SI))
	a.op(x86.AMOVQ, reg(sRegs), reg(x86.REG_DI))
	a.loadMachine(slowSaved[:])
	// The cursor counts up to 0.
	a.op1(x86.AINCQ, reg(rCursor))
	a.store(rCursor, slotSync)
	a.branch(x86.AJEQ, g.find.segmentEnd)
	a.branch(obj.AJMP, g.find.load)
}

// readWordCode emits the subroutine readWord: the word at target address rsi comes in rax, carry set if it cannot be
// read. The stack is aligned by the return address being the only thing above a multiple of 16.
func (g *generator) readWordCode() {
	a := g.asm
	callback, fail := a.newLabel(), a.newLabel()
	const frame = 24
	a.bind(g.slow.readWord)
	// Inside the window: address - low <= size - 8, unsigned.
	a.op(x86.AMOVQ, mem(sMem, int64(abi.MemorySize)), reg(x86.REG_CX))
	a.op(x86.AMOVQ, reg(x86.REG_SI), reg(x86.REG_AX))
	a.op(x86.ASUBQ, mem(sMem, int64(abi.MemoryLo)), reg(x86.REG_AX))
	a.op(x86.ASUBQ, imm(8), reg(x86.REG_CX))
	a.branch(x86.AJCS, callback)
	a.op(x86.ACMPQ, reg(x86.REG_AX), reg(x86.REG_CX))
	a.branch(x86.AJHI, callback)
	a.op(x86.AADDQ, mem(sMem, int64(abi.MemoryBytes)), reg(x86.REG_AX))
	a.op(x86.AMOVQ, mem(x86.REG_AX, 0), reg(x86.REG_AX))
	a.op0(x86.ACLC)
	a.op0(obj.ARET)
	// Outside of it the caller is asked, if it gave a function.
	a.bind(callback)
	a.op(x86.AMOVQ, mem(sMem, int64(abi.MemoryRead)), reg(x86.REG_AX))
	a.op(x86.ATESTQ, reg(x86.REG_AX), reg(x86.REG_AX))
	a.branch(x86.AJEQ, fail)
	a.op(x86.ASUBQ, imm(frame), reg(x86.REG_SP))
	g.frames.sub.grow(a.bindNew(), frame)
	a.op(x86.AMOVQ, mem(sMem, int64(abi.MemoryArg)), reg(x86.REG_DI))
	// The callback writes the word there.
	a.op(x86.ALEAQ, mem(x86.REG_SP, 8), reg(x86.REG_DX))
	a.op1(obj.ACALL, reg(x86.REG_AX))
	a.op(x86.AMOVL, reg(x86.REG_AX), reg(x86.REG_CX))
	a.op(x86.AMOVQ, mem(x86.REG_SP, 8), reg(x86.REG_AX))
	a.op(x86.AADDQ, imm(frame), reg(x86.REG_SP))
	g.frames.sub.grow(a.bindNew(), -frame)
	a.op1(x86.ANEGL, reg(x86.REG_CX)) // carry: not zero
	a.op0(obj.ARET)
	a.bind(fail)
	a.op0(x86.ASTC)
	a.op0(obj.ARET)
}
