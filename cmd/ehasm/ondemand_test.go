package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/profile/ondemand"

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
	d := ondemand.New(ondemand.Options{})
	_, stepper, err := d.Prepare("many", bytes.NewReader(image), int64(len(image)))
	require.NoError(t, err)
	mem := ehelf.Memory{Lo: 0x1000, Bytes: make([]byte, 8)}
	for i := range uint64(cies) {
		regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
		regs.Reg[abi.RIP], regs.Reg[abi.RSP] = textOff+i, mem.Lo
		assert.Equal(t, abi.StatusOK, stepper.Step(&regs, &mem, 0))
		assert.Equal(t, mem.Lo+8, regs.Reg[abi.RSP])
	}
	_, err = d.EhElf(context.Background(), "many", bytes.NewReader(image), int64(len(image)))
	assert.ErrorIs(t, err, ondemand.ErrBounded)
}
