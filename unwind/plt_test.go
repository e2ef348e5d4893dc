package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/testing/unwindtest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/arch/x86/x86asm"
)

// TestPLTofLD compares with the tables that GNU ld writes for its procedure linkage
// tables, at every instruction.
func TestPLTofLD(t *testing.T) {
	for _, c := range []struct {
		name, flags string
		insns       int // in the first entry, in those of 3 functions, and of 2 in .plt.got
	}{
		{"lazy", "-Wl,-z,lazy", 3 + 3*3 + 2*2},
		{"ibt", "-Wl,-z,lazy,-z,ibtplt", 3 + 3*4 + 3*3 + 2*3},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := linked(t, c.flags)
			o, err := dwarfcfa.Open(path)
			require.NoError(t, err)
			defer o.Close()
			table, _, err := dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{})
			require.NoError(t, err)
			f, err := os.Open(path)
			require.NoError(t, err)
			defer f.Close()
			sections, err := readPLT(f)
			require.NoError(t, err)
			insns := 0
			for _, s := range sections {
				for off, nop := range instructions(t, s.code) {
					insns++
					mem := stack(1, 2, 3)
					regs := start(s.addr + uint64(off))
					require.Equal(t, abi.StatusOK, table.Step(regs, mem, 0), "%#x", s.addr+uint64(off))
					cfa, ok := pltCFA(s.code, off)
					if assert.Equal(t, !nop, ok, "%#x", s.addr+uint64(off)) && ok {
						assert.Equal(t, regs.Reg[abi.RSP]-mem.Lo, cfa, "%#x", s.addr+uint64(off))
					}
				}
			}
			assert.Equal(t, c.insns, insns)
		})
	}
}

// linked returns a program with a procedure linkage table.
func linked(t *testing.T, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "p.c")
	require.NoError(t, os.WriteFile(source,
		[]byte("#include <stdlib.h>\nint main(int n, char **v) { return abs(n) + atoi(v[0]) + rand() + (rand != abort) + atexit(abort); }\n"), 0o666))
	path := filepath.Join(dir, "p")
	out, err := exec.Command("gcc", append(flags, "-O0", "-fno-builtin", "-o", path, source)...).CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

// TestPLTWithoutRows walks from every instruction of tables that have no rows.
func TestPLTWithoutRows(t *testing.T) {
	path := linked(t, "-Wl,-z,lazy,--no-ld-generated-unwind-info")
	exe, err := elf.Open(path)
	require.NoError(t, err)
	defer exe.Close()
	main := symbol(t, exe, "main")
	objects := NewObjects(Options{Compile: unwindtest.Compile})
	defer objects.Close()
	ps := NewProcesses()
	for _, p := range exe.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			ps.Space(1).Map(p.Vaddr, p.Memsz, p.Off, objects.Object(path, nil))
		}
	}
	walker := Walker{FramePointers: Never}
	walk := func(pc, cfa uint64) (Cause, []uint64) {
		mem := &ehelf.Memory{Lo: 0x7ffc0000, Bytes: make([]byte, 64)}
		binary.LittleEndian.PutUint64(mem.Bytes[cfa-8:], main+1)
		var pcs [2]uint64
		n, cause, _ := walker.Walk(ps.Space(1).Maps(), start(pc), mem, pcs[:])
		return cause, pcs[:n]
	}
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	sections, err := readPLT(f)
	require.NoError(t, err)
	seen := 0
	for _, s := range sections {
		for off, nop := range instructions(t, s.code) {
			pc := s.addr + uint64(off)
			cfa, ok := pltCFA(s.code, off)
			if assert.Equal(t, !nop, ok, "%#x", pc); ok {
				seen++
				cause, pcs := walk(pc, cfa)
				assert.Equal(t, Full, cause)
				assert.Equal(t, []uint64{pc, main + 1}, pcs)
			} else {
				cause, _ := walk(pc, 8)
				assert.Equal(t, NoInfo, cause)
			}
		}
	}
	assert.Greater(t, seen, 10)
	assert.Zero(t, walker.Guessed)

	// A return address in the table, and a stack that is too short, are no frames of it.
	o := objects.Object(path, nil)
	regs := start(sections[0].addr + 16)
	assert.False(t, o.stepPLT(sections[0].addr+16, regs, &ehelf.Memory{Lo: 0x7ffc0000, Bytes: make([]byte, 7)}))
	regs.Exact = 0
	assert.False(t, o.stepPLT(sections[0].addr+16, regs, stack(1)))
	assert.False(t, objects.Object("//anon", nil).stepPLT(0, start(0), stack(1)))
}

// instructions yields the offset of each instruction, and whether it is a nop.
func instructions(t *testing.T, code []byte) iter.Seq2[int, bool] {
	return func(yield func(int, bool) bool) {
		for off := 0; off < len(code); {
			length, nop := 4, false // endbr64, which x86asm does not know
			if !bytes.HasPrefix(code[off:], []byte{0xf3, 0x0f, 0x1e, 0xfa}) {
				insn, err := x86asm.Decode(code[off:], 64)
				require.NoError(t, err)
				length, nop = insn.Len, insn.Op == x86asm.NOP || insn.Op == x86asm.XCHG
			}
			if !yield(off, nop) {
				return
			}
			off += length
		}
	}
}

func symbol(t *testing.T, f *elf.File, name string) uint64 {
	t.Helper()
	symbols, err := f.Symbols()
	require.NoError(t, err)
	for _, s := range symbols {
		if s.Name == name {
			return s.Value
		}
	}
	t.Fatal("no symbol", name)
	return 0
}

// TestPLTofMold has the instructions of mold's first and other entries.
func TestPLTofMold(t *testing.T) {
	code := []byte{
		0xf3, 0x0f, 0x1e, 0xfa, // endbr64
		0x41, 0x53, // push %r11
		0xff, 0x35, 1, 0, 0, 0, // push 1(%rip)
		0xff, 0x25, 1, 0, 0, 0, // jmp *1(%rip)
		0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
		0xf3, 0x0f, 0x1e, 0xfa, // endbr64
		0x41, 0xbb, 0, 0, 0, 0, // mov $0, %r11d
		0xff, 0x25, 1, 0, 0, 0, // jmp *1(%rip)
		0xe9, 0, 0, 0, 0, // not of a PLT: jmp without push
	}
	for off, want := range map[int]uint64{0: 8, 4: 8, 6: 16, 12: 24, 18: 0, 32: 8, 36: 8, 42: 8, 48: 0, len(code): 0} {
		cfa, ok := pltCFA(code, off)
		assert.Equal(t, want, cfa, "%d", off)
		assert.Equal(t, want != 0, ok, "%d", off)
	}
}
