package main

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOnDemandBounded has an object with more states in CIEs than are kept at a time:
// a table leaves the last FDE out, so that an eh_elf would not answer as rows on
// demand do.
func TestOnDemandBounded(t *testing.T) {
	const cies, states = 300, 256
	f := frames{text: cies}
	for i := range uint32(cies) {
		f.fde(f.cie(bytes.Repeat([]byte{0x0a}, states)...), i, 1) // DW_CFA_remember_state
	}
	image := f.elf()
	d := newOnDemand(false)
	_, stepper, err := d.prepare("many", bytes.NewReader(image), int64(len(image)))
	require.NoError(t, err)
	mem := ehelf.Memory{Lo: 0x1000, Bytes: make([]byte, 8)}
	for i := range uint64(cies) {
		regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
		regs.Reg[abi.RIP], regs.Reg[abi.RSP] = textOff+i, mem.Lo
		assert.Equal(t, abi.StatusOK, stepper.Step(&regs, &mem, 0))
		assert.Equal(t, mem.Lo+8, regs.Reg[abi.RSP])
	}
	_, err = d.ehElf(context.Background(), "many", bytes.NewReader(image), int64(len(image)))
	assert.ErrorIs(t, err, errBounded)
}

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

// TestFillCacheInTime: a deadline ends it at once and silently, and what is there is whole.
func TestFillCacheInTime(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	d := newOnDemand(true)
	for _, path := range []string{"/bin/true", libc, "/usr/bin/gdb"} {
		d.wants[path] = nil
	}
	ctx, stop := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer stop()
	var stderr bytes.Buffer
	begin := time.Now()
	d.fillCache(ctx, 1, true, newConsole(io.Discard, &stderr))
	assert.Less(t, time.Since(begin), 10*time.Second)
	assert.Empty(t, stderr.String())
	light, heavy := splitBySize([]string{"/bin/true", libc, "/nowhere"})
	assert.Equal(t, []string{"/bin/true"}, light)
	assert.Equal(t, []string{libc, "/nowhere"}, heavy)
}
