package synth

import (
	"bytes"
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/relocatable"
)

// someFunctions draws functions with rows of every kind.
func someFunctions(r *rand.Rand, n int, start dwarfcfa.Addr) (list []Function) {
	for range n {
		rows := 1 + r.IntN(12)
		first := true
		for range rows {
			end := start + 1 + dwarfcfa.Addr(r.IntN(70))
			if r.IntN(20) == 0 {
				end += dwarfcfa.Addr(r.IntN(70000))
			}
			list = Add(list, fmt.Sprintf("f%d", len(list)), first, start, end, someRow(r, first))
			first = false
			start = end
		}
		start += dwarfcfa.Addr(r.IntN(40))
	}
	return list
}

func someRow(r *rand.Rand, first bool) Row {
	row := Entry
	if first && r.IntN(2) == 0 {
		return row
	}
	switch r.IntN(8) {
	case 0:
		row.CFA = CFA{Reg: abi.RBP, Stored: true, Slot: int32(r.IntN(400) - 200),
			Offset: []int32{0, 8, 16, -24}[r.IntN(4)]}
	case 1:
		row.CFA = CFA{Reg: abi.R10, Offset: int32(r.IntN(3)) * 8}
	case 2:
		row.CFA = CFA{Reg: abi.RBP, Offset: 16}
	case 3:
		row.CFA = CFA{Reg: abi.RAX, Offset: -int32(r.IntN(300))}
	default:
		row.CFA.Offset = int32(r.IntN(100)) * 8
	}
	for k := range row.Regs {
		row.Regs[k] = []Rule{
			{}, {}, {Where: AtCFA, Offset: -int32(r.IntN(100)) * 8}, {Where: AtCFA, Offset: 8 * int32(r.IntN(4))},
			{Where: AtCFA, Offset: -int32(r.IntN(100))},
			{Where: AtReg, Reg: abi.RSP, Offset: int32(r.IntN(300) - 100)}, {Where: InReg, Reg: abi.R11},
			{Where: Unknown},
		}[r.IntN(8)]
	}
	return row
}

// meaning returns a row as the table has it, for comparison: registers 0 to 16 as text.
func meaning(row *Row) string {
	var b strings.Builder
	c := row.CFA
	switch {
	case c.Stored:
		fmt.Fprintf(&b, "cfa [%d%+d]%+d", c.Reg, c.Slot, c.Offset)
	default:
		fmt.Fprintf(&b, "cfa %d%+d", c.Reg, c.Offset)
	}
	for k, rule := range row.Regs {
		fmt.Fprintf(&b, " %d:", Saved[k])
		switch rule.Where {
		case Same:
			b.WriteString("same")
		case AtCFA:
			fmt.Fprintf(&b, "c%+d", rule.Offset)
		case AtReg:
			fmt.Fprintf(&b, "[%d%+d]", rule.Reg, rule.Offset)
		case InReg:
			fmt.Fprintf(&b, "in %d", rule.Reg)
		case Unknown:
			b.WriteString("lost")
		}
	}
	return b.String()
}

