package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/internal/testing/unwindtest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gregNames are the places in gregset_t, of sys/ucontext.h.
var gregNames = []int{abi.R8, abi.R9, abi.R10, abi.R11, abi.R12, abi.R13, abi.R14, abi.R15,
	abi.RDI, abi.RSI, abi.RBP, abi.RBX, abi.RDX, abi.RAX, abi.RCX, abi.RSP, abi.RIP}

type gregset [23]uint64

func (g *gregset) regs() *abi.Regs {
	regs := &abi.Regs{Valid: abi.AllRegs, Exact: 1}
	for i, reg := range gregNames {
		regs.Reg[reg] = g[i]
	}
	return regs
}

// TestSignals walks through the frame of a signal in real programs, and compares with
// what the handler was told. glibc has unwind information for it, musl none.
func TestSignals(t *testing.T) {
	testtool.Need(t, "gcc", "musl-gcc")
	for name, compiler := range map[string][]string{
		"glibc": {"gcc"}, "musl": {"musl-gcc"}, "musl, static": {"musl-gcc", "-static"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "signals")
			args := append(compiler[1:], "-D_GNU_SOURCE", "-O2", "-g", "-fasynchronous-unwind-tables", "-Wall",
				"-Wextra", "-Werror",
				"-o", path, "testdata/signals.c")
			out, err := exec.Command(compiler[0], args...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			out, err = exec.Command(path).Output()
			require.NoError(t, err)

			var interrupted, now gregset
			var size uint64
			r := bytes.NewReader(out)
			for _, to := range []any{&interrupted, &now, &size} {
				require.NoError(t, binary.Read(r, binary.LittleEndian, to))
			}
			rest := out[len(out)-r.Len():]
			maps, mem := string(rest[:size]), &ehelf.Memory{Lo: now.regs().Reg[abi.RSP], Bytes: rest[size:]}

			objects := NewObjects(Options{Compile: unwindtest.Compile})
			defer objects.Close()
			ps := NewProcesses()
			bias := mapAll(t, ps, objects, maps, path)
			f, err := elf.Open(path)
			require.NoError(t, err)
			defer f.Close()
			var walker Walker
			var pcs [4]uint64
			regs := now.regs()
			n, cause, _ := walker.Walk(ps.Space(1).Maps(), regs, mem, pcs[:3])
			require.Equal(t, Full, cause)
			require.Equal(t, 3, n)
			assert.Equal(t, now.regs().Reg[abi.RIP], pcs[0])
			assert.Equal(t, "handler", function(t, f, pcs[0]-bias))
			assert.Equal(t, "work", function(t, f, pcs[2]-bias))
			want := interrupted.regs()
			assert.Equal(t, want.Reg[abi.RIP], pcs[2])
			assert.EqualValues(t, 1, regs.Exact)
			for _, reg := range []int{abi.RSP, abi.RBX, abi.RBP, abi.R12, abi.R13, abi.R14, abi.R15} {
				assert.NotZero(t, regs.Valid>>reg&1)
				assert.Equal(t, want.Reg[reg], regs.Reg[reg], "register %d", reg)
			}
			assert.Equal(t, uint64(3), regs.Reg[abi.RBX])
			if name != "glibc" {
				assert.Equal(t, want.Reg, regs.Reg)
			}
			n, _, _ = walker.Walk(ps.Space(1).Maps(), now.regs(), mem, pcs[:])
			require.Equal(t, 4, n)
			assert.Equal(t, "main", function(t, f, pcs[3]-bias))
			assert.Zero(t, walker.Guessed)

			// A copy of the stack that ends in the signal's frame.
			off := interruptedAt(t, mem, &interrupted)
			for _, size := range []int{off - 1, off - 17*8, off - 17*8 - 39, off - 17*8 - 40} {
				n, cause, _ = walker.Walk(ps.Space(1).Maps(), now.regs(),
					&ehelf.Memory{Lo: mem.Lo, Bytes: mem.Bytes[:size]}, pcs[:])
				assert.Equal(t, 2, n)
				assert.Equal(t, Unreadable, cause)
			}
			assert.Zero(t, walker.Guessed)
		})
	}
}

