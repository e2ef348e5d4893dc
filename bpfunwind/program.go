//go:build linux && amd64

package bpfunwind

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/ehasm/ehasm/abi"
)

// This file emits the outer program: it finds the process and a free state, takes the registers, calls the walk, and
// writes the sample. walk.go has the step. Both are emitted, not compiled from C: the package needs no compiler where
// it runs, and the number of frames and the file descriptors of maps go in as constants.

// program emits the BPF program that an event runs. r6 is the context, and r8 the state once there is one.
type program struct {
	assembler
	maps      *maps
	maxFrames int
	maxTime   int64 // ns
	copies    Outcomes
	source    Source
	output    *ebpf.Map // see Program
	// registers emits code that fills the slots of the registers; r6 is the context.
	registers func(p *program)
}

// What the program returns. Tracepoints and events whose program returns 0 write no sample into perf's ring
// (kernel/events/core.c, bpf_overflow_handler; perf_trace_run_bpf_submit for tracepoints).
const (
	returnNoCopy = 0
	returnCopy   = 1
)

// license is what the kernel asks of programs that call the functions used here: gpl_only ones, such as
// bpf_probe_read_user.
const license = "Dual MIT/GPL"

// Offsets in the stack of the main function, below stackKey.
const (
	stackState = -16
	stackCPU   = -24
)

// emit returns the program: the function that an event calls, and the one that bpf_loop calls.
func (p *program) emit() asm.Instructions {
	const process = asm.R7 // and thread
	p.add(
		move(asm.R6, asm.R1),
		asm.FnGetCurrentPidTgid.Call(), move(process, asm.R0),
		move(asm.R1, asm.R0), asm.RSh.Imm(asm.R1, 32),
	)
	unknown := "copy"
	if p.source.Output && !p.source.Others {
		unknown = "none"
	}
	p.lookup(p.maps.processes.FD(), asm.R1, unknown)
	p.add(
		move(asm.R9, asm.R0),
		load(asm.R1, asm.R9, viewGeneration, asm.Word), asm.JEq.Imm(asm.R1, 0, "none"),
		load(asm.R1, asm.R9, viewRegions, asm.Word), asm.JEq.Imm(asm.R1, 0, "copy"),
	)
	p.acquire()
	p.begin(process)
	p.registers(p)
	p.walk()
	p.unchanged(process)
	p.count()
	p.send()
	p.release()

	int32Type := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	param := func(name string, t btf.Type) btf.FuncParam { return btf.FuncParam{Name: name, Type: t} }
	function := func(name string, params ...btf.FuncParam) *btf.Func {
		return &btf.Func{Name: name, Type: &btf.FuncProto{Return: int32Type, Params: params}, Linkage: btf.StaticFunc}
	}
	pointer := &btf.Pointer{Target: &btf.Void{}}
	p.list[0] = btf.WithFuncMetadata(p.list[0], function("unwind", param("context", pointer)))
	w := walker{assembler: p.assembler, chunks: p.maps.chunks.FD(), maxFrames: p.maxFrames}
	first := len(w.list)
	w.emit()
	w.list[first] = btf.WithFuncMetadata(w.list[first],
		function(stepName, param("call", &btf.Int{Name: "long", Size: 8}), param("state", pointer)))
	return w.list
}

// acquire leaves in r8 the address of a state of this CPU that no other walk uses. Walks nest: a timer may interrupt
// the walk of a probe, or the thread lose the CPU in it. A state is an element of an array, 4 for each CPU, taken by an
// atomic exchange. A thread that moves to another CPU meanwhile keeps the state that it has.
func (p *program) acquire() {
	p.add(asm.FnGetSmpProcessorId.Call(), store(asm.RFP, stackCPU, asm.R0, asm.DWord))
	for i := range maxSlots {
		p.add(load(asm.R1, asm.RFP, stackCPU, asm.DWord), asm.LSh.Imm(asm.R1, 2), asm.Add.Imm(asm.R1, int32(i)))
		p.lookup(p.maps.states.FD(), asm.R1, "nested")
		p.add(
			move(asm.R8, asm.R0), asm.Mov.Imm(asm.R1, 1), exchange(asm.R8, stateBusy, asm.R1),
			asm.JEq.Imm(asm.R1, 0, "acquired"),
		)
	}
	// All four are taken, or the CPU came online after Load: count it, and have perf write a copy.
	p.label("nested")
	p.add(asm.Mov.Imm(asm.R1, 0))
	p.lookup(p.maps.nested.FD(), asm.R1, "copy")
	p.add(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 0))
	p.label("copy")
	p.copy()
	p.label("none")
	p.add(asm.Mov.Imm(asm.R0, returnNoCopy), asm.Return())
	p.label("acquired")
}

