package verify

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
)

// unreadable fails the test where a word that a step asks for is in the window.
type unreadable struct {
	t   *testing.T
	mem *abi.Memory
}

func (u unreadable) ReadWord(addr uint64) (uint64, bool) {
	inside := u.mem.Size >= 8 && addr-u.mem.Lo <= u.mem.Size-8
	assert.False(u.t, inside, "%#x is in the window", addr)
	return 0, false
}

// TestWindowEnds takes steps whose words wrap around the end of the address space, in
// windows that hold nearly all of it. No such word is readable: the code must say
// so and not read it.
func TestWindowEnds(t *testing.T) {
	rsp, rbp := rowtest.Row(abi.RSP, 8), rowtest.Row(abi.RBP, 8)
	table := &dwarfcfa.Table{
		Exprs: make([]dwarfcfa.Expr, 1), Rows: []dwarfcfa.Row{rsp, rbp},
		Ranges: []dwarfcfa.Range{{Start: 0x1000, End: 0x1010, Row: 0}, {Start: 0x1010, End: 0x1020, Row: 1}},
	}
	for _, v := range variants() {
		obj, err := ehelf.FromBytes(compile(t, table, v))
		require.NoError(t, err)
		defer obj.Close()
		for _, pc := range []uint64{0x1000, 0x1010} {
			for _, addr := range []uint64{^uint64(7), ^uint64(6), ^uint64(0)} {
				for _, lo := range []uint64{0, 1 << 40} {
					mem := &abi.Memory{Lo: lo, Size: ^uint64(0)}
					regs := &abi.Regs{Valid: abi.AllRegs, Exact: 1}
					regs.Reg[abi.RIP], regs.Reg[abi.RSP], regs.Reg[abi.RBP] = pc, addr+lo, addr+lo
					want := *regs
					table.Step(&want, unreadable{t, mem}, 0)
					pcs := new(uint64)
					n := obj.WalkRaw(regs, mem, 0, pcs, 1)
					name := fmt.Sprintf("%s: pc %#x, %#x+%#x", v.name, pc, lo, addr)
					assert.Equal(t, uint64(0), n, name)
					assert.Equal(t, abi.StatusUnreadable, regs.Status, name)
					assert.Equal(t, want, *regs, name)
				}
			}
		}
	}
}

// TestNullDerefHigh takes a step of _eh_elf without a callback whose words wrap: it has
// to answer with an error, and call nothing.
func TestNullDerefHigh(t *testing.T) {
	table := &dwarfcfa.Table{
		Exprs: make([]dwarfcfa.Expr, 1), Rows: []dwarfcfa.Row{rowtest.Row(abi.RSP, 8)},
		Ranges: []dwarfcfa.Range{{Start: 0x1000, End: 0x1010, Row: 0}},
	}
	for _, v := range variants() {
		obj, err := ehelf.FromBytes(compile(t, table, v))
		require.NoError(t, err)
		defer obj.Close()
		for _, rsp := range []uint64{^uint64(7), ^uint64(0)} {
			out := obj.StepContext(abi.Context{RIP: 0x1000, RSP: rsp}, 0x1000, 0)
			assert.EqualValues(t, abi.ContextError, out.Flags, v.name)
		}
	}
}
