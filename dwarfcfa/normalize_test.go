package dwarfcfa

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func def(n uint64) []byte               { return inst(CFADefCFAOffset, uleb(n)) }
func advance(n byte) []byte             { return low(CFAAdvanceLoc, n) }
func save(reg byte, slot uint64) []byte { return low(CFAOffset, reg, uleb(slot)) }

// Popped registers: a rule whose slot an epilogue has
// left below rsp means same value, unless the slot was below rsp when that rule
// was set.
func TestPoppedRegisters(t *testing.T) {
	tests := []struct {
		name string
		prog []byte
		want []string
	}{
		{
			"push and pop",
			cat(advance(1), def(16), save(3, 2), advance(9), def(8)),
			[]string{"000..001 rsp+8 ra=c-8", "001..00a rsp+16 rbx=c-16 ra=c-8", "00a..100 rsp+8 ra=c-8"},
		},
		{
			"the rule comes first, in the same row",
			cat(advance(1), save(3, 2), def(16), advance(9), def(8)),
			[]string{"000..001 rsp+8 ra=c-8", "001..00a rsp+16 rbx=c-16 ra=c-8", "00a..100 rsp+8 ra=c-8"},
		},
		{
			"a slot at rsp is not below it",
			cat(advance(1), def(24), save(3, 2), save(6, 3), advance(9), def(16)),
			[]string{"000..001 rsp+8 ra=c-8", "001..00a rsp+24 rbx=c-16 rbp=c-24 ra=c-8",
				"00a..100 rsp+16 rbx=c-16 ra=c-8"},
		},
		{
			"a save in the red zone stays",
			cat(advance(1), save(3, 2)),
			[]string{"000..001 rsp+8 ra=c-8", "001..100 rsp+8 rbx=c-16 ra=c-8"},
		},
		{
			"a save in the red zone stays when rsp comes back to it",
			cat(save(3, 2), advance(1), def(24), advance(1), def(8)),
			[]string{"000..001 rsp+8 rbx=c-16 ra=c-8", "001..002 rsp+24 rbx=c-16 ra=c-8",
				"002..100 rsp+8 rbx=c-16 ra=c-8"},
		},
		{
			"frame pointer: leave",
			cat(advance(1), def(16), save(6, 2), advance(3), inst(CFADefCFARegister, uleb(6)), advance(4), save(3, 3),
				advance(8), inst(CFADefCFA, uleb(7), uleb(8))),
			[]string{
				"000..001 rsp+8 ra=c-8", "001..004 rsp+16 rbp=c-16 ra=c-8", "004..008 rbp+16 rbp=c-16 ra=c-8",
				"008..010 rbp+16 rbx=c-24 rbp=c-16 ra=c-8", "010..100 rsp+8 ra=c-8",
			},
		},
		{
			"remember and restore bring back how the rule was set",
			cat(advance(1), def(16), save(3, 2), advance(1), inst(CFARememberState), low(CFARestore, 3), def(8),
				advance(1), inst(CFARestoreState), advance(1), def(8)),
			[]string{
				"000..001 rsp+8 ra=c-8", "001..002 rsp+16 rbx=c-16 ra=c-8", "002..003 rsp+8 ra=c-8",
				"003..004 rsp+16 rbx=c-16 ra=c-8", "004..100 rsp+8 ra=c-8",
			},
		},
		{
			"remembered in the row that set it, restored elsewhere",
			cat(advance(1), def(16), save(3, 2), inst(CFARememberState), advance(1), low(CFARestore, 3), def(8),
				advance(1), inst(CFARestoreState), def(8)),
			[]string{"000..001 rsp+8 ra=c-8", "001..002 rsp+16 rbx=c-16 ra=c-8", "002..100 rsp+8 ra=c-8"},
		},
		{
			"a red-zone save remembered stays one",
			cat(save(3, 2), inst(CFARememberState), advance(1), def(24), advance(1), inst(CFARestoreState)),
			[]string{"000..001 rsp+8 rbx=c-16 ra=c-8", "001..002 rsp+24 rbx=c-16 ra=c-8",
				"002..100 rsp+8 rbx=c-16 ra=c-8"},
		},
		{
			"set again while below: a red-zone save",
			cat(advance(1), def(16), save(3, 2), advance(1), def(8), advance(1), save(3, 2)),
			[]string{"000..001 rsp+8 ra=c-8", "001..002 rsp+16 rbx=c-16 ra=c-8", "002..003 rsp+8 ra=c-8",
				"003..100 rsp+8 rbx=c-16 ra=c-8"},
		},
		{
			"the return address is never popped",
			cat(advance(1), low(CFAOffset, 16, uleb(1)), advance(1), def(0)),
			[]string{"000..002 rsp+8 ra=c-8", "002..100 rsp+0 ra=c-8"},
		},
		{
			"an expression that is rsp+N counts as one",
			cat(advance(1), def(16), save(3, 2), advance(1), inst(CFADefCFAExpression, block(0x77, 0x08))),
			[]string{"000..001 rsp+8 ra=c-8", "001..002 rsp+16 rbx=c-16 ra=c-8", "002..100 rsp+8 ra=c-8"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			table, rep := fdeTable(t, tc.prog)
			require.Empty(t, rep.LostFDEs)
			assert.Equal(t, tc.want, rowTexts(table))
		})
	}

	t.Run("a rule of the CIE is not set in the FDE", func(t *testing.T) {
		var s sectionBuilder
		s.fde(s.cie(usualCIE(), def(16), save(3, 2)), testCode, 0x100, advance(1), def(8))
		table, _ := build(t, s.section())
		assert.Equal(t, []string{"000..001 rsp+16 rbx=c-16 ra=c-8", "001..100 rsp+8 rbx=c-16 ra=c-8"}, rowTexts(table))
	})
}

