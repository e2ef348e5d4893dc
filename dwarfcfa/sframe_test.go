package dwarfcfa

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/sframe"
)

var sframeObjects = flag.String("sframe-objects", "", "compare the .sframe of these `FILES`, too, separated by commas")

// TestSFrame compiles sources with the assembler's SFrame sections, and holds them against
// objdump's reading of them and against .eh_frame.
func TestSFrame(t *testing.T) {
	objects := gsframe(t)
	t.Run("Objdump", func(t *testing.T) { testSFrameObjdump(t, objects) })
	t.Run("EHFrame", func(t *testing.T) { testSFrameEHFrame(t, objects) })
	t.Run("Auto", func(t *testing.T) { testSFrameAuto(t, objects[0]) })
	t.Run("Mutations", func(t *testing.T) { testSFrameMutations(t, objects[0]) })
}

func gsframe(t testing.TB) []string {
	t.Helper()
	dir := t.TempDir()
	var objects []string
	for _, c := range testtool.Sweep([][]string{
		{"gcc", "-O2", "-fno-omit-frame-pointer", "../validate/live/testdata/shapes.c"},
		{"gcc", "-O2", "../validate/clients/trace.c"},
		{"gcc", "-O0", "../validate/live/testdata/shapes.c"},
		{"g++", "-O2", "../validate/clients/work.cc"},
	}) {
		out := filepath.Join(dir, fmt.Sprint(len(objects))+".so")
		cmd := exec.Command(c[0], append(c[1:], "-shared", "-fPIC", "-Wa,--gsframe", "-I../runtime/include", "-o",
			out)...)
		msg, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", cmd.Args, msg)
		objects = append(objects, out)
	}
	if *sframeObjects != "" {
		objects = append(objects, strings.Split(*sframeObjects, ",")...)
	}
	return objects
}

// testSFrameObjdump compares row by row.
func testSFrameObjdump(t *testing.T, objects []string) {
	for _, path := range testtool.Sweep(objects) {
		o, err := Open(path)
		require.NoError(t, err)
		s, err := o.sframe()
		require.NoError(t, err)
		rows := compareObjdump(t, path, s)
		t.Logf("%s: version %d, %d functions, %d rows", filepath.Base(path), s.Version, s.Len(), rows)
		assert.Positive(t, rows)
		o.Close()
	}
}

