package dwarfcfa

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// DWARF 5 Appendix D.6: a machine with the registers R0 to R7, a constant 0
// (R0), the return address in R1, temporaries R2 and R3, preserved R4 to R6,
// stack pointer R7, and the return address column 8.
func TestWorkedTableOfTheStandard(t *testing.T) {
	const fsize = 0x40
	s := sectionBuilder{debug: true}
	cie := s.rawCIE(cat([]byte{4, 0, 8, 0}, uleb(4), sleb(-4), uleb(8),
		inst(CFADefCFA, uleb(7), uleb(0)),
		inst(CFASameValue, uleb(0)),
		inst(CFAUndefinedReg, uleb(1)), inst(CFAUndefinedReg, uleb(2)), inst(CFAUndefinedReg, uleb(3)),
		inst(CFASameValue, uleb(4)), inst(CFASameValue, uleb(5)), inst(CFASameValue, uleb(6)),
		inst(CFAValOffset, uleb(7), uleb(0)),
		inst(CFARegister, uleb(8), uleb(1)),
		inst(CFANop)))
	s.fde(cie, testCode, 84,
		low(CFAAdvanceLoc, 1), inst(CFADefCFAOffset, uleb(fsize)),
		low(CFAAdvanceLoc, 1), low(CFAOffset, 8, uleb(1)),
		low(CFAAdvanceLoc, 1), low(CFAOffset, 6, uleb(2)),
		low(CFAAdvanceLoc, 1), inst(CFADefCFARegister, uleb(6)),
		low(CFAAdvanceLoc, 1), low(CFAOffset, 4, uleb(3)),
		low(CFAAdvanceLoc, 12), low(CFARestore, 4),
		low(CFAAdvanceLoc, 1), low(CFARestore, 6), inst(CFADefCFARegister, uleb(7)),
		low(CFAAdvanceLoc, 1), low(CFARestore, 8),
		low(CFAAdvanceLoc, 1), inst(CFADefCFAOffset, uleb(0)),
		inst(CFANop), inst(CFANop))
	rows, err := NewInterp().Rows(firstFDE(t, s.section()))
	require.NoError(t, err)

	// Location, CFA, R0 to R8. Registers print under their x86-64 names.
	want := []string{
		"0 rsp+0 s u u u s s s v+0 r1",
		"4 rsp+64 s u u u s s s v+0 r1",
		"8 rsp+64 s u u u s s s v+0 c-4",
		"12 rsp+64 s u u u s s c-8 v+0 c-4",
		"16 rbp+64 s u u u s s c-8 v+0 c-4",
		"20 rbp+64 s u u u c-12 s c-8 v+0 c-4",
		"68 rbp+64 s u u u s s c-8 v+0 c-4",
		"72 rsp+64 s u u u s s s v+0 c-4",
		"76 rsp+64 s u u u s s s v+0 r1",
		"80 rsp+0 s u u u s s s v+0 r1",
	}
	var got []string
	for _, r := range rows {
		cells := []string{fmt.Sprint(uint64(r.Start - testCode)), string(appendCFA(nil, r.Row.CFA))}
		for c := range 9 {
			cell, _, _ := strings.Cut(string(appendRule(nil, r.Row.Regs[c])), " ")
			cells = append(cells, cell)
		}
		got = append(got, strings.Join(cells, " "))
	}
	assert.Equal(t, want, got)
	assert.Equal(t, Addr(testCode+84), rows[len(rows)-1].End)
}