func TestOverlaps(t *testing.T) {
	type fde struct{ start, size, cfa uint64 }
	tests := []struct {
		name string
		fdes []fde
		want []string
		rep  Report
	}{
		{"out of order", []fde{{0x20, 0x10, 2}, {0, 0x10, 1}}, []string{"000..010 rsp+1", "020..030 rsp+2"}, Report{}},
		{"one inside another", []fde{{0, 0x40, 1}, {0x10, 0x10, 2}}, []string{"000..010 rsp+1", "010..020 rsp+2"},
			Report{}},
		{"one over the end of another", []fde{{0, 0x20, 1}, {0x10, 0x20, 2}},
			[]string{"000..010 rsp+1", "010..030 rsp+2"}, Report{}},
		{"equal starts: the first counts", []fde{{0, 0x10, 1}, {0, 0x20, 2}, {0x20, 0x10, 3}},
			[]string{"000..010 rsp+1", "020..030 rsp+3"}, Report{Entries: EntryCounts{Shadowed: 1}}},
		{"empty ones do not count", []fde{{0, 0x20, 1}, {0x10, 0, 2}}, []string{"000..020 rsp+1"},
			Report{Entries: EntryCounts{Empty: 1}}},
		{"touching and equal", []fde{{0, 0x10, 1}, {0x10, 0x10, 1}}, []string{"000..020 rsp+1"}, Report{}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var s sectionBuilder
			cie := s.cie()
			for _, f := range tc.fdes {
				s.fde(cie, testCode+f.start, f.size, def(f.cfa))
			}
			table, rep := build(t, s.section())
			var want []string
			for _, w := range tc.want {
				want = append(want, w+" ra=c-8")
			}
			assert.Equal(t, want, rowTexts(table))
			assert.Equal(t, tc.rep.Entries.Shadowed, rep.Entries.Shadowed)
			assert.Equal(t, tc.rep.Entries.Empty, rep.Entries.Empty)
			assert.Equal(t, len(tc.fdes), rep.Entries.FDEs)
		})
	}
}

// A bad FDE inside another takes its range with it.
func TestLostFDEKeepsItsRange(t *testing.T) {
	var s sectionBuilder
	cie := s.cie()
	s.fde(cie, testCode, 0x40)
	s.fde(cie, testCode+0x10, 0x08, inst(CFARestoreState))
	s.fde(cie, testCode+0x1a, 0x10)
	code := make([]byte, 0x100) // all padding
	table, rep := buildOn(t, s.section(), testImage(code))
	assert.Equal(t, []string{"000..010 rsp+8 ra=c-8", "01a..02a rsp+8 ra=c-8"}, rowTexts(table))
	assert.Equal(t, 1, rep.Entries.Lost)
}

