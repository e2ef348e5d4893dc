package live

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/ehelf"
)

// follower knows the frames of the child from the calls it makes.
type follower struct {
	c     *tracee
	calls []abi.Regs // what the callers will find, outermost first
	last  abi.Regs
}

// step follows one instruction.
func (f *follower) step() abi.Regs {
	t := f.c.t
	before := f.last
	kind := f.c.kind(before.Reg[abi.RIP])
	f.c.step()
	now := f.c.regs()
	f.last = now
	if kind == systemCall && now.Reg[abi.RIP] != before.Reg[abi.RIP]+2 {
		kind = f.c.kind(before.Reg[abi.RIP] + 2) // the trap came one instruction late
	}
	switch rsp := now.Reg[abi.RSP]; {
	case kind == call && rsp == before.Reg[abi.RSP]-8:
		back, ok := f.c.word(rsp)
		require.True(t, ok)
		caller := now
		caller.Valid = abi.CalleeSaved | 1<<abi.RIP | 1<<abi.RSP
		caller.Reg[abi.RIP], caller.Reg[abi.RSP] = back, before.Reg[abi.RSP]
		f.calls = append(f.calls, caller)
	case kind == ret:
		top := len(f.calls) - 1
		requireKnown(t, &f.calls[top], &now)
		f.calls = f.calls[:top]
	}
	return now
}

// sameKnown reports whether got has all that is valid in want.
func sameKnown(want, got *abi.Regs) bool {
	if want.Valid&^got.Valid != 0 {
		return false
	}
	for r := range want.Reg {
		if want.Valid&(1<<r) != 0 && want.Reg[r] != got.Reg[r] {
			return false
		}
	}
	return true
}

func requireKnown(t *testing.T, want, got *abi.Regs) {
	if !sameKnown(want, got) {
		require.Failf(t, "not the known frame", "want %x\ngot  %x", *want, *got)
	}
}

// wrongTable is wrong_table of compare.c: the places where the tables themselves
// are wrong, with the registers that are right all the same.
func wrongTable(c *tracee, regs *abi.Regs) (right uint32, wrong bool) {
	const back = 0xeb
	pc := regs.Reg[abi.RIP]
	code := make([]byte, back+8)
	n := c.read(pc-back, code)
	lea := []byte{0x49, 0x8d, 0x62, 0xf8, 0xc3} // lea -8(%r10),%rsp; ret
	if n == len(code) && (bytes.HasPrefix(code[back:], lea) || bytes.HasPrefix(code[back-4:], lea)) {
		return 1<<abi.RIP | 1<<abi.RSP | 0xf000, true
	}
	mpn := []byte{0x53, 0x55, 0x48, 0x8d, 0x1a, 0x48, 0xf7, 0xdb}
	if o := c.object(regs); strings.HasPrefix(o.name, "libc.so") && bytes.Contains(code[:back+7], mpn) {
		return 0, true
	}
	return 0, false
}

// TestPtrace single-steps a child and takes its stack at every instruction with
// package ehelf, from samples of its registers and stack. The frames are compared
// with the calls that the child has made and, below those, with the frames that
// libunwind found in the child itself.
func TestPtrace(t *testing.T) {
	exe := program(t, t.TempDir(), variants[0].flags...)
	dir := compileAll(t, exe, asmgen.Options{})
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()

	c := start(t, []string{"EH_ELFS=" + dir}, exe, "traced")
	c.run()
	c.load(dir)
	f := &follower{c: c, last: c.regs()}

	// From the breakpoint to the program's own frames.
	window := make([]byte, 48<<10)
	mem := ehelf.Memory{Read: c.word}
	outer, end := c.frames(f.last, &mem)
	require.Equal(t, abi.StatusOutermost, end)
	known := c.recorded(len(outer) - 1) // all but the function with the breakpoint
	for i := range known {
		requireKnown(t, &known[i], &outer[i+1])
	}
	base := known[0] // where the traced function returns to
	f.calls = append(f.calls, base)

	var steps, frames, lost, wrong int
	pcs := make([]uint64, 256)
	for regs := f.step(); regs.Reg[abi.RIP] != base.Reg[abi.RIP]; regs = f.step() {
		steps++
		rsp := regs.Reg[abi.RSP]
		size := len(window)
		if steps%16 == 0 {
			size = 1 << 10 // the rest word by word
		}
		mem.Lo, mem.Bytes = rsp, window[:c.read(rsp, window[:size])]
		mem.Read = func(addr uint64) (uint64, bool) {
			if addr < rsp && rsp-addr <= 4096 {
				return 0, false // a sample does not have it
			}
			return c.word(addr)
		}
		stack, end := c.frames(regs, &mem)
		n, walkEnd := c.pcs(regs, &mem, pcs)
		require.Equal(t, len(stack)-1, n)
		require.Equal(t, end, walkEnd)
		if right, is := wrongTable(c, &regs); is {
			wrong++
			caller := f.calls[len(f.calls)-1]
			caller.Valid = right
			requireKnown(t, &caller, &stack[1])
			continue
		}
		require.Equal(t, abi.StatusOutermost, end, "step %d: %x", steps, regs.Reg)
		require.Len(t, stack, len(f.calls)+len(known), "step %d: %x", steps, regs.Reg)
		for i := 1; i < len(stack); i++ {
			want := known[max(i-len(f.calls), 0)]
			if i < len(f.calls) {
				want = f.calls[len(f.calls)-i]
			}
			// A sample ends at rsp: see check_sample in compare.c.
			lost += countLost(&want, &stack[i])
			if !sameKnown(&want, &stack[i]) || stack[i].Reg[abi.RIP] != pcs[i-1] {
				require.Failf(t, "not the known frame", "step %d, frame %d of %d\nfrom %x\nwant %x\ngot  %x",
					steps, i, len(stack), regs, want, stack[i])
			}
		}
		frames += len(stack)
	}
	t.Logf("%d single steps, %d frames, %d at wrong tables, %d registers lost", steps, frames, wrong, lost)
	require.Empty(t, f.calls)
	require.Greater(t, steps, 20_000)
	require.Less(t, wrong, steps/50)
	require.Less(t, lost, steps/50)
}

// countLost takes registers out of want that got does not know, and returns their
// number: rbx and r12 to r15 may be lost, the others not.
func countLost(want, got *abi.Regs) (lost int) {
	for _, r := range []int{abi.RBX, abi.R12, abi.R13, abi.R14, abi.R15} {
		if want.Valid&^got.Valid&(1<<r) != 0 {
			want.Valid &^= 1 << r
			lost++
		}
	}
	return lost
}
