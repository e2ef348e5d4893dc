//go:build linux && amd64

package main

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"syscall"

	"golang.org/x/sys/unix"
)

// Addresses in a child: its object, unless that can't be moved, and what is beside it.
const (
	imageAt  = 0x2000_0000_0000
	arenaAt  = 0x1000_0000_0000 // memory for pointers
	stackAt  = 0x1100_0000_0000
	areaLen  = 1 << 18          // of the arena and the stack
	sentinel = 0x1200_0000_0008 // return address of what is called; not mapped
	outside  = 0x1200_0000_1000 // address of each function of another object; not mapped
	never    = 0x1200_0000_2000 // address of those that do not return; not mapped
)

// child is a stopped process with one thread, which holds an object that no loader has seen.
type child struct {
	cmd  *exec.Cmd
	pid  int
	mem  *os.File
	err  error // of the first step that failed
	file *elf.File
	bias uint64
	low  uint64 // link-time address of data
	data []byte // the segments, as a loader leaves them
}

// newChild reads the object and applies the relocations.
func newChild(path string) (*child, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := &child{file: f, low: ^uint64(0)}
	high := uint64(0)
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			c.low, high = min(c.low, p.Vaddr&^(pageSize-1)), max(high, p.Vaddr+p.Memsz)
		}
	}
	if f.Machine != elf.EM_X86_64 || high <= c.low {
		return nil, fmt.Errorf("%s: no object with code of x86-64", path)
	}
	if high-c.low > 1<<30 {
		return nil, fmt.Errorf("%s: takes %d MB of memory, more than the 1,024 that are tried", path, (high-c.low)>>20)
	}
	if f.Type == elf.ET_DYN {
		c.bias = imageAt
	}
	c.data = make([]byte, (high-c.low+pageSize-1)&^(pageSize-1))
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		if _, err := p.ReadAt(c.data[p.Vaddr-c.low:][:p.Filesz], 0); err != nil && err != io.EOF {
			return nil, err
		}
	}
	c.relocate()
	return c, nil
}

// noReturn matches functions of libc, libgcc, libstdc++ and some other libraries that do not return.
var noReturn = regexp.MustCompile(
	`^(_?_?_?abort|_?_?_?exit|_Exit|quick_exit|__stack_chk_fail.*|__assert.*|__chk_fail|` +
		`__fortify_fail|_Unwind_Resume.*|__cxa_(re)?throw|__cxa_(bad|throw|pure|deleted|call).*|pthread_exit|errx?|verrx?|` +
		`_ZSt.*(throw|terminate|unexpected).*|_?_?(sig)?longjmp(_chk)?|__libc_start_main|.*panic.*|` +
		`g_assertion_message.*|_ZN3fmt.*(throw_format_error|assert_fail).*|` +
		`.*__raise_.*|__gnat_(rcheck|raise).*|_d_(arraybounds|assert|throw|switch_error|unittest).*)$`)

// relocate applies the relocations for the loader. Functions of other objects are outside.
func (c *child) relocate() {
	symbols, _ := c.file.DynamicSymbols()
	for _, s := range c.file.Sections {
		if s.Type != elf.SHT_RELA || s.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		b, _ := s.Data()
		for ; len(b) >= 24; b = b[24:] {
			offset, info := binary.LittleEndian.Uint64(b)-c.low, binary.LittleEndian.Uint64(b[8:])
			v := binary.LittleEndian.Uint64(b[16:])
			switch kind, k := elf.R_X86_64(uint32(info)), int(info>>32)-1; {
			case offset > uint64(len(c.data)-8):
				continue
			case kind == elf.R_X86_64_RELATIVE:
				v += c.bias
			case kind == elf.R_X86_64_IRELATIVE || k < 0 || k >= len(symbols):
				v = outside
			case kind != elf.R_X86_64_64 && kind != elf.R_X86_64_GLOB_DAT && kind != elf.R_X86_64_JMP_SLOT:
				continue
			case symbols[k].Section != elf.SHN_UNDEF:
				v += c.bias + symbols[k].Value
			case noReturn.MatchString(symbols[k].Name):
				v = never
			default:
				v = outside
			}
			binary.LittleEndian.PutUint64(c.data[offset:], v)
		}
	}
}