// Each instruction on its own: the raw row it makes at the end of the program,
// in the notation of describeRow. The CIE is the usual one.
func TestInstructions(t *testing.T) {
	huge := uleb(1<<64 - 8) // -8 as an unsigned number
	tests := []struct {
		name string
		prog []byte
		want string
	}{
		{"nothing", nil, "rsp+8 ra=c-8"},
		{"nop", inst(CFANop), "rsp+8 ra=c-8"},
		{"def_cfa", inst(CFADefCFA, uleb(6), uleb(16)), "rbp+16 ra=c-8"},
		{"def_cfa on rip", inst(CFADefCFA, uleb(16), uleb(1)), "rip+1 ra=c-8"},
		{"def_cfa_sf", inst(CFADefCFASF, uleb(6), sleb(-2)), "rbp+16 ra=c-8"},
		{"def_cfa_sf down", inst(CFADefCFASF, uleb(6), sleb(2)), "rbp-16 ra=c-8"},
		{"def_cfa_register", inst(CFADefCFARegister, uleb(6)), "rbp+8 ra=c-8"},
		{"def_cfa_offset", inst(CFADefCFAOffset, uleb(1000)), "rsp+1000 ra=c-8"},
		{"def_cfa_offset wraps", inst(CFADefCFAOffset, huge), "rsp-8 ra=c-8"},
		{"def_cfa_offset_sf", inst(CFADefCFAOffsetSF, sleb(-3)), "rsp+24 ra=c-8"},
		{"def_cfa_expression", inst(CFADefCFAExpression, block(0x76, 0x78, 0x06)),
			"exp(DW_OP_breg6 (rbp): -8; DW_OP_deref) ra=c-8"},
		{"def_cfa_register after an expression",
			cat(inst(CFADefCFAExpression, block(0x76, 0x00)), inst(CFADefCFARegister, uleb(10))), "r10+8 ra=c-8"},
		{"def_cfa_offset after an expression",
			cat(inst(CFADefCFAExpression, block(0x76, 0x00)), inst(CFADefCFAOffset, uleb(32))),
			"exp(DW_OP_breg6 (rbp): 0) ra=c-8"},
		{"def_cfa_offset, then def_cfa_register, after an expression",
			cat(inst(CFADefCFAExpression, block(0x76, 0x00)), inst(CFADefCFAOffset, uleb(32)),
				inst(CFADefCFARegister, uleb(7))),
			"rsp+32 ra=c-8"},
		{"offset", low(CFAOffset, 3, uleb(2)), "rsp+8 rbx=c-16 ra=c-8"},
		{"offset_extended", inst(CFAOffsetExtended, uleb(12), uleb(3)), "rsp+8 r12=c-24 ra=c-8"},
		{"offset_extended_sf", inst(CFAOffsetExtendedSF, uleb(12), sleb(-3)), "rsp+8 r12=c+24 ra=c-8"},
		{"GNU_negative_offset_extended", inst(CFAGNUNegativeOffsetExtended, uleb(12), uleb(3)),
			"rsp+8 r12=c+24 ra=c-8"},
		{"val_offset", inst(CFAValOffset, uleb(7), uleb(1)), "rsp+8 rsp=v-8 ra=c-8"},
		{"val_offset_sf", inst(CFAValOffsetSF, uleb(7), sleb(-2)), "rsp+8 rsp=v+16 ra=c-8"},
		{"register", inst(CFARegister, uleb(16), uleb(1)), "rsp+8 ra=r1 (rdx)"},
		{"undefined", inst(CFAUndefinedReg, uleb(3)), "rsp+8 rbx=u ra=c-8"},
		{"same_value", inst(CFASameValue, uleb(0)), "rsp+8 rax=s ra=c-8"},
		{"expression", inst(CFAExpression, uleb(3), block(0x77, 0x08)), "rsp+8 rbx=exp(DW_OP_breg7 (rsp): 8) ra=c-8"},
		{"val_expression", inst(CFAValExpression, uleb(3), block(0x77, 0x08)),
			"rsp+8 rbx=vexp(DW_OP_breg7 (rsp): 8) ra=c-8"},
		{"restore to the CIE's rule", cat(low(CFAOffset, 16, uleb(9)), low(CFARestore, 16)), "rsp+8 ra=c-8"},
		{"restore to no rule", cat(low(CFAOffset, 3, uleb(9)), low(CFARestore, 3)), "rsp+8 ra=c-8"},
		{"restore_extended", cat(low(CFAOffset, 16, uleb(9)), inst(CFARestoreExtended, uleb(16))), "rsp+8 ra=c-8"},
		{"remember and restore", cat(inst(CFARememberState), inst(CFADefCFA, uleb(6), uleb(16)),
			low(CFAOffset, 3, uleb(2)),
			inst(CFARestoreState)), "rsp+8 ra=c-8"},
		{"nested remember", cat(inst(CFARememberState), low(CFAOffset, 3, uleb(2)), inst(CFARememberState),
			low(CFAOffset, 3, uleb(3)), inst(CFARestoreState)), "rsp+8 rbx=c-16 ra=c-8"},
		{"GNU_args_size", inst(CFAGNUArgsSize, uleb(1<<40)), "rsp+8 ra=c-8"},
		{"registers that rows do not have", cat(low(CFAOffset, 17, uleb(2)),
			inst(CFAOffsetExtended, uleb(1<<40), uleb(2))),
			"rsp+8 ra=c-8"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var s sectionBuilder
			s.fde(s.cie(), testCode, 0x100, tc.prog)
			in := NewInterp()
			rows, err := in.Rows(firstFDE(t, s.section()))
			require.NoError(t, err)
			require.Len(t, rows, 1)
			table := Table{Rows: []Row{rows[0].Row}}
			for _, e := range in.exprs.entries {
				table.Exprs = append(table.Exprs, e.expr)
			}
			info := describeRow(&rows[0].Row, func(int) RegRule { return RegRule{} },
				func(id ExprID) []byte { return table.Exprs[id].Raw })
			got := []string{info.CFA}
			for r := range NumRegs {
				if text, ok := info.Regs[tableColumn(r)]; ok {
					got = append(got, tableColumn(r)+"="+text)
				}
			}
			assert.Equal(t, tc.want, strings.Join(got, " "))
		})
	}
}

