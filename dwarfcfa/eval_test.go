package dwarfcfa

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
)

// frame returns a frame at testCode+4 with all registers valid: register i holds
// 0x1000*(i+1), but for rsp and rip.
func frame(bias uint64) abi.Regs {
	regs := abi.Regs{Valid: abi.AllRegs}
	for i := range regs.Reg {
		regs.Reg[i] = 0x1000 * uint64(i+1)
	}
	regs.Reg[abi.RSP] = 0x7000_0000
	regs.Reg[abi.RIP] = testCode + 5 + bias
	return regs
}

// stack is memory whose word at a is a+1, but for holes.
type stack struct{ holes []uint64 }

func (s stack) ReadWord(a uint64) (uint64, bool) {
	for _, h := range s.holes {
		if a == h {
			return 0, false
		}
	}
	return a + 1, true
}

func TestStep(t *testing.T) {
	table, _ := fdeTable(t, def(16), save(3, 2), save(6, 3),
		inst(CFAValOffset, uleb(12), uleb(1)),
		inst(CFARegister, uleb(13), uleb(14)),
		inst(CFAExpression, uleb(14), block(0x77, 0x10)),
		inst(CFAValExpression, uleb(15), block(0x23, 0x20)),
		inst(CFASameValue, uleb(0)),
		inst(CFARegister, uleb(1), uleb(3)))
	const bias, cfa = 0x5555_0000_0000, 0x7000_0010
	for _, exact := range []uint16{0, 1} {
		regs := frame(bias)
		old := regs
		regs.Exact = exact
		regs.Reg[abi.RIP] -= uint64(exact) * 5 // the first pc itself
		regs.Status = abi.StatusNotCompiled
		require.Equal(t, abi.StatusOK, table.Step(&regs, stack{holes: []uint64{cfa - 24}}, bias))
		want := abi.Regs{}
		want.Reg = old.Reg
		set := func(r int, v uint64) {
			want.Reg[r] = v
			want.Valid |= 1 << r
		}
		set(abi.RIP, cfa-8+1)
		set(abi.RSP, cfa)
		set(abi.RBX, cfa-16+1)
		// rbp: its slot is unreadable.
		set(abi.R12, cfa-8)
		set(abi.R13, old.Reg[abi.R14])
		set(abi.R14, old.Reg[abi.RSP]+16+1)
		set(abi.R15, cfa+0x20)
		set(abi.RAX, old.Reg[abi.RAX])
		set(abi.RDX, old.Reg[abi.RBX]) // the old rbx, not the restored one
		assert.Equal(t, want, regs)
	}
}

func TestStepStatuses(t *testing.T) {
	const rsp = 0x7000_0000 // rsp
	invalid := func(regs ...int) func(*abi.Regs) {
		return func(r *abi.Regs) {
			for _, i := range regs {
				r.Valid &^= 1 << i
			}
		}
	}
	readRBX := block(0x73, 0x00, 0x06) // the word at rbx
	tests := []struct {
		name  string
		prog  []byte
		regs  func(*abi.Regs)
		holes []uint64
		want  abi.Status
	}{
		{"all is well", nil, nil, nil, 0},
		{"rsp not valid", nil, invalid(abi.RSP), nil, abi.StatusBadRegister},
		{"rip not valid", nil, invalid(abi.RIP), nil, abi.StatusBadRegister},
		{"rip not valid comes before the end of the stack", inst(CFAUndefinedReg, uleb(16)), invalid(abi.RIP), nil,
			abi.StatusBadRegister},
		{"no row", nil, func(r *abi.Regs) { r.Reg[abi.RIP] = testCode }, nil, abi.StatusNoInfo},
		{"the first pc, exactly", nil, func(r *abi.Regs) { r.Reg[abi.RIP], r.Exact = testCode, 1 }, nil, 0},
		{"a return address one past the end", nil, func(r *abi.Regs) { r.Reg[abi.RIP] = testCode + 0x100 }, nil, 0},
		{"one past the end, exactly", nil, func(r *abi.Regs) { r.Reg[abi.RIP], r.Exact = testCode+0x100, 1 }, nil,
			abi.StatusNoInfo},
		{"return address 0", nil, func(r *abi.Regs) { r.Reg[abi.RIP] = 0 }, nil, abi.StatusNoInfo},
		{"end of stack", inst(CFAUndefinedReg, uleb(16)), nil, nil, abi.StatusOutermost},
		{"not compiled", inst(CFADefCFARegister, uleb(17)), nil, nil, abi.StatusNotCompiled},
		{"return address unreadable", nil, nil, []uint64{rsp}, abi.StatusUnreadable},
		{"CFA on an invalid register", inst(CFADefCFA, uleb(6), uleb(16)), invalid(abi.RBP), nil,
			abi.StatusBadRegister},
		{"CFA expression on an invalid register", inst(CFADefCFAExpression, readRBX), invalid(abi.RBX), nil,
			abi.StatusBadRegister},
		{"CFA expression reads what is unreadable", inst(CFADefCFAExpression, readRBX), nil, []uint64{0x4000},
			abi.StatusUnreadable},
		{"CFA without a value", inst(CFADefCFAExpression, block(0x31, 0x30, 0x1b)), nil, nil, abi.StatusUnreadable},
		{"the CFA comes before the return address",
			cat(inst(CFADefCFAExpression, readRBX), inst(CFARegister, uleb(16), uleb(0))), invalid(abi.RAX),
			[]uint64{0x4000}, abi.StatusUnreadable},
		{"return address in an invalid register", inst(CFARegister, uleb(16), uleb(0)), invalid(abi.RAX), nil,
			abi.StatusBadRegister},
		{"return address expression on an invalid register", inst(CFAExpression, uleb(16), block(0x70, 0x00)),
			invalid(abi.RAX), nil, abi.StatusBadRegister},
		{"return address expression to what is unreadable", inst(CFAExpression, uleb(16), block(0x70, 0x00)), nil,
			[]uint64{0x1000}, abi.StatusUnreadable},
		{"return address expression reads what is unreadable",
			inst(CFAValExpression, uleb(16), block(0x70, 0x00, 0x06)), nil, []uint64{0x1000}, abi.StatusUnreadable},
		{"return address stays", inst(CFASameValue, uleb(16)), nil, nil, 0},
		{"other registers never fail",
			cat(save(3, 2), inst(CFARegister, uleb(1), uleb(0)), inst(CFAExpression, uleb(6), block(0x70, 0x00)),
				inst(CFAValExpression, uleb(12), block(0x31, 0x30, 0x1b)),
				inst(CFAExpression, uleb(7), block(0x70, 0x00))),
			invalid(abi.RAX), []uint64{rsp - 8}, 0},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			table, rep := fdeTable(t, tc.prog)
			require.Empty(t, rep.LostFDEs)
			regs := frame(0)
			if tc.regs != nil {
				tc.regs(&regs)
			}
			old := regs
			assert.Equal(t, tc.want, table.Step(&regs, stack{tc.holes}, 0))
			if tc.want != abi.StatusOK {
				old.Status = tc.want
				assert.Equal(t, old, regs, "only the status has changed")
			}
			if tc.name == "other registers never fail" {
				assert.Zero(t, regs.Valid&(1<<abi.RBX|1<<abi.RDX|1<<abi.RBP|1<<abi.R12|1<<abi.RSP))
			}
		})
	}
}

