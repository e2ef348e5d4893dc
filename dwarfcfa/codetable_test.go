package dwarfcfa

import (
	"encoding/binary"
	"testing"

	"github.com/ehasm/ehasm/abi"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// jitRows is the .eh_frame of CPython's trampolines without a frame pointer: wherever the section lies, its FDE is for
// the code.
func jitRows(size uint32) []byte {
	b := []byte{0x14, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 0x10, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
		0x10, 0, 0, 0, 0x1c, 0, 0, 0, 0xd8, 0xff, 0xff, 0xff}
	return append(binary.LittleEndian.AppendUint32(b, size), 0, 0x44, 0x0e, 0x10, 0, 0, 0, 0)
}

type wordsAt map[uint64]uint64

func (w wordsAt) ReadWord(addr uint64) (uint64, bool) { v, ok := w[addr]; return v, ok }

func TestCodeTable(t *testing.T) {
	for _, addr := range []Addr{1 << 20, 1 << 40} {
		table, start := NewCodeTable(NewSection("jit", SourceEHFrame, addr, jitRows(16), Bases{}), 16)
		require.NotNil(t, table)
		assert.Equal(t, addr-8, start)
		for pc, cfa := range map[uint64]uint64{0: 8, 3: 8, 4: 16, 15: 16} {
			regs := abi.Regs{Valid: 1<<abi.RIP | 1<<abi.RSP, Exact: 1}
			regs.Reg[abi.RIP], regs.Reg[abi.RSP] = 0x5000+pc, 0x9000
			status := table.Step(&regs, wordsAt{0x9000 + cfa - 8: 0x1234}, 0x5000-uint64(start))
			require.Equal(t, abi.StatusOK, status)
			assert.Equal(t, 0x9000+cfa, regs.Reg[abi.RSP])
			assert.Equal(t, uint64(0x1234), regs.Reg[abi.RIP])
		}
		regs := abi.Regs{Valid: 1<<abi.RIP | 1<<abi.RSP, Exact: 1}
		regs.Reg[abi.RIP] = 0x5010
		assert.Equal(t, abi.StatusNoInfo, table.Step(&regs, wordsAt{}, 0x5000-uint64(start)))
	}
}

// TestCodeTableHostile: rows reach no further than the code, whatever an FDE says, and bad sections have none.
func TestCodeTableHostile(t *testing.T) {
	table, start := NewCodeTable(NewSection("jit", SourceEHFrame, 1<<40, jitRows(1<<31-1), Bases{}), 16)
	require.NotNil(t, table)
	for pc, want := range map[uint64]abi.Status{15: abi.StatusOK, 16: abi.StatusNoInfo, 1 << 20: abi.StatusNoInfo} {
		regs := abi.Regs{Valid: 1<<abi.RIP | 1<<abi.RSP, Exact: 1}
		regs.Reg[abi.RIP], regs.Reg[abi.RSP] = uint64(start)+pc, 0x9000
		assert.Equal(t, want, table.Step(&regs, wordsAt{0x9008: 1}, 0), "%#x", pc)
	}
	whole := jitRows(16)
	for cut := range whole[:40] {
		table, _ := NewCodeTable(NewSection("jit", SourceEHFrame, 1<<40, whole[:cut], Bases{}), 16)
		assert.Nil(t, table, "%d bytes", cut)
	}
	wild := jitRows(16)
	binary.LittleEndian.PutUint32(wild[24:], 0xfffffff0)
	table, _ = NewCodeTable(NewSection("jit", SourceEHFrame, 1<<40, wild, Bases{}), 16)
	assert.Nil(t, table)
	table, _ = NewCodeTable(NewSection("jit", SourceEHFrame, 1<<40, whole, Bases{}), 1<<64-1)
	assert.Nil(t, table)
}