// The instructions that move the location.
func TestAdvancing(t *testing.T) {
	def := func(n uint64) []byte { return inst(CFADefCFAOffset, uleb(n)) }
	tests := []struct {
		name string
		prog []byte
		want []string
	}{
		{"advance_loc", cat(low(CFAAdvanceLoc, 63), def(16)),
			[]string{"000..03f rsp+8 ra=c-8", "03f..100 rsp+16 ra=c-8"}},
		{"advance_loc1", cat(inst(CFAAdvanceLoc1, []byte{0xff}), def(16)),
			[]string{"000..0ff rsp+8 ra=c-8", "0ff..100 rsp+16 ra=c-8"}},
		{"advance_loc2", cat(inst(CFAAdvanceLoc2, []byte{0x80, 0}), def(16)),
			[]string{"000..080 rsp+8 ra=c-8", "080..100 rsp+16 ra=c-8"}},
		{"advance_loc4", cat(inst(CFAAdvanceLoc4, le32(1)), def(16)),
			[]string{"000..001 rsp+8 ra=c-8", "001..100 rsp+16 ra=c-8"}},
		{"MIPS_advance_loc8", cat(inst(CFAMIPSAdvanceLoc8, le64(2)), def(16)),
			[]string{"000..002 rsp+8 ra=c-8", "002..100 rsp+16 ra=c-8"}},
		{"set_loc", cat(inst(CFASetLoc, le64(testCode+0x40)), def(16)),
			[]string{"000..040 rsp+8 ra=c-8", "040..100 rsp+16 ra=c-8"}},
		{"by zero", cat(low(CFAAdvanceLoc, 0), def(16), low(CFAAdvanceLoc, 0), def(24)),
			[]string{"000..100 rsp+24 ra=c-8"}},
		{"rows past the end are cut off", cat(low(CFAAdvanceLoc, 32), def(16), inst(CFAAdvanceLoc2, []byte{0, 1}),
			def(24),
			low(CFAAdvanceLoc, 1), def(32)),
			[]string{"000..020 rsp+8 ra=c-8", "020..100 rsp+16 ra=c-8"}},
		{"a row at the end is cut off", cat(inst(CFAAdvanceLoc2, []byte{0, 1}), def(16)),
			[]string{"000..100 rsp+8 ra=c-8"}},
		{"equal rows merge", cat(low(CFAAdvanceLoc, 1), inst(CFAGNUArgsSize, uleb(8)), low(CFAAdvanceLoc, 1), def(8)),
			[]string{"000..100 rsp+8 ra=c-8"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			table, rep := fdeTable(t, tc.prog)
			require.Empty(t, rep.LostFDEs)
			assert.Equal(t, tc.want, rowTexts(table))
		})
	}
}