// tableMeaning returns the same of a row of the interpreter.
func tableMeaning(t *testing.T, in *dwarfcfa.Interp, row *dwarfcfa.Row) string {
	var b strings.Builder
	expr := func(id dwarfcfa.ExprID) string {
		raw, err := in.Expr(id)
		require.NoError(t, err)
		return dwarfcfa.ExprText(raw)
	}
	switch row.CFA.Kind {
	case dwarfcfa.CFARegOffset:
		fmt.Fprintf(&b, "cfa %d%+d", row.CFA.Reg, row.CFA.Offset)
	case dwarfcfa.CFAExpr:
		var reg, slot, off int
		var name string
		text := expr(row.CFA.Expr)
		switch {
		case scan(text, "DW_OP_breg%d (%s %d; DW_OP_deref; DW_OP_plus_uconst: %d", &reg, &name, &slot, &off):
			fmt.Fprintf(&b, "cfa [%d%+d]%+d", reg, slot, off)
		case scan(text, "DW_OP_breg%d (%s %d; DW_OP_deref; DW_OP_const4s: %d; DW_OP_plus", &reg, &name, &slot, &off):
			fmt.Fprintf(&b, "cfa [%d%+d]%+d", reg, slot, off)
		case scan(text, "DW_OP_breg%d (%s %d; DW_OP_deref", &reg, &name, &slot):
			fmt.Fprintf(&b, "cfa [%d%+d]+0", reg, slot)
		case scan(text, "DW_OP_breg%d (%s %d", &reg, &name, &off):
			fmt.Fprintf(&b, "cfa %d%+d", reg, off)
		default:
			t.Fatalf("expression %q", text)
		}
	}
	for _, reg := range Saved {
		fmt.Fprintf(&b, " %d:", reg)
		rule := row.Regs[reg]
		switch rule.Kind {
		case dwarfcfa.RuleUnspecified, dwarfcfa.RuleSameValue:
			b.WriteString("same")
		case dwarfcfa.RuleUndefined:
			b.WriteString("lost")
		case dwarfcfa.RuleOffset:
			fmt.Fprintf(&b, "c%+d", rule.Offset)
		case dwarfcfa.RuleRegister:
			fmt.Fprintf(&b, "in %d", rule.Reg)
		case dwarfcfa.RuleExpression:
			var r, off int
			var name string
			text := expr(rule.Expr)
			switch {
			case scan(text, "DW_OP_breg%d (%s %d", &r, &name, &off):
				fmt.Fprintf(&b, "[%d%+d]", r, off)
			case scan(text, "DW_OP_const4s: %d; DW_OP_plus", &off):
				fmt.Fprintf(&b, "c%+d", off)
			default:
				t.Fatalf("expression %q", text)
			}
		default:
			t.Fatalf("rule %+v", rule)
		}
	}
	return b.String()
}

// scan reports whether all of a format's values are in text, and nothing else.
func scan(text, format string, values ...any) bool {
	text = strings.ReplaceAll(text, "): ", " ")
	format = strings.ReplaceAll(format, "): ", " ")
	n, err := fmt.Sscanf(text, format, values...)
	return err == nil && n == len(values) && strings.Count(text, ";") == strings.Count(format, ";")
}

// requireSame compares a section's rows with functions.
func requireSame(t *testing.T, s *dwarfcfa.Section, want []Function, shift dwarfcfa.Addr) {
	t.Helper()
	in := dwarfcfa.NewInterp()
	n := 0
	for e, err := range s.Entries() {
		require.NoError(t, err)
		if e.FDE == nil {
			continue
		}
		rows, err := in.Rows(e.FDE)
		require.NoError(t, err)
		f := &want[n]
		n++
		require.Equal(t, f.Start(), e.FDE.Start-shift)
		require.Equal(t, f.End(), e.FDE.End-shift)
		k := 0
		for i := range rows {
			got := tableMeaning(t, in, &rows[i].Row)
			for rows[i].Start-shift >= f.Ranges[k].End {
				k++
			}
			require.Equal(t, meaning(&f.Ranges[k].Row), got, "%#x in %#x..%#x", rows[i].Start, f.Start(), f.End())
			require.LessOrEqual(t, rows[i].End-shift, f.Ranges[k].End)
		}
		require.Equal(t, dwarfcfa.RuleOffset, rows[0].Row.Regs[abi.RIP].Kind)
		require.EqualValues(t, -8, rows[0].Row.Regs[abi.RIP].Offset)
	}
	require.Equal(t, len(want), n)
}

// TestSection reads encoded functions back.
func TestSection(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		list := someFunctions(r, 20, 0x1000)
		requireSame(t, dwarfcfa.NewSection("made", dwarfcfa.SourceDebugFrame, 0, Section(list), dwarfcfa.Bases{}),
			list, 0)
	}
}

// TestDirectives lets gas assemble the directives, each before as many bytes as its row
// holds for, and compares the rows.
func TestDirectives(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	list := someFunctions(r, 60, 0x1000)
	var src strings.Builder
	src.WriteString("\t.text\n")
	addr := list[0].Start()
	for i := range list {
		f := &list[i]
		fmt.Fprintf(&src, "\t.skip %d\n\t.cfi_startproc\n", f.Start()-addr)
		all := allDirectives(f)
		for k := range f.Ranges {
			for _, line := range all[f.Ranges[k].Start] {
				src.WriteString("\t" + line + "\n")
			}
			fmt.Fprintf(&src, "\t.skip %d, 0x90\n", f.Ranges[k].End-f.Ranges[k].Start)
		}
		src.WriteString("\t.cfi_endproc\n")
		addr = f.End()
	}
	object := filepath.Join(t.TempDir(), "a.o")
	cmd := exec.Command("as", "-o", object, "-")
	cmd.Stdin = strings.NewReader(src.String())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	file, err := os.ReadFile(object)
	require.NoError(t, err)
	image, err := relocatable.Link(bytes.NewReader(file), int64(len(file)))
	require.NoError(t, err)
	o, err := dwarfcfa.NewFile("a.o", bytes.NewReader(image), int64(len(image)))
	require.NoError(t, err)
	s, err := o.Section(dwarfcfa.SourceEHFrame)
	require.NoError(t, err)
	f, err := elf.NewFile(bytes.NewReader(image))
	require.NoError(t, err)
	requireSame(t, s, list, dwarfcfa.Addr(f.Section(".text").Addr)-0x1000)
}