// copy has perf write a sample, and returns. What the program itself gives to the output, one word, is in no sample.
func (p *program) copy() {
	if p.source.Output {
		const currentCPU = 1<<32 - 1 // BPF_F_CURRENT_CPU
		p.add(
			asm.Mov.Imm(asm.R1, 0), store(asm.RFP, stackKey, asm.R1, asm.DWord),
			move(asm.R1, asm.R6), asm.LoadMapPtr(asm.R2, p.output.FD()), asm.LoadImm(asm.R3, currentCPU, asm.DWord),
			move(asm.R4, asm.RFP), asm.Add.Imm(asm.R4, stackKey), asm.Mov.Imm(asm.R5, 8),
			asm.FnPerfEventOutput.Call(),
		)
	}
	p.add(asm.Mov.Imm(asm.R0, returnCopy), asm.Return())
}

// begin fills the state. r9 is the address of the process's view. The outcome is FrameLimit until another is known:
// bpf_loop ends without a word after its number of calls.
func (p *program) begin(process asm.Register) {
	header := func(off int) int { return stateHeader + off }
	for offset := 0; offset < viewSize; offset += 8 {
		p.add(load(asm.R1, asm.R9, offset, asm.DWord), store(asm.R8, stateView+offset, asm.R1, asm.DWord))
	}
	p.add(
		load(asm.R1, asm.R8, stateView+12, asm.Word), store(asm.R8, header(headerView), asm.R1, asm.Word),
		asm.Mov.Imm(asm.R1, lostValue), store(asm.R8, slotLost, asm.R1, asm.DWord),
		set(asm.R8, stateExact, 1), set(asm.R8, stateStale, 0), set(asm.R8, stateSize, 0), set(asm.R8, stateLength, 0),
		set(asm.R8, stateOutcome, int64(FrameLimit)),
		store(asm.R8, header(headerThread), process, asm.DWord),
		set(asm.R8, header(headerCount), 0), set(asm.R8, header(headerKernel), 0), // and outcome and kept
		set(asm.R8, header(headerSource), int64(int32(p.source.ID))),
		asm.Mov.Imm(asm.R1, 0), store(asm.R8, header(headerPeriod), asm.R1, asm.DWord),
		asm.FnKtimeGetNs.Call(), store(asm.R8, header(headerTime), asm.R0, asm.DWord),
		asm.Add.Imm(asm.R0, int32(p.maxTime)), store(asm.R8, stateDeadline, asm.R0, asm.DWord),
	)
	if p.source.Kind == PerfEvent { // struct bpf_perf_event_data
		const period = 168 // behind struct pt_regs
		p.add(load(asm.R1, asm.R6, period, asm.DWord), store(asm.R8, header(headerPeriod), asm.R1, asm.DWord))
	}
}

// ptRegs has the offsets of registers in struct pt_regs (arch/x86/include/asm/ptrace.h).
var ptRegs = [abi.NumRegs]int{abi.R15: 0, abi.R14: 8, abi.R13: 16, abi.R12: 24, abi.RBP: 32, abi.RBX: 40, abi.R11: 48,
	abi.R10: 56, abi.R9: 64,
	abi.R8: 72, abi.RAX: 80, abi.RCX: 88, abi.RDX: 96, abi.RSI: 104, abi.RDI: 112, abi.RIP: 128, abi.RSP: 152}

const (
	ptCS   = 136
	userCS = 0x33 // __USER_CS, of 64-bit code (arch/x86/include/asm/segment.h)
)

// threadRegisters takes the registers with which the thread was interrupted in its own code, or called the kernel. A
// thread that called the kernel has its user registers at the top of its kernel stack (bpf_task_pt_regs, Linux 5.15).
func (p *program) threadRegisters() {
	if p.source.Kind == PerfEvent || p.source.Kind == Probe { // the context is where the event happened
		p.add(load(asm.R1, asm.R6, ptCS, asm.DWord), asm.And.Imm(asm.R1, 3), asm.JNE.Imm(asm.R1, 3, "kernel"))
		p.copyRegisters(asm.R6)
		p.add(asm.Ja.Label("walk"))
	}
	p.label("kernel")
	if p.source.Kernel {
		skipped := int32(0)
		if p.source.Kind == RawTracepoint {
			skipped = OwnFrames
		}
		p.add(move(asm.R1, asm.R6), asm.Mov.Imm(asm.R3, 8*maxKernel), asm.Mov.Imm(asm.R4, skipped))
		p.field(asm.R2, asm.R8, stateFrames)
		p.add(
			asm.FnGetStack.Call(),
			asm.JSLT.Imm(asm.R0, 0, "task"), asm.RSh.Imm(asm.R0, 3),
			store(asm.R8, stateHeader+headerKernel, asm.R0, asm.Byte), store(asm.R8, stateHeader+headerCount, asm.R0, asm.Word),
		)
	}
	p.label("task")
	p.add(asm.FnGetCurrentTaskBtf.Call(), move(asm.R1, asm.R0), asm.FnTaskPtRegs.Call(), move(asm.R9, asm.R0))
	p.copyRegisters(asm.R9)
	p.label("walk")
}