func TestFDEsOutsideTheCode(t *testing.T) {
	var s sectionBuilder
	cie := s.cie()
	s.fde(cie, 0, 0x20)                               // a tombstone
	s.fde(cie, testCode-8, 0x20)                      // starts before
	s.fde(cie, testCode+testCodeSize-8, 1<<40)        // runs past the end
	s.fde(cie, testCode+testCodeSize, 8)              // after
	s.fde(cie, testCode+0x10, 8)                      // inside
	s.fde(cie, 1<<63, 1<<62)                          // far away
	s.fde(cie, 1<<64-16, 15, low(CFAAdvanceLoc, 0x3)) // at the very end
	table, rep := build(t, s.section())
	assert.Equal(t, 5, rep.Entries.OutsideCode)
	assert.Equal(t, 1, rep.Entries.Clipped)
	require.Len(t, table.Ranges, 2)
	assert.Equal(t, Addr(testCode+0x10), table.Low())
	assert.Equal(t, Addr(testCode+testCodeSize), table.High())
}

func TestPadding(t *testing.T) {
	tests := []struct {
		name string
		gap  []byte
		want bool
	}{
		{"zeros", make([]byte, 15), true},
		{"int3", []byte{0xcc, 0xcc, 0xcc}, true},
		{"nop", []byte{0x90}, true},
		{"xchg ax, ax", []byte{0x66, 0x90}, true},
		{"nopl (rax)", []byte{0x0f, 0x1f, 0x00}, true},
		{"nopl 0(rax)", []byte{0x0f, 0x1f, 0x40, 0x00}, true},
		{"nopl 0(rax,rax,1)", []byte{0x0f, 0x1f, 0x44, 0x00, 0x00}, true},
		{"nopw 0(rax,rax,1)", []byte{0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00}, true},
		{"nopl 0L(rax)", []byte{0x0f, 0x1f, 0x80, 0, 0, 0, 0}, true},
		{"nopl 0L(rax,rax,1)", []byte{0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0}, true},
		{"nopw cs:0L(rax,rax,1)", []byte{0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0}, true},
		{"data16 nopw cs:0L(rax,rax,1)", []byte{0x66, 0x66, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0}, true},
		{"nopl disp32", []byte{0x0f, 0x1f, 0x05, 1, 2, 3, 4}, true},
		{"nopl disp32 with SIB", []byte{0x0f, 0x1f, 0x04, 0x25, 1, 2, 3, 4}, true},
		{"nopl reg", []byte{0x0f, 0x1f, 0xc0}, true},
		{"a mixture", []byte{0xcc, 0x66, 0x90, 0x00, 0x0f, 0x1f, 0x00}, true},
		{"code", []byte{0xc3}, false},
		{"0f 1f /1", []byte{0x0f, 0x1f, 0x08}, false},
		{"cut off", []byte{0x0f, 0x1f, 0x84, 0, 0, 0, 0}, false},
		{"a prefix alone", []byte{0x66}, false},
		{"code after padding", []byte{0x90, 0xf4}, false},
		{"wider alignment", make([]byte, 16), true},
		{"the widest", make([]byte, 255), true},
		{"too long", make([]byte, 256), false},
		{"code after much padding", append(make([]byte, 40), 0xf4), false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var s sectionBuilder
			cie := s.cie()
			next := uint64(testCode + 0x10 + len(tc.gap))
			s.fde(cie, testCode, 0x10, advance(8), def(16))
			s.fde(cie, next, 0x10, def(32))
			code := append(make([]byte, 0x10), tc.gap...)
			for i := range 0x10 {
				code[i] = 0xf4
			}
			code = append(code, 0xf4)
			table, rep := buildOn(t, s.section(), testImage(code))
			r, ok := table.Lookup(testCode + 0x10)
			assert.Equal(t, tc.want, ok)
			if tc.want {
				assert.Equal(t, "rsp+16 ra=c-8", table.RowText(r.Row))
				assert.Equal(t, Addr(testCode+0x10+min(len(tc.gap), 15)), r.End)
				assert.Equal(t, 1, rep.Rows.FilledGaps)
			}
			_, ok = table.Lookup(Addr(next) + 0x10)
			assert.False(t, ok, "after the last function there is no gap")
		})
	}
	// A function that is returned to without having called.
	for name, signal := range map[string]bool{"before the end of the stack": false, "before a signal frame": true} {
		t.Run(name, func(t *testing.T) {
			var s sectionBuilder
			cie := s.cie()
			s.fde(cie, testCode, 8)
			if signal {
				zS := s.rawCIE(cat([]byte{1, 'z', 'S', 0}, uleb(1), sleb(-8), []byte{16}, uleb(0), usualCIE()))
				s.rawFDE(zS, cat(le64(testCode+10), le64(8), uleb(0)))
			} else {
				s.fde(cie, testCode+10, 8, []byte{0x07, 16}) // DW_CFA_undefined rip
			}
			table, rep := buildOn(t, s.section(),
				testImage([]byte{0xf4, 0xf4, 0xf4, 0xf4, 0xf4, 0xf4, 0xf4, 0xf4, 0x90, 0x90}))
			assert.Equal(t, 1, rep.Rows.FilledGaps)
			r, ok := table.Lookup(testCode + 8) // where a call returns to that never does
			assert.True(t, ok)
			assert.Equal(t, Addr(testCode), r.Start)
			_, ok = table.Lookup(testCode + 9) // the address before the code
			assert.False(t, ok)
			_, ok = table.Lookup(testCode + 10)
			assert.True(t, ok)
		})
	}
	for name, code := range map[string][]byte{
		"before Go's sigreturn": {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05},
		"before the short form": {0xb8, 15, 0, 0, 0, 0x0f, 0x05, 0xcd, 0x03},
		"other system call":     {0x48, 0xc7, 0xc0, 14, 0, 0, 0, 0x0f, 0x05},
	} {
		t.Run(name, func(t *testing.T) {
			var s sectionBuilder
			cie := s.cie()
			s.fde(cie, testCode, 2)
			s.fde(cie, testCode+4, 16)
			table, _ := buildOn(t, s.section(), testImage(append([]byte{0xf4, 0xf4, 0xcc, 0xcc}, code...)))
			_, ok := table.Lookup(testCode + 3)
			assert.Equal(t, name == "other system call", ok)
			_, ok = table.Lookup(testCode + 4)
			assert.True(t, ok)
		})
	}
	t.Run("unreadable text", func(t *testing.T) {
		var s sectionBuilder
		cie := s.cie()
		s.fde(cie, testCode, 8)
		s.fde(cie, testCode+10, 8)
		table, _ := build(t, s.section())
		assert.Len(t, table.Ranges, 2)
	})
}