// Programs that cost their FDE, and nothing else.
func TestBadPrograms(t *testing.T) {
	tests := []struct {
		name string
		prog []byte
		kind error
		want string
	}{
		{"restore_state", inst(CFARestoreState), ErrBadEncoding, "DW_CFA_restore_state with an empty stack"},
		{"remember_state", []byte(strings.Repeat("\x0a", 10_000_000)), ErrUnsupported,
			"DW_CFA_remember_state nested more than 256 deep"},
		{"unknown instruction", inst(0x3f), ErrUnsupported, "unknown call frame instruction 0x3f"},
		{"GNU_window_save", inst(0x2d), ErrUnsupported, "unknown call frame instruction 0x2d"},
		{"AARCH64", inst(0x2c), ErrUnsupported, "unknown call frame instruction 0x2c"},
		{"set_loc back", cat(low(CFAAdvanceLoc, 2), inst(CFASetLoc, le64(testCode))), ErrBadEncoding,
			"DW_CFA_set_loc goes back from 0x10002 to 0x10000"},
		{"wrap around", inst(CFAMIPSAdvanceLoc8, le64(1<<64-1)), ErrBadEncoding,
			"DW_CFA_MIPS_advance_loc8 by 0xffffffffffffffff from 0x10000 overflows 64 bits"},
		{"truncated operand", inst(CFADefCFA, uleb(7)), ErrTruncated, "truncated: a byte runs past the end at +0x2c"},
		{"truncated LEB128", inst(CFADefCFAOffset, []byte{0x80}), ErrTruncated,
			"truncated: a byte runs past the end at +0x2c"},
		{"truncated block", inst(CFADefCFAExpression, uleb(1<<60)), ErrTruncated,
			"truncated: a block runs past the end at +0x34"},
		{"long LEB128", inst(CFADefCFAOffset, []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02")), ErrBadEncoding,
			"LEB128 number over 64 bits"},
		{"long signed LEB128", inst(CFADefCFAOffsetSF, []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")),
			ErrBadEncoding,
			"LEB128 number over 64 bits"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var s sectionBuilder
			cie := s.cie()
			off := s.fde(cie, testCode, 0x10, tc.prog)
			s.fde(cie, testCode+0x20, 0x10)
			table, rep := build(t, s.section())
			assert.Equal(t, []string{"020..030 rsp+8 ra=c-8"}, rowTexts(table))
			require.Len(t, rep.LostFDEs, 1)
			err := rep.LostFDEs[0]
			assert.ErrorIs(t, err, tc.kind)
			assert.Equal(t, fmt.Sprintf("libfoo.so: .eh_frame+%#x: FDE 0x10000..0x10010: %s", off, tc.want), err.Error())

			_, _, strict := buildSection(s.section(), testImage(nil), BuildOptions{Strict: true})
			assert.Equal(t, error(err), strict)
		})
	}
}

// Initial instructions are those of the CIE alone; the FDE starts from them,
// the stack of remembered states included.
func TestInitialInstructions(t *testing.T) {
	t.Run("remember_state in the CIE", func(t *testing.T) {
		var s sectionBuilder
		s.fde(s.cie(usualCIE(), inst(CFARememberState), inst(CFADefCFAOffset, uleb(64))), testCode, 0x100,
			low(CFAAdvanceLoc, 16), inst(CFARestoreState))
		table, _ := build(t, s.section())
		assert.Equal(t, []string{"000..010 rsp+64 ra=c-8", "010..100 rsp+8 ra=c-8"}, rowTexts(table))
	})
	t.Run("restore in the CIE", func(t *testing.T) {
		var s sectionBuilder
		s.fde(s.cie(usualCIE(), low(CFAOffset, 3, uleb(2)), low(CFARestore, 3)), testCode, 0x100)
		table, _ := build(t, s.section())
		assert.Equal(t, []string{"000..100 rsp+8 ra=c-8"}, rowTexts(table))
	})
	t.Run("advance_loc in the CIE", func(t *testing.T) {
		var s sectionBuilder
		s.fde(s.cie(usualCIE(), low(CFAAdvanceLoc, 1)), testCode, 0x100)
		_, rep := build(t, s.section())
		require.Len(t, rep.LostFDEs, 1)
		assert.Contains(t, rep.LostFDEs[0].Error(), "DW_CFA_advance_loc in the initial instructions of the CIE at +0x0")
	})
}

func TestReturnAddressColumn(t *testing.T) {
	cieWith := func(s *sectionBuilder, ra uint64, insts ...[]byte) int {
		return s.rawCIE(cat([]byte{3, 0}, uleb(1), sleb(-8), uleb(ra), inst(CFADefCFA, uleb(7), uleb(8)),
			cat(insts...)))
	}
	tests := []struct {
		name string
		ra   uint64
		prog []byte
		want string
	}{
		{"a register", 3, low(CFAOffset, 3, uleb(1)), "rsp+8 rbx=c-8 ra=c-8"},
		{"a column above 16", 40, cat(low(CFAOffset, 40, uleb(1)), low(CFAOffset, 16, uleb(7))), "rsp+8 ra=c-8"},
		{"an absurd column", 1 << 40, cat(inst(CFAOffsetExtended, uleb(1<<40), uleb(2)), low(CFAOffset, 16, uleb(7))),
			"rsp+8 ra=c-16"},
		{"no rule", 16, nil, "end of stack"},
		{"no rule for a register", 3, low(CFAOffset, 16, uleb(1)), "end of stack"},
		{"undefined", 16, inst(CFAUndefinedReg, uleb(16)), "end of stack"},
		{"same value", 16, inst(CFASameValue, uleb(16)), "rsp+8 ra=s"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var s sectionBuilder
			s.fde(cieWith(&s, tc.ra), testCode, 0x100, tc.prog)
			table, _ := build(t, s.section())
			assert.Equal(t, []string{"000..100 " + tc.want}, rowTexts(table))
		})
	}
}

func TestRowsPerFDEAreBounded(t *testing.T) {
	testtool.Long(t) // a million rows
	var s sectionBuilder
	s.fde(s.cie(), testCode, 1<<40, []byte(strings.Repeat(string([]byte{0x41}), MaxRowsPerFDE+1)))
	_, err := NewInterp().Rows(firstFDE(t, s.section()))
	assert.ErrorIs(t, err, ErrUnsupported)
}
