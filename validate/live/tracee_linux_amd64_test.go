package live

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
)

// tracee is a child process under ptrace. Its methods are called on one thread.
type tracee struct {
	t       *testing.T
	pid     int
	out     io.Reader // its standard output
	objects []mapped
	kinds   map[uint64]instKind
}

// mapped is executable code of the child and its eh_elf.
type mapped struct {
	name      string
	low, high uint64 // run-time addresses
	bias      uint64
	ehElf     *ehelf.EhElf
}

// start runs a program up to its first instruction.
func start(t *testing.T, env []string, exe string, args ...string) *tracee {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	cmd := exec.Command(exe, args...)
	cmd.Env = append(append(os.Environ(), "LC_ALL=C"), env...)
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	require.NoError(t, w.Close())
	c := &tracee{t: t, pid: cmd.Process.Pid, out: r, kinds: map[uint64]instKind{}}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Process.Wait() })
	require.Equal(t, syscall.SIGTRAP, c.wait())
	return c
}

// wait returns the signal that the child stopped at.
func (c *tracee) wait() syscall.Signal {
	var ws syscall.WaitStatus
	_, err := syscall.Wait4(c.pid, &ws, 0, nil)
	require.NoError(c.t, err)
	require.True(c.t, ws.Stopped(), "status %#x", ws)
	return ws.StopSignal()
}

// run lets the child run to its own breakpoint.
func (c *tracee) run() {
	require.NoError(c.t, syscall.PtraceCont(c.pid, 0))
	require.Equal(c.t, syscall.SIGTRAP, c.wait())
}

// step executes one instruction of the child.
func (c *tracee) step() {
	require.NoError(c.t, syscall.PtraceSingleStep(c.pid))
	require.Equal(c.t, syscall.SIGTRAP, c.wait())
}

// read fills b with the child's memory at addr, as far as it is mapped.
func (c *tracee) read(addr uint64, b []byte) int {
	local := []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}}
	n, err := unix.ProcessVMReadv(c.pid, local, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}, 0)
	if err != nil {
		return 0
	}
	return n
}

// word reads 8 bytes.
func (c *tracee) word(addr uint64) (uint64, bool) {
	var b [8]byte
	n := c.read(addr, b[:])
	return binary.LittleEndian.Uint64(b[:]), n == len(b)
}

// regs returns the registers of the child in the order of the binary interface.
func (c *tracee) regs() abi.Regs {
	var r syscall.PtraceRegs
	require.NoError(c.t, syscall.PtraceGetRegs(c.pid, &r))
	return abi.Regs{
		Reg: [abi.NumRegs]uint64{
			r.Rax, r.Rdx, r.Rcx, r.Rbx, r.Rsi, r.Rdi, r.Rbp, r.Rsp,
			r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15, r.Rip,
		},
		Valid: abi.AllRegs, Exact: 1,
	}
}

// load opens the eh_elfs of all code that the child has mapped.
func (c *tracee) load(dir string) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.pid))
	require.NoError(c.t, err)
	first := map[string]uint64{} // lowest address of a file, all of which are linked to 0
	for _, line := range strings.Split(string(maps), "\n") {
		var low, high, offset uint64
		var mode, device, inode, path string
		if n, _ := fmt.Sscanf(line, "%x-%x %s %x %s %s %s", &low, &high, &mode, &offset, &device, &inode,
			&path); n != 7 {
			continue
		}
		if _, ok := first[path]; !ok {
			first[path] = low
		}
		if !strings.Contains(mode, "x") || strings.HasSuffix(path, abi.Suffix) || path == "[vsyscall]" {
			continue
		}
		name := filepath.Base(path)
		if path == "[vdso]" {
			name = "linux-vdso.so.1"
		}
		o, err := ehelf.OpenUnchecked(filepath.Join(dir, name+abi.Suffix))
		require.NoError(c.t, err, "the child has mapped %s", path)
		c.t.Cleanup(func() { o.Close() })
		c.objects = append(c.objects, mapped{name, low, high, first[path], o})
	}
	require.Greater(c.t, len(c.objects), 4)
}

// object finds the object that holds a frame's pc.
func (c *tracee) object(r *abi.Regs) *mapped {
	pc := r.Reg[abi.RIP]
	if r.Exact == 0 {
		pc--
	}
	for i := range c.objects {
		if o := &c.objects[i]; pc >= o.low && pc < o.high {
			return o
		}
	}
	return nil
}

// frames takes the stack one step at a time.
func (c *tracee) frames(regs abi.Regs, mem *ehelf.Memory) (frames []abi.Regs, end abi.Status) {
	for {
		frames = append(frames, regs)
		o := c.object(&regs)
		if o == nil {
			return frames, abi.StatusNoInfo
		}
		if s := o.ehElf.Step(&regs, mem, o.bias); s != abi.StatusOK {
			return frames, s
		}
	}
}

// pcs takes the stack by whole walks.
func (c *tracee) pcs(regs abi.Regs, mem *ehelf.Memory, pcs []uint64) (int, abi.Status) {
	n := 0
	for {
		o := c.object(&regs)
		if o == nil {
			return n, abi.StatusNoInfo
		}
		steps := o.ehElf.Walk(&regs, mem, o.bias, pcs[n:])
		if n += steps; steps == 0 || regs.Status != abi.StatusNoInfo {
			return n, regs.Status
		}
	}
}

// recorded reads the frames that the child wrote.
func (c *tracee) recorded(n int) []abi.Regs {
	var frames []abi.Regs
	in := bufio.NewScanner(c.out)
	for len(frames) < n && in.Scan() {
		f := abi.Regs{Valid: abi.CalleeSaved | 1<<abi.RIP | 1<<abi.RSP}
		r := &f.Reg
		_, err := fmt.Sscanf(in.Text(), "frame %x %x %x %x %x %x %x %x", &r[abi.RIP], &r[abi.RSP],
			&r[abi.RBX], &r[abi.RBP], &r[abi.R12], &r[abi.R13], &r[abi.R14], &r[abi.R15])
		require.NoError(c.t, err, in.Text())
		frames = append(frames, f)
	}
	require.Len(c.t, frames, n)
	return frames
}

// instKind is what an instruction does to the list of calls.
type instKind uint8

const (
	ordinary instKind = iota
	call
	ret
	systemCall
)

// kind tells calls and returns from other instructions (Intel SDM vol. 2).
func (c *tracee) kind(pc uint64) instKind {
	k, ok := c.kinds[pc]
	if !ok {
		var b [16]byte
		require.Greater(c.t, c.read(pc, b[:]), 8)
		k = kindOf(b[:])
		c.kinds[pc] = k
	}
	return k
}

func kindOf(b []byte) instKind {
	for len(b) > 2 && (strings.IndexByte("\x66\x67\xf2\xf3\x2e\x3e", b[0]) >= 0 || b[0]&0xf0 == 0x40) {
		b = b[1:] // prefixes
	}
	switch {
	case b[0] == 0xe8, b[0] == 0xff && b[1]>>3&7 == 2:
		return call
	case b[0] == 0xc3, b[0] == 0xc2:
		return ret
	case b[0] == 0x0f && b[1] == 0x05:
		return systemCall
	}
	return ordinary
}