// TestWriteCFI has the form in which directives are written for people.
func TestWriteCFI(t *testing.T) {
	var list []Function
	list = Add(list, "fill", true, 0x1000, 0x1001, Entry)
	pushed := Entry
	pushed.CFA.Offset, pushed.Regs[0] = 16, Rule{Where: AtCFA, Offset: -16}
	list = Add(list, "fill", false, 0x1001, 0x1010, pushed)
	list = Add(list, "fill", false, 0x1010, 0x1011, Entry)
	var out strings.Builder
	require.NoError(t, WriteCFI(&out, &list[0]))
	assert.Equal(t, `# fill, 17 bytes
	.cfi_startproc
# before +0x1
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
# before +0x10
	.cfi_def_cfa_offset 8
	.cfi_restore %rbx
	.cfi_endproc
`, out.String())
}

// TestWriteCFIName: a symbol's name adds no line.
func TestWriteCFIName(t *testing.T) {
	list := Add(nil, "f\n\t.incbin \"/etc/passwd\"\r", true, 0x1000, 0x1001, Entry)
	var out strings.Builder
	require.NoError(t, WriteCFI(&out, &list[0]))
	assert.Equal(t, 3, strings.Count(out.String(), "\n"), out.String())
	assert.NotContains(t, out.String(), "\r")
}

// TestDebugFile holds a debug file against readelf, eu-elflint's demands on one and
// the object's own section headers.
func TestDebugFile(t *testing.T) {
	libc, err := os.Open("/lib/x86_64-linux-gnu/libc.so.6")
	require.NoError(t, err)
	defer libc.Close()
	list := someFunctions(rand.New(rand.NewPCG(5, 6)), 40, 0x26000)
	image, err := DebugFile(libc, Section(list))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "libc.debug")
	require.NoError(t, os.WriteFile(path, image, 0o666))
	out, err := exec.Command("readelf", "-aW", path).CombinedOutput()
	require.NoError(t, err)
	assert.NotRegexp(t, `(?i)warning|error:`, string(out))

	debug, err := elf.NewFile(bytes.NewReader(image))
	require.NoError(t, err)
	orig, err := elf.NewFile(libc)
	require.NoError(t, err)
	n := 0
	for _, s := range orig.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 {
			d := debug.Section(s.Name)
			require.NotNil(t, d, s.Name)
			assert.Equal(t, s.Addr, d.Addr, s.Name)
			assert.Equal(t, s.Size, d.Size, s.Name)
			n++
		}
	}
	assert.Greater(t, n, 20)
	want, err := orig.Section(".note.gnu.build-id").Data()
	require.NoError(t, err)
	got, err := debug.Section(".note.gnu.build-id").Data()
	require.NoError(t, err)
	assert.Equal(t, want, got)

	o, err := dwarfcfa.NewFile(path, bytes.NewReader(image), int64(len(image)))
	require.NoError(t, err)
	s, err := o.Section(dwarfcfa.SourceDebugFrame)
	require.NoError(t, err)
	requireSame(t, s, list, 0)

	_, err = DebugFile(strings.NewReader("no ELF"), nil)
	require.Error(t, err)
}

// allDirectives returns the directives between successive rows of a function, by the
// address of the instruction before which they belong. Those at its start are
// relative to the row that .cfi_startproc implies.
func allDirectives(f *Function) map[dwarfcfa.Addr][]string {
	all := map[dwarfcfa.Addr][]string{}
	row := Entry
	for i := range f.Ranges {
		r := &f.Ranges[i]
		if lines := directives(&row, &r.Row, &f.Ranges[0].Row); len(lines) > 0 {
			all[r.Start] = lines
		}
		row = r.Row
	}
	return all
}