// interruptedAt returns where in a copy of the stack the 17 registers end that the kernel goes on with.
func interruptedAt(t *testing.T, mem *ehelf.Memory, g *gregset) int {
	want, err := binary.Append(nil, binary.LittleEndian, g[:17])
	require.NoError(t, err)
	off := bytes.Index(mem.Bytes, want)
	require.Positive(t, off)
	return off + len(want)
}

// mapAll maps what lines of /proc/PID/maps say, and returns the load bias of the program.
func mapAll(t *testing.T, ps *Processes, objects *Objects, maps, program string) (bias uint64) {
	for line := range strings.Lines(maps) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1][2] != 'x' || !strings.HasPrefix(fields[5], "/") {
			continue
		}
		low, high, _ := strings.Cut(fields[0], "-")
		var n [3]uint64
		for i, s := range []string{low, high, fields[2]} {
			var err error
			n[i], err = strconv.ParseUint(s, 16, 64)
			require.NoError(t, err)
		}
		o := objects.Object(fields[5], nil)
		ps.Space(1).Map(n[0], n[1]-n[0], n[2], o)
		if fields[5] == program {
			var ok bool
			bias, ok = o.Bias(&Mapping{Start: n[0], End: n[1], Offset: n[2]})
			require.True(t, ok)
		}
	}
	return bias
}

// function returns the name of the function that holds a link-time address.
func function(t *testing.T, f *elf.File, addr uint64) string {
	symbols, err := f.Symbols()
	require.NoError(t, err)
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && addr-s.Value < s.Size {
			return s.Name
		}
	}
	return ""
}

// TestSignalOfGo: in a Go program the function before the code has no row for what
// is before it.
func TestSignalOfGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path+".go", []byte("package main\n\nfunc main() {}\n"), 0o666))
	build := exec.Command("go", "build", "-o", path, path+".go")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	sigreturn, main := symbol(t, f, "runtime.sigreturn__sigaction.abi0"), symbol(t, f, "main.main")

	o, err := dwarfcfa.Open(path)
	require.NoError(t, err)
	defer o.Close()
	table, _, err := dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{})
	require.NoError(t, err)
	_, found := table.Lookup(dwarfcfa.Addr(sigreturn - 1))
	assert.False(t, found)

	objects := NewObjects(Options{Compile: unwindtest.Compile})
	defer objects.Close()
	ps := NewProcesses()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			ps.Space(1).Map(p.Vaddr, p.Memsz, p.Off, objects.Object(path, nil))
		}
	}
	mem := &ehelf.Memory{Lo: 0x7ffc0000, Bytes: make([]byte, 1024)}
	for i, reg := range gregNames {
		value := uint64(1000 + reg)
		switch reg {
		case abi.RSP:
			value = 0xc000010000
		case abi.RIP:
			value = main
		}
		binary.LittleEndian.PutUint64(mem.Bytes[40+8*i:], value)
	}
	var pcs [4]uint64
	regs := start(sigreturn)
	regs.Exact = 0
	var walker Walker
	n, cause, _ := walker.Walk(ps.Space(1).Maps(), regs, mem, pcs[:])
	assert.Equal(t, []uint64{sigreturn, main}, pcs[:n])
	assert.Equal(t, Unreadable, cause, "what was interrupted has another stack")
	assert.Equal(t, uint64(1000+abi.RBX), regs.Reg[abi.RBX])
}

func TestSigreturnAt(t *testing.T) {
	code := []byte("\x90" + abi.Sigreturn[0] + "\x90" + abi.Sigreturn[1] + "\xb8\x0e\x00\x00\x00\x0f\x05" + "\x0f\x05")
	var found []int
	for off := range len(code) + 2 {
		if sigreturnAt(code, off) {
			found = append(found, off)
		}
	}
	assert.Equal(t, []int{1, 8, 11, 16}, found)
}