// start begins the process anew, with another program's executable, of which no instruction is executed.
func (c *child) start(rng *rand.Rand) error {
	c.end()
	c.cmd = exec.Command("/bin/true")
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	if c.err = c.cmd.Start(); c.err != nil {
		return c.err
	}
	c.pid = c.cmd.Process.Pid
	var ws unix.WaitStatus
	if _, c.err = unix.Wait4(c.pid, &ws, 0, nil); c.err != nil {
		return c.err
	}
	if c.mem, c.err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", c.pid), os.O_WRONLY, 0); c.err != nil {
		return c.err
	}
	c.mmap(c.bias+c.low, uint64(len(c.data)), unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC)
	c.mmap(arenaAt, areaLen, unix.PROT_READ|unix.PROT_WRITE)
	c.mmap(stackAt, areaLen, unix.PROT_READ|unix.PROT_WRITE)
	c.write(c.bias+c.low, c.data)
	for _, p := range c.file.Progs { // code and constants stay what they are
		if low := p.Vaddr &^ (pageSize - 1); p.Type == elf.PT_LOAD && p.Flags&elf.PF_W == 0 {
			c.syscall(unix.SYS_MPROTECT, c.bias+low, p.Vaddr+p.Memsz-low, unix.PROT_READ|unix.PROT_EXEC, 0)
		}
	}
	arena := make([]byte, 0, areaLen)
	for len(arena) < areaLen {
		arena = binary.LittleEndian.AppendUint64(arena, anyValue(rng))
	}
	c.write(arenaAt, arena)
	return c.err
}

// anyValue returns a pointer into the arena's lower half, or a number.
func anyValue(rng *rand.Rand) uint64 {
	switch rng.IntN(8) {
	case 0:
		return rng.Uint64()
	case 1, 2:
		return rng.Uint64N(64)
	case 3:
		return 0
	}
	return arenaAt + rng.Uint64N(areaLen/128)*64
}

func (c *child) mmap(addr, size, mode uint64) {
	got := c.syscall(unix.SYS_MMAP, addr, size, mode, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE)
	if c.err == nil && got != addr {
		c.err = fmt.Errorf("no memory at %#x: %w", addr, unix.Errno(-got))
	}
}

// syscall lets the child make a system call, in place of the instruction that it is at.
func (c *child) syscall(number, a, b, d, e uint64) uint64 {
	old := c.regs()
	r := old
	if _, err := unix.PtracePokeText(c.pid, uintptr(r.Rip), []byte{0x0f, 0x05}); err != nil && c.err == nil {
		c.err = err
	}
	r.Rax, r.Rdi, r.Rsi, r.Rdx, r.R10, r.R8, r.R9 = number, a, b, d, e, ^uint64(0), 0
	c.setRegs(&r)
	c.step()
	r = c.regs()
	c.setRegs(&old)
	return r.Rax
}

// regs returns the registers.
func (c *child) regs() (r unix.PtraceRegs) {
	if c.err == nil {
		c.err = unix.PtraceGetRegs(c.pid, &r)
	}
	return r
}

// setRegs sets the registers. No system call is started again.
func (c *child) setRegs(r *unix.PtraceRegs) {
	if r.Orig_rax = ^uint64(0); c.err == nil {
		c.err = unix.PtraceSetRegs(c.pid, r)
	}
}

// step executes an instruction and returns the signal that stopped it.
func (c *child) step() unix.Signal {
	var ws unix.WaitStatus
	if c.err == nil {
		c.err = unix.PtraceSingleStep(c.pid)
	}
	if c.err == nil {
		_, c.err = unix.Wait4(c.pid, &ws, unix.WALL, nil)
	}
	if c.err == nil && !ws.Stopped() {
		c.err = errEnded
	}
	return ws.StopSignal()
}

// write writes memory. What is not mapped is left out, as below the stack's end.
func (c *child) write(addr uint64, b []byte) {
	_, _ = c.mem.WriteAt(b, int64(addr))
}

// code returns the bytes from a link-time address of code on, nil if there is no code.
func (c *child) code(pc uint64) []byte {
	for _, p := range c.file.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && pc >= p.Vaddr && pc < p.Vaddr+p.Filesz {
			return c.data[pc-c.low:]
		}
	}
	return nil
}

// end ends the process.
func (c *child) end() {
	if c.cmd != nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		_ = c.mem.Close()
	}
}