// copyRegisters fills the slots from a struct pt_regs.
func (p *program) copyRegisters(from asm.Register) {
	p.add(load(asm.R1, from, ptCS, asm.DWord), asm.JNE.Imm(asm.R1, userCS, "foreign"))
	for reg, offset := range ptRegs {
		p.add(load(asm.R1, from, offset, asm.DWord), store(asm.R8, int(slots[reg]), asm.R1, asm.DWord))
	}
}

// walk calls the function for each frame. r2 is the address of the function, which the kernel relocates
// (BPF_PSEUDO_FUNC). A call takes two frames, so there are more than enough.
func (p *program) walk() {
	p.add(
		store(asm.RFP, stackState, asm.R8, asm.DWord),
		asm.Mov.Imm(asm.R1, int32(p.maxFrames+1)),
		asm.Instruction{OpCode: asm.LoadImmOp(asm.DWord), Dst: asm.R2, Src: asm.PseudoFunc, Constant: -1}.WithReference(
			stepName),
		move(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, stackState),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnLoop.Call(),
		asm.Ja.Label("walked"),
	)
	p.label("foreign")
	p.add(set(asm.R8, stateOutcome, int64(Foreign)))
	p.label("walked")
}

// unchanged looks whether the process has the regions with which the walk began: their memory may be in use again.
func (p *program) unchanged(process asm.Register) {
	p.add(move(asm.R1, process), asm.RSh.Imm(asm.R1, 32))
	p.lookup(p.maps.processes.FD(), asm.R1, "changed")
	p.add(
		load(asm.R1, asm.R0, 12, asm.Word), load(asm.R2, asm.R8, stateView+12, asm.Word),
		asm.JEq.Reg(asm.R1, asm.R2, "unchanged"),
	)
	p.label("changed")
	p.add(set(asm.R8, stateOutcome, int64(Remapped)))
	p.label("unchanged")
}

// count counts the walk. It leaves the outcome in r9. A state belongs to one walk at a time, so plain additions do.
func (p *program) count() {
	p.add(load(asm.R9, asm.R8, stateOutcome, asm.Word), asm.JLT.Imm(asm.R9, int32(NumOutcomes), "known"),
		asm.Mov.Imm(asm.R9, int32(Damaged)))
	p.label("known")
	p.add(
		store(asm.R8, stateHeader+headerOutcome, asm.R9, asm.Byte),
		move(asm.R2, asm.R9), asm.LSh.Imm(asm.R2, 3), asm.Add.Reg(asm.R2, asm.R8),
		load(asm.R1, asm.R2, stateCounts, asm.DWord), asm.Add.Imm(asm.R1, 1), store(asm.R2, stateCounts, asm.R1, asm.DWord),
		load(asm.R1, asm.R8, stateHeader+headerCount, asm.Word),
		load(asm.R2, asm.R8, stateHeader+headerKernel, asm.Byte), asm.Sub.Reg(asm.R1, asm.R2),
		load(asm.R2, asm.R8, stateCounts+8*int(countFrames), asm.DWord), asm.Add.Reg(asm.R1, asm.R2),
		store(asm.R8, stateCounts+8*int(countFrames), asm.R1, asm.DWord),
	)
}