func TestTextWindow(t *testing.T) {
	code := make([]byte, testCodeSize)
	for i := range code {
		code[i] = byte(i * 7)
	}
	w := textWindow{read: testImage(code).read}
	for off := 0; off+15 <= len(code); off += 1021 {
		require.Equal(t, code[off:off+15], w.at(testCode+Addr(off), 15))
	}
	assert.Nil(t, w.at(testCode+testCodeSize-4, 5))
	assert.Len(t, w.at(testCode+testCodeSize-4, 4), 4)
	assert.Nil(t, w.at(0, 1))
}

// Rows that cannot be compiled keep their FDE and are reported.
func TestNotCompiled(t *testing.T) {
	tests := []struct {
		name   string
		prog   []byte
		reason string
	}{
		{"CFA on a register above 16", inst(CFADefCFARegister, uleb(17)), "the CFA is on register 17"},
		{"CFA on an absurd register", inst(CFADefCFARegister, uleb(1<<40)), "the CFA is on register 65535"},
		{"register above 16", inst(CFARegister, uleb(3), uleb(17)), "rbx is in register 17"},
		{"backward branch", inst(CFADefCFAExpression, block(0x77, 0, 0x2f, 0xfb, 0xff)),
			"rule of the CFA: a backward branch in an expression"},
		{"call_frame_cfa", inst(CFAExpression, uleb(3), block(0x9c)),
			"rule of rbx: expression operation DW_OP_call_frame_cfa"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			table, rep := fdeTable(t, advance(16), tc.prog)
			assert.Equal(t, []string{"000..010 rsp+8 ra=c-8", "010..100 not compiled"}, rowTexts(table))
			assert.Empty(t, rep.LostFDEs)
			require.Equal(t, 1, rep.Rows.NotCompiled)
			assert.Equal(t, "+0x12: row 0x10010..0x10100: "+tc.reason, rep.NotCompiled[0].String())

			var s sectionBuilder
			s.fde(s.cie(), testCode, 0x100, advance(16), tc.prog)
			_, _, err := buildSection(s.section(), testImage(nil), BuildOptions{Strict: true})
			assert.EqualError(t, err, "libfoo.so: .eh_frame+0x12: FDE 0x10010..0x10100: "+tc.reason)
		})
	}
	t.Run("undefined CFA", func(t *testing.T) {
		var s sectionBuilder
		s.fde(s.cie(save(16, 1)), testCode, 0x10)
		table, rep := build(t, s.section())
		assert.Equal(t, []string{"000..010 not compiled"}, rowTexts(table))
		require.Len(t, rep.NotCompiled, 1)
		assert.EqualError(t, rep.NotCompiled[0].Reason, "the CFA is undefined")
	})
	t.Run("undefined return address comes first", func(t *testing.T) {
		table, rep := fdeTable(t, inst(CFADefCFARegister, uleb(17)), inst(CFAUndefinedReg, uleb(16)))
		assert.Equal(t, []string{"000..100 end of stack"}, rowTexts(table))
		assert.Zero(t, rep.Rows.NotCompiled)
	})
}

