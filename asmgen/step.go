package asmgen

import (
	"github.com/twitchyliquid64/golang-asm/obj"
	"github.com/twitchyliquid64/golang-asm/obj/x86"

	"ehasm/abi"
)

// The stack frame of _eh_elf: offsets from rsp in bytes.
const (
	stepRegs   = 0                              // eh_elf_regs_t
	stepMem    = stepRegs + int64(abi.RegsSize) // eh_elf_memory_t
	stepPCs    = stepMem + int64(abi.MemoryLen) // one pc
	stepResult = stepPCs + 8                    // where the result goes
	stepFrame  = stepResult + 8                 // 8 mod 16
	stepCtx    = stepFrame + 8                  // the context given by value
	stepWanted = 1<<abi.RIP | 1<<abi.RSP | 1<<abi.RBP | 1<<abi.RBX
)

// stepEntry emits _eh_elf: one step of the walk on four registers. Its arguments
// are (rdi result, rsi pc, rdx deref) and the context on the stack.
func (g *generator) stepEntry() {
	a := g.asm
	a.bind(g.step)
	sp := func(off int64) obj.Addr { return mem(x86.REG_SP, off) }
	ax, cx := reg(x86.REG_AX), reg(x86.REG_CX)
	a.op(x86.ASUBQ, imm(stepFrame), reg(x86.REG_SP))
	g.stepFrame.grow(a.bindNew(), int(stepFrame))
	a.op(x86.AMOVQ, reg(x86.REG_DI), sp(stepResult))
	copied := []struct {
		reg int
		off uintptr
	}{{abi.RSP, abi.ContextRSPOff}, {abi.RBP, abi.ContextRBPOff}, {abi.RBX, abi.ContextRBXOff}, {abi.RIP, abi.ContextRIPOff}}
	for _, c := range copied {
		a.op(x86.AMOVQ, sp(stepCtx+int64(c.off)), ax)
		a.op(x86.AMOVQ, ax, sp(stepRegs+regOff(c.reg)))
	}
	a.op(x86.AMOVL, imm(stepWanted), reg(x86.REG_R9))
	a.op(x86.AMOVL, reg(x86.REG_R9), sp(stepRegs+int64(abi.RegsValid)))
	a.op(x86.AMOVW, imm(1), sp(stepRegs+int64(abi.RegsExact)))

	// Without deref all of memory is the window; with it, the window is empty.
	const zero, size = x86.REG_CX, x86.REG_R8
	a.op(x86.AXORL, cx, cx)
	a.op(x86.AMOVQ, cx, sp(stepMem+int64(abi.MemoryLo)))
	a.op(x86.AMOVQ, cx, sp(stepMem+int64(abi.MemoryBytes)))
	if g.opt.NoDeref {
		a.op(x86.AMOVQ, cx, sp(stepMem+int64(abi.MemoryRead)))
		a.op(x86.AMOVQ, imm(-1), sp(stepMem+int64(abi.MemorySize)))
	} else {
		a.op(x86.AMOVQ, reg(x86.REG_DX), sp(stepMem+int64(abi.MemoryArg)))
		a.leaLabel(g.thunk, x86.REG_R10)
		a.op(x86.ACMPQ, reg(x86.REG_DX), imm(1)) // carry: null
		a.op(x86.ASBBQ, reg(size), reg(size))    // all ones if null
		a.op(x86.ATESTQ, reg(x86.REG_DX), reg(x86.REG_DX))
		a.op(x86.ACMOVQEQ, cx, reg(x86.REG_R10))
		a.op(x86.AMOVQ, reg(size), sp(stepMem+int64(abi.MemorySize)))
		a.op(x86.AMOVQ, reg(x86.REG_R10), sp(stepMem+int64(abi.MemoryRead)))
	}
	a.op(x86.AMOVQ, ax, reg(x86.REG_DX)) // bias = rip - pc
	a.op(x86.ASUBQ, reg(x86.REG_SI), reg(x86.REG_DX))
	a.op(x86.ALEAQ, sp(stepRegs), reg(x86.REG_DI))
	a.op(x86.ALEAQ, sp(stepMem), reg(x86.REG_SI))
	a.op(x86.ALEAQ, sp(stepPCs), cx)
	a.op(x86.AMOVL, imm(1), reg(x86.REG_R8))
	a.call(g.walkWanted)

	// flags: bit 0 rip, bit 1 rsp, bit 2 rbp, bit 3 rbx; or the error; or
	// nothing at the end of the stack.
	store := a.newLabel()
	a.op(x86.AMOVQ, sp(stepResult), reg(x86.REG_DI))
	a.op(x86.AMOVWLSX, sp(stepRegs+int64(abi.RegsStatus)), cx)
	a.op(x86.AMOVL, cx, ax)
	a.op(x86.ASARL, imm(31), ax)
	a.op(x86.AANDL, imm(abi.ContextError), ax)
	a.op(x86.ATESTL, cx, cx)
	a.branch(x86.AJNE, store)
	a.op(x86.AMOVL, sp(stepRegs+int64(abi.RegsValid)), cx)
	a.op(x86.AMOVL, imm(abi.ContextRIP), ax)
	for _, f := range []struct {
		reg  int
		flag int64
	}{{abi.RSP, abi.ContextRSP}, {abi.RBP, abi.ContextRBP}, {abi.RBX, abi.ContextRBX}} {
		skip := a.newLabel()
		a.op(x86.ATESTB, imm(int64(int8(uint8(1<<f.reg)))), cx)
		a.branch(x86.AJEQ, skip)
		a.op(x86.AORL, imm(f.flag), ax)
		a.bind(skip)
	}
	a.bind(store)
	a.op(x86.AMOVQ, ax, mem(x86.REG_DI, int64(abi.ContextFlagsOff)))
	for _, c := range copied {
		a.op(x86.AMOVQ, sp(stepRegs+regOff(c.reg)), cx)
		a.op(x86.AMOVQ, cx, mem(x86.REG_DI, int64(c.off)))
	}
	a.op(x86.AMOVQ, reg(x86.REG_DI), ax)
	a.op(x86.AADDQ, imm(stepFrame), reg(x86.REG_SP))
	g.stepFrame.grow(a.bindNew(), -int(stepFrame))
	a.op0(obj.ARET)
	if g.opt.NoDeref {
		return
	}

	// int read(void *deref, uint64_t addr, uint64_t *word), which never fails.
	a.bind(g.thunk)
	a.push(x86.REG_DX)
	g.thunkFrame.grow(a.bindNew(), 8)
	a.op(x86.AMOVQ, reg(x86.REG_DI), ax)
	a.op(x86.AMOVQ, reg(x86.REG_SI), reg(x86.REG_DI))
	a.op1(obj.ACALL, ax)
	a.op1(x86.APOPQ, reg(x86.REG_DX))
	g.thunkFrame.grow(a.bindNew(), -8)
	a.op(x86.AMOVQ, ax, mem(x86.REG_DX, 0))
	a.op(x86.AXORL, ax, ax)
	a.op0(obj.ARET)
}