// send writes the sample to the ring of this CPU. The reader wakes up when a quarter of the ring is full.
// bpf_ringbuf_output copies, once the length is known; a reservation needs a constant size.
func (p *program) send() {
	const (
		availData   = 0 // BPF_RB_AVAIL_DATA
		noWakeup    = 1 // BPF_RB_NO_WAKEUP
		forceWakeup = 2 // BPF_RB_FORCE_WAKEUP
	)
	p.add(load(asm.R1, asm.RFP, stackCPU, asm.DWord))
	p.lookup(p.maps.rings.FD(), asm.R1, "lost")
	p.add(
		move(asm.R7, asm.R0),
		move(asm.R1, asm.R7), asm.Mov.Imm(asm.R2, availData), asm.FnRingbufQuery.Call(),
		asm.Mov.Imm(asm.R4, noWakeup), asm.JLT.Imm(asm.R0, int32(p.maps.ringSize/4), "quiet"),
		asm.Mov.Imm(asm.R4, forceWakeup),
	)
	p.label("quiet")
	p.add(
		load(asm.R3, asm.R8, stateHeader+headerCount, asm.Word),
		asm.JGT.Imm(asm.R3, int32(maxKernel+p.maxFrames+1), "lost"), // for the verifier
		asm.LSh.Imm(asm.R3, 3), asm.Add.Imm(asm.R3, headerSize),
		move(asm.R1, asm.R7),
	)
	p.field(asm.R2, asm.R8, stateHeader)
	p.add(asm.FnRingbufOutput.Call(), asm.JEq.Imm(asm.R0, 0, "sent"))
	p.label("lost")
	p.add(load(asm.R1, asm.R8, stateCounts+8*int(countLost), asm.DWord), asm.Add.Imm(asm.R1, 1),
		store(asm.R8, stateCounts+8*int(countLost), asm.R1, asm.DWord))
	p.label("sent")
}

// release gives the state back, and returns what the outcome in r9 asks for.
func (p *program) release() {
	p.add(
		asm.Mov.Imm(asm.R1, 0), store(asm.R8, stateBusy, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, int32(p.copies)), asm.RSh.Reg(asm.R0, asm.R9), asm.And.Imm(asm.R0, 1),
	)
	if p.source.Output {
		p.add(asm.JNE.Imm(asm.R0, 0, "copy"))
	}
	p.add(asm.Return())
}

// load loads the program into the kernel.
func (p *program) load() (*ebpf.Program, error) {
	spec := &ebpf.ProgramSpec{Name: "unwind", Type: p.source.Kind.programType(), Instructions: p.emit(), License: license}
	loaded, err := ebpf.NewProgram(spec)
	return loaded, explain(err)
}

// known stores the view of a process that is known, but has no regions: the last generation, which no regions have.
func (a *assembler) known(base asm.Register, off int) {
	a.add(asm.LoadImm(asm.R1, -1<<32, asm.DWord), store(base, off+viewRegions, asm.R1, asm.DWord)) // both words at once
}

// emitExec returns a program for the tracepoint of execs: the regions of the old program count no more.
func emitExec(processes int) asm.Instructions {
	a := &assembler{}
	a.add(asm.FnGetCurrentPidTgid.Call(), asm.RSh.Imm(asm.R0, 32))
	a.lookup(processes, asm.R0, "end")
	a.known(asm.R0, 0)
	a.label("end")
	a.add(asm.Mov.Imm(asm.R0, 0), asm.Return())
	return a.list
}

// emitFork returns a program for the tracepoint of forks: children of known processes are known. Children of a thread
// that is followed are known from their exec on. The id of a process lies at an offset in the kernel's task_struct. The
// tracepoint's arguments are the parent's and the child's task_struct; a new thread has its parent's tgid and needs
// nothing.
func emitFork(processes int, processID uint32) asm.Instructions {
	const stackChild, stackView = -16, -32
	a := &assembler{}
	a.add(
		load(asm.R6, asm.R1, 8, asm.DWord), // the child
		asm.FnGetCurrentPidTgid.Call(), move(asm.R7, asm.R0), move(asm.R8, asm.R0), asm.RSh.Imm(asm.R8, 32),
	)
	a.lookup(processes, asm.R8, "thread")
	a.add(asm.Ja.Label("known"))
	a.label("thread")
	a.lookup(processes, asm.R7, "end")
	a.label("known")
	a.add(
		load(asm.R9, asm.R0, viewGeneration, asm.Word),
		asm.Mov.Imm(asm.R1, 0), store(asm.RFP, stackView, asm.R1, asm.DWord), store(asm.RFP, stackView+8, asm.R1, asm.DWord),
		asm.JEq.Imm(asm.R9, 0, "read"),
	)
	a.known(asm.RFP, stackView)
	a.label("read")
	a.add(
		asm.Mov.Imm(asm.R1, 0), store(asm.RFP, stackChild, asm.R1, asm.DWord),
		move(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, stackChild), asm.Mov.Imm(asm.R2, 4), move(asm.R3, asm.R6),
		asm.Add.Imm(asm.R3, int32(processID)),
		asm.FnProbeReadKernel.Call(), asm.JNE.Imm(asm.R0, 0, "end"),
		load(asm.R1, asm.RFP, stackChild, asm.Word), asm.JEq.Reg(asm.R1, asm.R8, "end"), // a thread
		asm.LoadMapPtr(asm.R1, processes), move(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, stackChild), move(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, stackView),
		asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call(),
	)
	a.label("end")
	a.add(asm.Mov.Imm(asm.R0, 0), asm.Return())
	return a.list
}