// Rows are compared by meaning.
func TestEqualMeaning(t *testing.T) {
	tests := []struct {
		name string
		a, b []byte
	}{
		{"CFA expression of a register", inst(CFADefCFA, uleb(6), uleb(16)),
			inst(CFADefCFAExpression, block(0x76, 0x10))},
		{"bregx", inst(CFADefCFAExpression, block(0x76, 0x10, 0x06)),
			inst(CFADefCFAExpression, block(0x92, 0x06, 0x10, 0x06))},
		{"nop", inst(CFADefCFAExpression, block(0x76, 0x10, 0x06)),
			inst(CFADefCFAExpression, block(0x76, 0x10, 0x96, 0x06))},
		{"saved at CFA+n", inst(CFAOffsetExtendedSF, uleb(3), sleb(-1)),
			inst(CFAExpression, uleb(3), block(0x23, 0x08))},
		{"saved at the CFA", inst(CFAOffsetExtended, uleb(3), uleb(0)), inst(CFAExpression, uleb(3), block())},
		{"is CFA+n", inst(CFAValOffsetSF, uleb(3), sleb(-1)), inst(CFAValExpression, uleb(3), block(0x38, 0x22))},
		{"is a register", inst(CFARegister, uleb(3), uleb(10)), inst(CFAValExpression, uleb(3), block(0x7a, 0x00))},
		{"is itself", inst(CFASameValue, uleb(0)), inst(CFARegister, uleb(0), uleb(0))},
		{"rsp is the CFA", inst(CFAValOffset, uleb(7), uleb(0)), nil},
		{"callee-saved", inst(CFASameValue, uleb(3)), nil},
		{"caller-saved", inst(CFAUndefinedReg, uleb(0)), nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			table, rep := fdeTable(t, inst(CFARememberState), tc.a, advance(1), inst(CFARestoreState), tc.b)
			require.Zero(t, rep.Rows.NotCompiled, "%v", rep.NotCompiled)
			assert.Len(t, table.Ranges, 1, "%v", rowTexts(table))
		})
	}
}

func TestTableNumbersByFirstUse(t *testing.T) {
	var s sectionBuilder
	cie := s.cie()
	s.fde(cie, testCode+0x40, 0x10, inst(CFADefCFAExpression, block(0x76, 0x00, 0x06)))
	s.fde(cie, testCode+0x20, 0x10, inst(CFADefCFAExpression, block(0x77, 0x00, 0x06)), advance(1), def(8))
	s.fde(cie, testCode, 0x10, def(32))
	table, _ := build(t, s.section())
	assert.Equal(t, []uint32{0, 1, 2}, []uint32{table.Ranges[0].Row, table.Ranges[1].Row, table.Ranges[2].Row})
	assert.Equal(t, ExprID(1), table.Rows[1].CFA.Expr)
	assert.Equal(t, ExprID(2), table.Rows[2].CFA.Expr)
}
