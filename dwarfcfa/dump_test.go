package dwarfcfa

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dumpSection has an FDE of each sort that dumps tell apart.
func dumpSection() *Section {
	var s sectionBuilder
	cie := s.cie()
	s.fde(cie, testCode, 0x20, advance(1), def(16), save(3, 2), advance(4),
		inst(CFADefCFAExpression, block(0x76, 0x00, 0x06)))
	s.fde(cie, testCode+0x20, 0x10, inst(CFANop), inst(CFANop))
	s.fde(cie, testCode+0x30, 0x10, inst(CFARestoreState))
	s.fde(cie, testCode+0x40, 0x10, inst(CFAUndefinedReg, uleb(16)))
	s.fde(cie, testCode+0x50, 0x10, inst(CFADefCFARegister, uleb(20)))
	s.b = append(s.b, 0, 0, 0, 0)
	return s.section()
}

func dumpText(t *testing.T, dump func(io.Writer) error) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, dump(&b))
	return b.String()
}

func TestDumpEntries(t *testing.T) {
	s := dumpSection()
	got := dumpText(t, func(w io.Writer) error { return DumpEntries(w, s, nil) })
	assert.Contains(t, got, `Contents of the .eh_frame section:


00000000 000000000000000e 00000000 CIE
  Version:               1
  Augmentation:          ""
  Code alignment factor: 1
  Data alignment factor: -8
  Return address column: 16

  DW_CFA_def_cfa: r7 (rsp) ofs 8
  DW_CFA_offset: r16 (rip) at cfa-8

00000012 000000000000001f 00000016 FDE cie=00000000 pc=0000000000010000..0000000000010020
  DW_CFA_advance_loc: 1 to 0000000000010001
  DW_CFA_def_cfa_offset: 16
  DW_CFA_offset: r3 (rbx) at cfa-16
  DW_CFA_advance_loc: 4 to 0000000000010005
  DW_CFA_def_cfa_expression (DW_OP_breg6 (rbp): 0; DW_OP_deref)

`)
	assert.Contains(t, got, "ZERO terminator\n")
	pc := Addr(testCode + 0x2f)
	got = dumpText(t, func(w io.Writer) error { return DumpEntries(w, s, &pc) })
	assert.Equal(t, 1, strings.Count(got, " CIE\n"))
	assert.Equal(t, 1, strings.Count(got, " FDE "))
	assert.Contains(t, got, "pc=0000000000010020..0000000000010030\n  DW_CFA_nop\n  DW_CFA_nop\n")
}

func TestDumpRows(t *testing.T) {
	s := dumpSection()
	got := dumpText(t, func(w io.Writer) error { return DumpRows(w, s, nil) })
	assert.Contains(t, got, `Contents of the .eh_frame section:


00000000 000000000000000e 00000000 CIE "" cf=1 df=-8 ra=16
   LOC           CFA      ra    
0000000000000000 rsp+8    c-8   

00000012 000000000000001f 00000016 FDE cie=00000000 pc=0000000000010000..0000000000010020
   LOC           CFA      rbx   ra    
0000000000010000 rsp+8    u     c-8   
0000000000010001 rsp+16   c-16  c-8   
0000000000010005 exp      c-16  c-8   

`)
	assert.Contains(t, got, "pc=0000000000010020..0000000000010030\n\n")
	assert.Contains(t, got, "  error: libfoo.so: .eh_frame+0x4f: FDE 0x10030..0x10040: DW_CFA_restore_state with an empty stack\n")
}

func TestDumpTable(t *testing.T) {
	table, _ := build(t, dumpSection())
	got := dumpText(t, func(w io.Writer) error { return DumpTable(w, table, nil) })
	assert.Equal(t, `0000000000010000..0000000000010001 0     rsp+8 ra=c-8
0000000000010001..0000000000010005 1     rsp+16 rbx=c-16 ra=c-8
0000000000010005..0000000000010020 2     exp(DW_OP_breg6 (rbp): 0; DW_OP_deref) rbx=c-16 ra=c-8
0000000000010020..0000000000010030 0     rsp+8 ra=c-8
0000000000010040..0000000000010050 3     end of stack
0000000000010050..0000000000010060 4     not compiled
`, got)
	pc := Addr(testCode + 3)
	got = dumpText(t, func(w io.Writer) error { return DumpTable(w, table, &pc) })
	assert.Equal(t, "0000000000010001..0000000000010005 1     rsp+16 rbx=c-16 ra=c-8\n", got)
	pc = testCode + 0x30
	assert.Empty(t, dumpText(t, func(w io.Writer) error { return DumpTable(w, table, &pc) }))
}

func TestDescriptions(t *testing.T) {
	s := dumpSection()
	table, _ := build(t, s)
	pc := Addr(testCode + 1)
	toJSON := func(v any) string {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		require.NoError(t, e.Encode(v))
		return b.String()
	}
	assert.JSONEq(t, `[{"start":"0x10001","end":"0x10005","row":1,"cfa":"rsp+16","regs":{"rbx":"c-16","ra":"c-8"}}]`,
		toJSON(table.DescribeRanges(&pc)))
	assert.Len(t, table.DescribeRanges(nil), 6)
	assert.Equal(t, "end of stack", table.DescribeRanges(nil)[4].Special)

	var entries []EntryInfo
	for e := range s.DescribeEntries(&pc) {
		entries = append(entries, e)
	}
	assert.JSONEq(t, `[{"section":".eh_frame","offset":18,"kind":"FDE","cie":0,"start":"0x10000","end":"0x10020","instructions":[
		"DW_CFA_advance_loc: 1 to 0000000000010001","DW_CFA_def_cfa_offset: 16","DW_CFA_offset: r3 (rbx) at cfa-16",
		"DW_CFA_advance_loc: 4 to 0000000000010005","DW_CFA_def_cfa_expression (DW_OP_breg6 (rbp): 0; DW_OP_deref)"]}]`, toJSON(entries))

	var kinds []string
	rows := 0
	for e := range s.DescribeRows(nil) {
		kinds = append(kinds, e.Kind)
		rows += len(e.Rows)
		if e.Offset == 0x4f {
			assert.Contains(t, e.Error, "DW_CFA_restore_state with an empty stack")
		}
	}
	assert.Equal(t, []string{"CIE", "FDE", "FDE", "FDE", "FDE", "FDE", "terminator"}, kinds)
	assert.Equal(t, 1+3+1+0+1+1, rows)
	for e := range s.DescribeRows(&pc) {
		require.Len(t, e.Rows, 1)
		assert.Equal(t, "rsp+16", e.Rows[0].CFA)
	}
}
