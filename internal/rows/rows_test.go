package rows

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
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

// TestWithoutRows: code without a row is followed to its return where no rows are made from it.
func TestWithoutRows(t *testing.T) {
	l := openLeaf(t, "nop")
	d := New(Options{Background: true})
	d.End() // no rows are made
	l.steps(t, d)
}

// TestTablesOnly: no row comes from the code.
func TestTablesOnly(t *testing.T) {
	l := openLeaf(t, "nop\n.section .text.described\n.cfi_startproc\nret\n.cfi_endproc\n.text")
	_, stepper, err := New(Options{TablesOnly: true}).Prepare(l.file.Name(), l.file, l.size)
	require.NoError(t, err)
	regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
	regs.Reg[abi.RIP], regs.Reg[abi.RSP] = l.start+4, 0x7000
	memory := ehelf.Memory{Lo: 0x7000, Bytes: make([]byte, 64)}
	assert.Equal(t, abi.StatusNoInfo, stepper.Step(&regs, &memory, 0))
}

// TestWait: a step waits for rows that are made in the background, where following the code leads to no row.
func TestWait(t *testing.T) {
	l := openLeaf(t, "call leaf")
	waits := 0
	l.steps(t, New(Options{Background: true, Wait: func() time.Duration { waits++; return time.Minute }}))
	assert.Equal(t, 1, waits)
}

// TestPatience: steps wait for small files alone, and not often.
func TestPatience(t *testing.T) {
	assert.Zero(t, New(Options{}).patience(1))
	d := New(Options{Wait: func() time.Duration { return time.Second }})
	assert.Zero(t, d.patience(5<<20))
	assert.Equal(t, time.Second, d.patience(1<<20))
	assert.Zero(t, d.patience(1<<20))
	d.waited = time.Now().Add(-8 * time.Second)
	assert.Equal(t, time.Second, d.patience(1<<20))
}

// leaf is a library of one function without a row: it takes 24 bytes of the stack.
type leaf struct {
	file  *os.File
	size  int64
	start uint64 // of the function, which has 4 bytes before its body
}

func openLeaf(t *testing.T, body string) *leaf {
	dir := t.TempDir()
	src, lib := filepath.Join(dir, "leaf.s"), filepath.Join(dir, "leaf.so")
	require.NoError(t, os.WriteFile(src, []byte(`
	.globl leaf
	.hidden leaf
	.globl function
	.type function, @function
function:
leaf:	sub $24, %rsp
	`+body+`
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
	t.Cleanup(func() { file.Close() })
	st, err := file.Stat()
	require.NoError(t, err)
	return &leaf{file, st.Size(), symbols[0].Value}
}

// steps takes a step from the body, by what d prepares.
func (l *leaf) steps(t *testing.T, d *Maker) {
	_, stepper, err := d.Prepare(l.file.Name(), l.file, l.size)
	require.NoError(t, err)
	const bias, sp, back = 0x10000, 0x7000, 0x123
	memory := ehelf.Memory{Lo: sp, Bytes: make([]byte, 64)}
	binary.LittleEndian.PutUint64(memory.Bytes[24:], back)
	regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
	regs.Reg[abi.RIP], regs.Reg[abi.RSP] = l.start+4+bias, sp
	require.Equal(t, abi.StatusOK, stepper.Step(&regs, &memory, bias))
	assert.Equal(t, uint64(back), regs.Reg[abi.RIP])
	assert.Equal(t, uint64(sp+32), regs.Reg[abi.RSP])
}