func TestStepOverSignalFrame(t *testing.T) {
	var s sectionBuilder
	cie := s.rawCIE(cat([]byte{1, 'z', 'S', 0}, uleb(1), sleb(-8), []byte{16, 0}, usualCIE()))
	s.rawFDE(cie, cat(le64(testCode), le64(0x10), uleb(0)))
	table, _ := build(t, s.section())
	regs := frame(0)
	require.Equal(t, abi.StatusOK, table.Step(&regs, stack{}, 0))
	assert.Equal(t, uint16(1), regs.Exact)
}

// DW_OP_addr is a link-time address: the bias is added.
func TestStepAddsTheBias(t *testing.T) {
	table, _ := fdeTable(t, inst(CFADefCFAExpression, block(append([]byte{dwOpAddr}, le64(0x40)...)...)))
	regs := frame(0x100000)
	require.Equal(t, abi.StatusOK, table.Step(&regs, stack{}, 0x100000))
	assert.Equal(t, uint64(0x100040), regs.Reg[abi.RSP])
	assert.Equal(t, uint64(0x100040-8+1), regs.Reg[abi.RIP])
}

func TestLookup(t *testing.T) {
	var empty Table
	_, ok := empty.Lookup(0)
	assert.False(t, ok)
	assert.Zero(t, empty.Low())
	assert.Zero(t, empty.High())

	table := Table{Ranges: []Range{{0x10, 0x20, 0}, {0x20, 0x30, 1}, {0x40, 0x41, 0}}}
	for pc := range Addr(0x50) {
		r, ok := table.Lookup(pc)
		want := pc >= 0x10 && pc < 0x30 || pc == 0x40
		assert.Equal(t, want, ok, "%#x", pc)
		if ok {
			assert.True(t, r.Start <= pc && pc < r.End)
		}
	}
	assert.Equal(t, Addr(0x10), table.Low())
	assert.Equal(t, Addr(0x41), table.High())
}

// randomRegs makes a frame at a pc, some of whose registers are valid.
func randomRegs(rnd *rand.Rand, pc Addr) abi.Regs {
	var regs abi.Regs
	for i := range regs.Reg {
		regs.Reg[i] = rnd.Uint64() >> (rnd.Uint64() & 63)
	}
	regs.Reg[abi.RIP] = uint64(pc)
	regs.Valid = rnd.Uint32()&abi.AllRegs | 1<<abi.RSP | 1<<abi.RIP
	regs.Exact = uint16(rnd.Uint32() & 1)
	return regs
}

// randomMemory is a memory of which every eighth word is unreadable.
type randomMemory struct{ seed uint64 }

func (m randomMemory) ReadWord(a uint64) (uint64, bool) {
	w := (a ^ m.seed) * 0x9e3779b97f4a7c15
	return w, w>>61 != 0
}
