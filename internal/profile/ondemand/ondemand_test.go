package ondemand

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/builder"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRowStepperTook counts up to the number of steps that are worth compiling.
func TestRowStepperTook(t *testing.T) {
	noted := 0
	s := rowStepper{worth: 10, note: func() { noted++ }}
	var took []bool
	for _, steps := range []int{9, 0, 5, 1, 100} {
		took = append(took, s.Took(steps))
	}
	assert.Equal(t, []bool{false, false, true, false, false}, took)
	assert.Equal(t, 1, noted)
}

// libc is a file that takes a while to be compiled.
const libc = "/lib/x86_64-linux-gnu/libc.so.6"

// talk is what a build has told, but for files that are done.
type talk []string

func (p *talk) Note(name string, err error) { *p = append(*p, name+": "+err.Error()) }
func (p *talk) Begin(int, int64)            {}
func (p *talk) Done(*builder.Outcome)       {}
func (p *talk) End(err error) {
	if err != nil {
		*p = append(*p, err.Error())
	}
}

// TestFillCacheInTime: a deadline ends it at once and silently, and what is there is whole.
func TestFillCacheInTime(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	d := New(Options{Keep: true})
	for _, path := range []string{"/bin/true", libc, "/usr/bin/gdb"} {
		d.wants[path] = nil
	}
	ctx, stop := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer stop()
	var told talk
	begin := time.Now()
	d.FillCache(ctx, 1, &told)
	assert.Less(t, time.Since(begin), 10*time.Second)
	assert.Empty(t, told)
	light, heavy := splitBySize([]string{"/bin/true", libc, "/nowhere"})
	assert.Equal(t, []string{"/bin/true"}, light)
	assert.Equal(t, []string{libc, "/nowhere"}, heavy)
}

// TestWithoutRows: code without a row is followed to its return where no rows are made from it.
func TestWithoutRows(t *testing.T) {
	dir := t.TempDir()
	src, lib := filepath.Join(dir, "leaf.s"), filepath.Join(dir, "leaf.so")
	require.NoError(t, os.WriteFile(src, []byte(`
	.globl leaf
leaf:	sub $24, %rsp
	nop
	add $24, %rsp
	ret
	.section .note.GNU-stack,"",@progbits
`), 0o666))
	out, err := exec.Command("gcc", "-shared", "-nostdlib", "-o", lib, src).CombinedOutput()
	require.NoError(t, err, "%s", out)
	f, err := elf.Open(lib)
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	require.NoError(t, err)
	file, err := os.Open(lib)
	require.NoError(t, err)
	defer file.Close()
	st, err := file.Stat()
	require.NoError(t, err)
	d := New(Options{Background: true})
	d.End() // no rows are made
	_, stepper, err := d.Prepare(lib, file, st.Size())
	require.NoError(t, err)
	const bias, sp, size, back = 0x10000, 0x7000, 4, 0x123
	memory := ehelf.Memory{Lo: sp, Bytes: make([]byte, 64)}
	binary.LittleEndian.PutUint64(memory.Bytes[24:], back)
	regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
	regs.Reg[abi.RIP], regs.Reg[abi.RSP] = symbols[0].Value+size+bias, sp
	require.Equal(t, abi.StatusOK, stepper.Step(&regs, &memory, bias))
	assert.Equal(t, uint64(back), regs.Reg[abi.RIP])
	assert.Equal(t, uint64(sp+32), regs.Reg[abi.RSP])
}
