//go:build linux && amd64

package main

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ehasm/ehasm/abi"
)

// stop handles a thread's stop after an instruction. It returns the signal to
// deliver.
func (t *tracer) stop(th *thread, ws unix.WaitStatus) int {
	switch int(ws>>16) & 0xff { // the event of a ptrace stop
	case unix.PTRACE_EVENT_CLONE:
		return 0 // in the middle of the system call
	case unix.PTRACE_EVENT_EXEC: // exec ends all other threads
		for tid := range t.threads {
			if tid != th.tid {
				delete(t.threads, tid)
			}
		}
		th.forget()
		t.space.mappings, t.space.stale = nil, true
		return 0
	}
	now, ok := registers(th.tid)
	if !ok {
		return passOn(ws)
	}
	t.mem.at(now.Reg[abi.RSP])
	if th.running {
		if !t.returned(th, &now) {
			return passOn(ws)
		}
	} else if th.known {
		t.advance(th, &now)
	}
	m := t.space.find(now.Reg[abi.RIP])
	th.before, th.known = now, true
	th.kind = t.kindAt(m, now.Reg[abi.RIP])
	if th.signal = passOn(ws); th.signal != 0 {
		return th.signal
	}
	t.compare(th, m, &now)
	return 0
}

// advance follows the instruction, or the signal, between two stops.
func (t *tracer) advance(th *thread, now *abi.Regs) {
	t.steps++
	before := th.before
	if th.signal != 0 {
		n := len(th.shadow.frames)
		if th.shadow.beginSignal(&before, now, t.mem); len(th.shadow.frames) > n {
			return
		}
	}
	k := th.kind
	if k == systemCall {
		const length = 2
		switch before.Reg[abi.RAX] {
		case unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MREMAP:
			t.space.stale = true // the next step reads them again
		}
		if pc := before.Reg[abi.RIP] + length; before.Reg[abi.RAX] != sigreturn && now.Reg[abi.RIP] != pc &&
			now.Reg[abi.RIP] != before.Reg[abi.RIP] {
			k = t.kindAt(t.space.find(pc), pc) // the trap came one instruction late
		}
	}
	th.shadow.step(k, &before, now, t.mem)
}

// compare compares the tables of the object at pc with the frame.
func (t *tracer) compare(th *thread, m *mapping, now *abi.Regs) {
	f := th.shadow.top()
	if m.object == nil || !m.object.chosen {
		// Not the outermost call, which is what calls main, nor the program itself.
		if len(t.opt.wanted) > 0 && len(th.shadow.frames) > 1 && !f.signal && f.ra != 0 && t.isWanted(f.ra) &&
			(m.object == nil || m.object.path != t.space.program) {
			t.runTo(th, f.ra)
		}
		return
	}
	if f == nil {
		return // a frame from before stepping began
	}
	t.judged++
	o := m.object
	o.steps++
	pc := now.Reg[abi.RIP]
	if seen := &m.page(pc).seen[pc%pageSize]; !*seen {
		*seen = true
		o.pcs[pc-m.bias] = struct{}{}
	}
	for i, table := range o.tables {
		o.sums[i].step(table, m, now, f, t.mem)
	}
}

// isWanted reports whether code at addr is compared.
func (t *tracer) isWanted(addr uint64) bool {
	m := t.space.find(addr)
	return m.object != nil && m.object.chosen
}

// runTo lets a thread run up to an address, by a breakpoint of the processor for this thread
// state (Intel SDM vol. 3, "Debug Registers"); without breakpoints, by steps that are not looked at.
func (t *tracer) runTo(th *thread, addr uint64) {
	// DR0 is the address, DR7 enables it
	th.running = !t.breakpoints || pokeDebug(th.tid, 0, addr) && pokeDebug(th.tid, 7, 1)
}

// returned reports whether a thread that ran freely has returned from its frame.
func (t *tracer) returned(th *thread, now *abi.Regs) bool {
	f := th.shadow.top()
	if now.Reg[abi.RIP] != f.ra || now.Reg[abi.RSP] != f.cfa {
		return false // an inner call's return, or another stop
	}
	pokeDebug(th.tid, 7, 0)
	th.running = false
	th.shadow.frames = th.shadow.frames[:len(th.shadow.frames)-1]
	t.space.stale = true
	return true
}

// pokeDebug sets a debug register of a thread.
func pokeDebug(tid, reg int, value uint64) bool {
	const offset = 848 // u_debugreg of struct user (Linux, arch/x86/include/asm/user_64.h)
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_POKEUSR, uintptr(tid), uintptr(offset+8*reg),
		uintptr(value), 0, 0)
	return errno == 0
}

// kindAt returns the kind of the instruction at pc.
func (t *tracer) kindAt(m *mapping, pc uint64) kind {
	k := &m.page(pc).kinds[pc%pageSize]
	if *k == unread {
		var b [16]byte
		*k = kindOf(b[:t.mem.read(pc, b[:])])
	}
	return *k
}

// registers reads the registers of a thread.
func registers(tid int) (abi.Regs, bool) {
	var r unix.PtraceRegs
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETREGS, uintptr(tid), 0,
		uintptr(unsafe.Pointer(&r)), 0, 0)
	if errno != 0 {
		return abi.Regs{}, false
	}
	return abiRegs(&r), true
}

func abiRegs(r *unix.PtraceRegs) abi.Regs {
	return abi.Regs{
		Reg: [abi.NumRegs]uint64{
			r.Rax, r.Rdx, r.Rcx, r.Rbx, r.Rsi, r.Rdi, r.Rbp, r.Rsp,
			r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15, r.Rip,
		},
		Valid: abi.AllRegs, Exact: 1,
	}
}