func compareObjdump(t *testing.T, path string, s *sframe.Section) (rows int) {
	t.Helper()
	out, err := exec.Command("objdump", "--sframe", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	var want []string
	function := regexp.MustCompile(`func idx \[\d+\]: pc = 0x([0-9a-f]+), size = (\d+) bytes`)
	row := regexp.MustCompile(`^\s+([0-9a-f]{16})\s+(\S+)\s+(\S+)\s+(\S+)\s*$`)
	for line := range strings.Lines(string(out)) {
		if m := function.FindStringSubmatch(line); m != nil {
			want = append(want, fmt.Sprintf("%s +%s", m[1], m[2]))
		} else if m := row.FindStringSubmatch(line); m != nil {
			addr, err := strconv.ParseUint(m[1], 16, 64)
			require.NoError(t, err)
			want = append(want, fmt.Sprintf("  %x %s %s", addr, m[2], m[3]))
			rows++
		}
	}
	var got []string
	for i := range s.Len() {
		f, err := s.Function(i)
		require.NoError(t, err)
		got = append(got, fmt.Sprintf("%x +%d", f.Start, f.Size))
		for r, err := range s.All(&f) {
			require.NoError(t, err)
			addr := uint64(r.Start)
			if f.Repeat == 0 {
				addr += f.Start
			}
			base := map[uint8]string{6: "fp", 7: "sp"}[r.CFA.Reg]
			fp := "u"
			if r.FP.Base == sframe.OnCFA {
				fp = fmt.Sprintf("c%+d", r.FP.Offset)
			}
			got = append(got, fmt.Sprintf("  %x %s%+d %s", addr, base, r.CFA.Offset, fp))
		}
	}
	require.Equal(t, want, got, path)
	return rows
}

// compareRows holds the table of SFrame rows against the table of the same object's .eh_frame: it
// returns how many bytes of code both answer, and how many .eh_frame answers alone.
func compareRows(t *testing.T, name string, sf, eh *Table) (both, alone int) {
	t.Helper()
	wrong := 0
	for _, r := range eh.Ranges {
		want := &eh.Rows[r.Row]
		for addr := r.Start; addr < r.End; addr++ {
			row, exprs := sf.rowAt(addr)
			if row == nil {
				alone++
				continue
			}
			both++
			if !sameAsRow(row, exprs, want, eh.Exprs, addr) {
				if wrong++; wrong < 10 {
					t.Errorf("%s: %#x: %+v, .eh_frame has %+v", name, uint64(addr), row, want)
				}
			}
		}
	}
	for _, r := range sf.Ranges {
		_, ok := eh.Lookup(r.Start)
		assert.True(t, ok, "%s: %#x: .eh_frame has no row", name, uint64(r.Start))
	}
	return both, alone
}

// sameAsRow reports whether two rows mean the same at a pc for the CFA, the return address
// and rbp, and whether the first has the other callee-saved registers lost. What the rows
// have as expressions is evaluated.
func sameAsRow(row *Row, exprs []Expr, want *Row, wantExprs []Expr, addr Addr) bool {
	r := rand.New(rand.NewPCG(uint64(addr), 1))
	mem := anyMemory(r.Uint64())
	for range 3 {
		var regs, a, b abi.Regs
		for i := range regs.Reg {
			regs.Reg[i] = r.Uint64()
		}
		regs.Reg[abi.RIP], regs.Valid, regs.Exact = uint64(addr), abi.AllRegs, 1
		sa := stepTo(&a, oneRow{row, exprs}, &regs, 0, mem)
		sb := stepTo(&b, oneRow{want, wantExprs}, &regs, 0, mem)
		const compared = 1<<abi.RIP | 1<<abi.RSP | 1<<abi.RBP
		if sa != sb || a.Exact != b.Exact {
			return false
		}
		if sa != abi.StatusOK {
			continue
		}
		if a.Valid&^compared != 0 || a.Valid&^b.Valid != 0 || a.Valid&compared != b.Valid&compared {
			return false
		}
		for _, reg := range []int{abi.RIP, abi.RSP, abi.RBP} {
			if a.Valid>>reg&1 != 0 && a.Reg[reg] != b.Reg[reg] {
				return false
			}
		}
	}
	return true
}

type oneRow struct {
	row   *Row
	exprs []Expr
}

func (o oneRow) rowAt(Addr) (*Row, []Expr) { return o.row, o.exprs }

// anyMemory has another word at every address.
type anyMemory uint64

func (m anyMemory) ReadWord(addr uint64) (uint64, bool) {
	return (addr ^ uint64(m)) * 0x9e3779b97f4a7c15, true
}

// testSFrameEHFrame compares both sections of objects at every byte of code.
func testSFrameEHFrame(t *testing.T, objects []string) {
	for _, path := range testtool.Sweep(objects) {
		o, err := Open(path)
		require.NoError(t, err)
		sf, rep, err := BuildTable(o, BuildOptions{Source: SourceSFrame, Strict: true})
		require.NoError(t, err)
		require.NoError(t, sf.Verify())
		assert.Equal(t, ".sframe", rep.Source)
		eh, _, err := BuildTable(o, BuildOptions{Source: SourceEHFrame, Strict: true})
		require.NoError(t, err)
		both, alone := compareRows(t, path, sf, eh)
		t.Logf("%s: %d functions, %d bytes of code have rows in both, %d in .eh_frame alone", filepath.Base(path),
			rep.Entries.FDEs, both, alone)
		assert.Greater(t, both, 4*alone)

		made, err := o.Section(SourceSFrame)
		require.NoError(t, err)
		cfi, _, err := buildSection(made, o.codeImage(), BuildOptions{Strict: true})
		require.NoError(t, err)
		require.Equal(t, dump(t, sf), dump(t, cfi), "as FDEs")

		lazy, err := NewLazyTable(o, SourceSFrame)
		require.NoError(t, err)
		for addr := eh.Low() - 8; addr < min(eh.High(), eh.Low()+1<<14)+8; addr++ {
			got, gotExprs := lazy.rowAt(addr)
			want, exprs := sf.rowAt(addr)
			require.Equal(t, want == nil, got == nil, "%#x", uint64(addr))
			if want != nil {
				require.Equal(t, want.CFA.Reg, got.CFA.Reg)
				require.True(t, sameAsRow(got, gotExprs, want, exprs, addr), "%#x", uint64(addr))
			}
		}
		o.Close()
	}
}

// testSFrameAuto has objects with .sframe alone, which auto takes, and without any.
func testSFrameAuto(t *testing.T, path string) {
	bare := path + ".bare"
	out, err := exec.Command("objcopy", "--rename-section", ".eh_frame=.other", "--remove-section", ".eh_frame_hdr",
		path, bare).CombinedOutput()
	require.NoError(t, err, "%s", out)
	without, err := os.ReadFile(bare)
	require.NoError(t, err)
	for off := 64; off < 64+56*int(without[56]); off += 56 {
		if binary.LittleEndian.Uint32(without[off:]) == uint32(elf.PT_GNU_EH_FRAME) {
			clear(without[off : off+56])
		}
	}
	require.NoError(t, os.WriteFile(bare, without, 0o600))
	noHeaders := path + ".noheaders"
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	clear(b[40:48]) // e_shoff
	clear(b[60:64]) // e_shnum, e_shstrndx
	require.NoError(t, os.WriteFile(noHeaders, b, 0o600))

	build := func(path string, src Source) (*Table, *Report, error) {
		o, err := Open(path)
		require.NoError(t, err)
		defer o.Close()
		return BuildTable(o, BuildOptions{Source: src})
	}
	want, _, err := build(path, SourceSFrame)
	require.NoError(t, err)
	got, _, err := build(noHeaders, SourceSFrame)
	require.NoError(t, err)
	assert.Equal(t, want.Ranges, got.Ranges)
	_, rep, err := build(path, SourceAuto)
	require.NoError(t, err)
	assert.Equal(t, ".eh_frame", rep.Source)

	o, err := Open(bare)
	require.NoError(t, err)
	defer o.Close()
	got, rep, err = build(bare, SourceAuto)
	require.NoError(t, err)
	assert.Equal(t, ".sframe", rep.Source)
	assert.Equal(t, want.Ranges, got.Ranges)
	_, err = NewLazyTable(o, SourceAuto)
	require.NoError(t, err)
	_, _, err = build("/bin/true", SourceSFrame)
	assert.ErrorIs(t, err, ErrNoUnwindInfo)
	assert.ErrorContains(t, err, "no .sframe")
}

// sframeTable makes the table of a section for code at 0x1000.
func sframeTable(t testing.TB, data []byte, strict bool) (*Table, *Report, error) {
	s, err := sframe.Parse(0x8000, data)
	if err != nil {
		return nil, nil, err
	}
	return buildSource(&sframeSource{s: s}, codeImage{segments: []segment{{0x1000, 0x4000}}},
		BuildOptions{Strict: strict})
}

func dump(t testing.TB, table *Table) string {
	var b bytes.Buffer
	require.NoError(t, DumpTable(&b, table, nil))
	return b.String()
}

// TestSFrameV3 has what the assembler of this machine does not write: flexible rows, signal
// frames, blocks of other sizes, the end of the stack.
func TestSFrameV3(t *testing.T) {
	sp := func(offset int32) sframe.Rule { return sframe.Rule{Base: sframe.OnReg, Reg: 7, Offset: offset} }
	saved := func(offset int32) sframe.Rule { return sframe.Rule{Base: sframe.OnCFA, Offset: offset, Deref: true} }
	reg := func(reg uint8, offset int32, deref bool) sframe.Rule {
		return sframe.Rule{Base: sframe.OnReg, Reg: reg, Offset: offset, Deref: deref}
	}
	data, err := sframe.Encode(sframe.Options{Version: 3, Addr: 0x8000, PCRel: true}, []sframe.Entry{
		{Start: 0x1000, Size: 0x20, Rows: []sframe.Row{
			{CFA: sp(8), RA: saved(-8)},
			{Start: 4, CFA: reg(10, 0, false), RA: saved(-8)},
			{Start: 8, CFA: reg(6, -8, true), RA: saved(-8), FP: reg(6, 0, true)},
			{Start: 12, CFA: sp(16), RA: reg(3, 0, false), FP: reg(12, 0, false)},
			{Start: 16, CFA: sp(16), RA: reg(3, 8, false)},
			{Start: 20, CFA: reg(20, 8, false), RA: saved(-8)},
			{Start: 24, Outermost: true},
		}},
		{Start: 0x1020, Size: 0x30, Signal: true,
			Rows: []sframe.Row{{CFA: reg(7, 160, true), RA: reg(7, 168, true), FP: reg(7, 120, true)}}},
		{Start: 0x1050, Size: 18, Repeat: 8, Rows: []sframe.Row{{Start: 1, CFA: sp(8), RA: saved(-8)},
			{Start: 6, CFA: sp(16), RA: saved(-8)}}},
		{Start: 0x1070, Size: 0x10, Rows: []sframe.Row{
			{CFA: sp(8), RA: saved(-8)},
			{Start: 1, CFA: sp(16), RA: saved(-8), FP: saved(-16)},
			{Start: 8, CFA: sp(8), RA: saved(-8), FP: saved(-16)}, // popped
			{Start: 9, CFA: sp(16), RA: saved(-8), FP: saved(-16)},
			{Start: 10, CFA: sp(8), RA: saved(-8)},
			{Start: 11, CFA: sp(8), RA: saved(-8), FP: saved(-24)}, // saved in the red zone
		}},
	})
	require.NoError(t, err)
	table, rep, err := sframeTable(t, data, false)
	require.NoError(t, err)
	require.NoError(t, table.Verify())
	lost := strings.NewReplacer(" rbx=u", "", " r12=u r13=u r14=u r15=u", "")
	assert.Equal(t, strings.TrimSpace(`
0000000000001000..0000000000001004 0     rsp+8 ra=c-8
0000000000001004..0000000000001008 1     r10+0 ra=c-8
0000000000001008..000000000000100c 2     exp(DW_OP_breg6 (rbp): -8; DW_OP_deref) rbp=exp(DW_OP_breg6 (rbp): 0) ra=c-8
000000000000100c..0000000000001010 3     rsp+16 rbp=r12 (r12) ra=r3 (rbx)
0000000000001010..0000000000001014 4     rsp+16 ra=vexp(DW_OP_breg3 (rbx): 8)
0000000000001014..0000000000001018 5     not compiled
0000000000001018..0000000000001020 6     end of stack
0000000000001020..0000000000001050 7     exp(DW_OP_breg7 (rsp): 160; DW_OP_deref) rbp=exp(DW_OP_breg7 (rsp): 120) ra=exp(DW_OP_breg7 (rsp): 168) signal
0000000000001051..0000000000001056 0     rsp+8 ra=c-8
0000000000001056..0000000000001058 8     rsp+16 ra=c-8
0000000000001059..000000000000105e 0     rsp+8 ra=c-8
000000000000105e..0000000000001060 8     rsp+16 ra=c-8
0000000000001061..0000000000001062 0     rsp+8 ra=c-8
0000000000001070..0000000000001071 0     rsp+8 ra=c-8
0000000000001071..0000000000001078 9     rsp+16 rbp=c-16 ra=c-8
0000000000001078..0000000000001079 0     rsp+8 ra=c-8
0000000000001079..000000000000107a 9     rsp+16 rbp=c-16 ra=c-8
000000000000107a..000000000000107b 0     rsp+8 ra=c-8
000000000000107b..0000000000001080 10    rsp+8 rbp=c-24 ra=c-8`), strings.TrimSpace(lost.Replace(dump(t, table))))
	assert.Equal(t, 1, rep.Rows.NotCompiled)
	_, _, err = sframeTable(t, data, true)
	assert.ErrorContains(t, err, ".sframe+0x1c: FDE 0x1014..0x1018: the CFA is on register 20")

	data[28+16+3] = 0x7f // the second function begins far away
	table, rep, err = sframeTable(t, data, false)
	require.NoError(t, err)
	require.NoError(t, table.Verify())
	assert.Equal(t, 1, rep.Entries.OutsideCode)
}

// testSFrameMutations has what hostile sections make: a table that is as it should be, or
// an error.
func testSFrameMutations(t *testing.T, path string) {
	r := rand.New(rand.NewPCG(7, 8))
	o, err := Open(path)
	require.NoError(t, err)
	defer o.Close()
	sec := o.file.Section(".sframe")
	v1, err := sec.Data()
	require.NoError(t, err)
	s, err := sframe.Parse(sec.Addr, v1)
	require.NoError(t, err)
	var entries []sframe.Entry
	for i := range min(s.Len(), 12) {
		f, err := s.Function(i)
		require.NoError(t, err)
		e := sframe.Entry{Start: f.Start, Size: f.Size, Repeat: f.Repeat}
		for row, err := range s.All(&f) {
			require.NoError(t, err)
			e.Rows = append(e.Rows, row)
		}
		entries = append(entries, e)
	}
	code := o.codeImage()
	failed, lost := 0, 0
	var whole [3][]byte // by version
	for v := range whole {
		whole[v], err = sframe.Encode(sframe.Options{Version: uint8(1 + v), Addr: sec.Addr}, entries)
		require.NoError(t, err)
	}
	for i := range testtool.Few(20000, 2000) {
		data := bytes.Clone(whole[i%3])
		for range 1 + r.IntN(4) {
			off := r.IntN(len(data))
			if r.IntN(3) == 0 {
				off = r.IntN(100)
			}
			data[off] = byte(r.Uint32())
		}
		s, err := sframe.Parse(sec.Addr, data)
		if err != nil {
			failed++
			continue
		}
		table, rep, err := buildSource(&sframeSource{s: s}, code, BuildOptions{})
		require.NoError(t, err)
		require.NoError(t, table.Verify())
		if rep.Entries.Lost > 0 {
			lost++
		}
	}
	t.Logf("of 20000 %d have no readable header, %d functions that are left out", failed, lost)
	assert.Positive(t, failed)
	assert.Positive(t, lost)
}
