package dwarfcfa

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
)

// wordMap is a memory of the words it lists.
type wordMap map[uint64]uint64

func (m wordMap) ReadWord(addr uint64) (uint64, bool) {
	w, ok := m[addr]
	return w, ok
}

func concat(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = append(b, byte(p))
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

// Each operation: its value, or the status it fails with. Registers: rbx 0x100,
// rsp 0x200, rip 0x300; rax is not valid. The CFA, on the stack at the start,
// is 0x400; the bias 0x1000. Memory: the word 0x8877665544332211 at 0x100.
func TestExpressionOperations(t *testing.T) {
	const (
		plus  = dwOpPlus
		minus = dwOpMinus
	)
	lit := func(n int) int { return dwOpLit0 + n }
	minus1 := concat(dwOpConst1s, 0xff)
	tests := []struct {
		name   string
		expr   []byte
		want   uint64
		status abi.Status
	}{
		{"nothing", nil, 0x400, 0},
		{"addr", concat(dwOpAddr, le64(5)), 0x1005, 0},
		{"lit0", concat(lit(0)), 0, 0},
		{"lit31", concat(lit(31)), 31, 0},
		{"const1u", concat(dwOpConst1u, 0xff), 0xff, 0},
		{"const1s", minus1, math.MaxUint64, 0},
		{"const2u", concat(dwOpConst2u, 0xfe, 0xff), 0xfffe, 0},
		{"const2s", concat(dwOpConst2s, 0xfe, 0xff), math.MaxUint64 - 1, 0},
		{"const4u", concat(dwOpConst4u, le32(1<<31)), 1 << 31, 0},
		{"const4s", concat(dwOpConst4s, le32(1<<31)), 0xffffffff80000000, 0},
		{"const8u", concat(dwOpConst8u, le64(1<<63)), 1 << 63, 0},
		{"const8s", concat(dwOpConst8s, le64(1<<63)), 1 << 63, 0},
		{"constu", concat(dwOpConstu, uleb(1<<40)), 1 << 40, 0},
		{"consts", concat(dwOpConsts, sleb(-300)), math.MaxUint64 - 299, 0},
		{"breg", concat(dwOpBreg0+3, sleb(-1)), 0xff, 0},
		{"breg of rip", concat(dwOpBreg0+16, sleb(1)), 0x301, 0},
		{"breg of an invalid register", concat(dwOpBreg0, sleb(0)), 0, abi.StatusBadRegister},
		{"reg", concat(dwOpReg0 + 3), 0x100, 0},
		{"regx", concat(dwOpRegx, uleb(7)), 0x200, 0},
		{"bregx", concat(dwOpBregx, uleb(7), sleb(8)), 0x208, 0},
		{"dup", concat(dwOpDup, plus), 0x800, 0},
		{"drop", concat(lit(1), dwOpDrop), 0x400, 0},
		{"over", concat(lit(1), dwOpOver), 0x400, 0},
		{"pick 0", concat(lit(1), dwOpPick, 0), 1, 0},
		{"pick 2", concat(lit(1), lit(2), dwOpPick, 2), 0x400, 0},
		{"swap", concat(lit(1), dwOpSwap, minus), 1<<64 - 0x3ff, 0},
		{"rot: the top", concat(lit(1), lit(2), dwOpRot), 1, 0},
		{"rot: the third", concat(lit(1), lit(2), dwOpRot, dwOpDrop, dwOpDrop), 2, 0},
		{"deref", concat(dwOpBreg0+3, 0, dwOpDeref), 0x8877665544332211, 0},
		{"deref of nothing", concat(lit(1), dwOpDeref), 0, abi.StatusUnreadable},
		{"deref_size 1", concat(dwOpBreg0+3, 0, dwOpDerefSize, 1), 0x11, 0},
		{"deref_size 2", concat(dwOpBreg0+3, 0, dwOpDerefSize, 2), 0x2211, 0},
		{"deref_size 4", concat(dwOpBreg0+3, 0, dwOpDerefSize, 4), 0x44332211, 0},
		{"deref_size 8", concat(dwOpBreg0+3, 0, dwOpDerefSize, 8), 0x8877665544332211, 0},
		{"deref_size of nothing", concat(lit(1), dwOpDerefSize, 1), 0, abi.StatusUnreadable},
		{"abs", concat(minus1, dwOpAbs), 1, 0},
		{"abs of the least", concat(dwOpConst8u, le64(1<<63), dwOpAbs), 1 << 63, 0},
		{"neg", concat(lit(1), dwOpNeg), math.MaxUint64, 0},
		{"not", concat(lit(1), dwOpNot), math.MaxUint64 - 1, 0},
		{"and", concat(lit(12), lit(10), dwOpAnd), 8, 0},
		{"or", concat(lit(12), lit(10), dwOpOr), 14, 0},
		{"xor", concat(lit(12), lit(10), dwOpXor), 6, 0},
		{"plus", concat(minus1, lit(3), plus), 2, 0},
		{"plus_uconst", concat(dwOpPlusUconst, uleb(0x80)), 0x480, 0},
		{"minus", concat(lit(1), lit(3), minus), math.MaxUint64 - 1, 0},
		{"mul", concat(minus1, lit(3), dwOpMul), math.MaxUint64 - 2, 0},
		{"div", concat(dwOpConst1s, 0xf9, lit(2), dwOpDiv), math.MaxUint64 - 2, 0}, // -7/2 = -3
		{"div by zero", concat(lit(1), lit(0), dwOpDiv), 0, abi.StatusUnreadable},
		{"div of the least by -1", concat(dwOpConst8u, le64(1<<63), minus1, dwOpDiv), 1 << 63, 0},
		{"mod is unsigned", concat(minus1, lit(10), dwOpMod), math.MaxUint64 % 10, 0},
		{"mod by zero", concat(lit(1), lit(0), dwOpMod), 0, abi.StatusUnreadable},
		{"shl", concat(lit(3), lit(4), dwOpShl), 48, 0},
		{"shl 64", concat(lit(3), dwOpConst1u, 64, dwOpShl), 0, 0},
		{"shr", concat(minus1, dwOpConst1u, 63, dwOpShr), 1, 0},
		{"shr 64", concat(minus1, dwOpConst1u, 64, dwOpShr), 0, 0},
		{"shra", concat(minus1, lit(4), dwOpShra), math.MaxUint64, 0},
		{"shra 64", concat(minus1, dwOpConst1u, 64, dwOpShra), math.MaxUint64, 0},
		{"shift by a huge number", concat(lit(1), minus1, dwOpShl), 0, 0},
		{"eq", concat(lit(1), lit(1), dwOpEq), 1, 0},
		{"ne", concat(lit(1), lit(1), dwOpNe), 0, 0},
		{"lt is signed", concat(minus1, lit(1), dwOpLt), 1, 0},
		{"le", concat(lit(1), lit(1), dwOpLe), 1, 0},
		{"gt is signed", concat(minus1, lit(1), dwOpGt), 0, 0},
		{"ge", concat(lit(2), lit(1), dwOpGe), 1, 0},
		{"nop", concat(dwOpNop), 0x400, 0},
		{"bra taken", concat(lit(1), dwOpBra, 2, 0, lit(9), plus), 0x400 + 0, 0},
		{"bra not taken", concat(lit(0), dwOpBra, 2, 0, lit(9), plus), 0x409, 0},
		{"bra to the next", concat(lit(1), dwOpBra, 0, 0), 0x400, 0},
		{"skip", concat(dwOpSkip, 2, 0, lit(9), plus, lit(2), plus), 0x402, 0},
		{"skip to the end", concat(dwOpSkip, 1, 0, lit(9)), 0x400, 0},
		{"skip over what is not an expression", concat(dwOpSkip, 2, 0, 0xff, 0xff, lit(2), plus), 0x402, 0},
		{"if and else", concat(lit(0), dwOpBra, 4, 0, lit(5), dwOpSkip, 1, 0, lit(6), plus), 0x405, 0},
		{"the first failure decides: register", concat(dwOpBreg0, 0, lit(1), dwOpDeref), 0, abi.StatusBadRegister},
		{"the first failure decides: memory", concat(lit(1), dwOpDeref, dwOpBreg0, 0), 0, abi.StatusUnreadable},
		{"PLT", concat(dwOpBreg0+7, 8, dwOpBreg0+16, 0, lit(15), dwOpAnd, lit(11), dwOpGe, lit(3), dwOpShl, plus),
			0x208, 0},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			ops, err := decodeExpr(tc.expr, true, false)
			require.NoError(t, err)
			x := Expr{Ops: ops, Pushed: true, Raw: tc.expr}
			require.NoError(t, x.verify())
			regs := abi.Regs{Valid: 1<<abi.RBX | 1<<abi.RSP | 1<<abi.RIP}
			regs.Reg[abi.RBX], regs.Reg[abi.RSP], regs.Reg[abi.RIP] = 0x100, 0x200, 0x300
			e := evaluator{
				exprs: []Expr{{}, x}, regs: &regs, bias: 0x1000, cfa: 0x400,
				mem: wordMap{0x100: 0x8877665544332211},
			}
			got, status := e.expr(1)
			assert.Equal(t, tc.status, status)
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestBadExpressions(t *testing.T) {
	lits := func(n int) []byte { return bytes.Repeat([]byte{dwOpLit0}, n) }
	tests := []struct {
		name string
		expr []byte
		kind error
		want string
	}{
		{"empty", nil, ErrBadEncoding, "an expression without a result"},
		{"result dropped", concat(dwOpLit0, dwOpDrop), ErrBadEncoding, "an expression without a result"},
		{"underflow", concat(dwOpLit0, dwOpPlus), ErrBadEncoding, "an expression takes from an empty stack"},
		{"underflow of plus_uconst", concat(dwOpPlusUconst, 1), ErrBadEncoding,
			"an expression takes from an empty stack"},
		{"underflow of pick", concat(dwOpLit0, dwOpPick, 1), ErrBadEncoding, "an expression takes from an empty stack"},
		{"underflow of rot", concat(dwOpLit0, dwOpLit0, dwOpRot), ErrBadEncoding,
			"an expression takes from an empty stack"},
		{"too deep", lits(MaxExprStack + 1), ErrUnsupported, "an expression of more than 16 stack entries"},
		{"too long", concat(lits(1), bytes.Repeat([]byte{dwOpNot}, MaxExprOps)), ErrUnsupported,
			"an expression of more than 256 operations"},
		{"backward branch", concat(dwOpLit0, dwOpDup, dwOpBra, 0xfc, 0xff), ErrUnsupported,
			"a backward branch in an expression"},
		{"backward skip", concat(dwOpSkip, 0xfd, 0xff), ErrUnsupported, "a backward branch in an expression"},
		{"branch out of range", concat(dwOpLit0, dwOpSkip, 1, 0), ErrBadEncoding, "a branch out of an expression"},
		{"branch into an operation", concat(dwOpLit0, dwOpLit0, dwOpBra, 1, 0, dwOpConst1u, 1, dwOpDrop),
			ErrBadEncoding, "a branch into the middle of an operation"},
		{"unequal depths", concat(dwOpLit0, dwOpLit0, dwOpBra, 1, 0, dwOpLit0), ErrUnsupported,
			"paths of an expression join with different stack depths"},
		{"register above 16", concat(dwOpBreg0+17, 0), ErrUnsupported, "an expression uses register 17"},
		{"absurd register", concat(dwOpBregx, uleb(1<<40), 0), ErrUnsupported,
			"an expression uses register 1099511627776"},
		{"deref_size 3", concat(dwOpLit0, dwOpDerefSize, 3), ErrUnsupported, "an expression reads 3 bytes"},
		{"truncated operand", concat(dwOpConst4u, 1, 2), ErrTruncated, "truncated: a block runs past the end at +0x3"},
		{"truncated branch", concat(dwOpLit0, dwOpSkip, 1), ErrTruncated,
			"truncated: a block runs past the end at +0x3"},
		{"truncated register", concat(dwOpBregx, 0x80), ErrTruncated, "truncated: a byte runs past the end at +0x2"},
		{"xderef", concat(dwOpLit0, dwOpLit0, 0x18), ErrUnsupported, "expression operation DW_OP_xderef"},
		{"push_object_address", concat(0x97), ErrUnsupported, "expression operation DW_OP_push_object_address"},
		{"call2", concat(0x98, 0, 0), ErrUnsupported, "expression operation DW_OP_call2"},
		{"call_frame_cfa", concat(0x9c), ErrUnsupported, "expression operation DW_OP_call_frame_cfa"},
		{"entry_value", concat(0xa3, 1, 0x50), ErrUnsupported, "expression operation DW_OP_entry_value"},
		{"deref_type", concat(dwOpLit0, 0xa6, 8, 1), ErrUnsupported, "expression operation DW_OP_deref_type"},
		{"GNU_encoded_addr", concat(0xf1, 0), ErrUnsupported, "expression operation DW_OP_GNU_encoded_addr"},
		{"unknown", concat(0xe5), ErrUnsupported, "expression operation DW_OP_0xe5"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			ops, err := decodeExpr(tc.expr, false, false)
			assert.Nil(t, ops)
			assert.EqualError(t, err, tc.want)
			assert.ErrorIs(t, err, tc.kind)
			assert.NotPanics(t, func() { ExprText(tc.expr) })
		})
	}
	_, err := decodeExpr(lits(MaxExprStack), true, false)
	assert.Error(t, err, "the CFA takes a place on the stack")
	_, err = decodeExpr(lits(MaxExprStack), false, false)
	assert.NoError(t, err)
}

func TestExprText(t *testing.T) {
	tests := []struct {
		expr []byte
		want string
	}{
		{concat(dwOpBreg0+7, 8, dwOpLit0+15, dwOpAnd), "DW_OP_breg7 (rsp): 8; DW_OP_lit15; DW_OP_and"},
		{concat(dwOpReg0+3, dwOpRegx, 3, dwOpBregx, 6, 0x78),
			"DW_OP_reg3 (rbx); DW_OP_regx: 3 (rbx); DW_OP_bregx: 6 (rbp) -8"},
		{concat(dwOpAddr, le64(0x1234), dwOpDeref, dwOpDerefSize, 4),
			"DW_OP_addr: 1234; DW_OP_deref; DW_OP_deref_size: 4"},
		{concat(dwOpConst1s, 0xff, dwOpPlusUconst, 8, dwOpNop, dwOpOver),
			"DW_OP_const1s: -1; DW_OP_plus_uconst: 8; DW_OP_nop; DW_OP_over"},
		{concat(dwOpSkip, 1, 0, 0x98), "DW_OP_skip: 1 (addr: 4); DW_OP_call2 ... (98)"},
		{concat(dwOpConst8u, 1), "DW_OP_const8u: 0 (truncated)"},
	}
	for _, tc := range tests {
		assert.Equal(t, tc.want, ExprText(tc.expr))
	}
}
