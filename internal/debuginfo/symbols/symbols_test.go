package symbols

import (
	"bytes"
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/internal/testing/unwindtest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func names(t interface{ Find(uint64) *Symbol }, addrs ...uint64) (out []string) {
	for _, a := range addrs {
		if s := t.Find(a); s != nil {
			out = append(out, s.Name)
		} else {
			out = append(out, "-")
		}
	}
	return out
}

func TestTable(t *testing.T) {
	table := newTable([]Symbol{
		{Start: 0x100, End: 0x100, Name: "label"},
		{Start: 0x140, End: 0x150, Name: "__alias", rank: rankWeak},
		{Start: 0x140, End: 0x150, Name: "_alias"},
		{Start: 0x140, End: 0x150, Name: "alias"},
		{Start: 0x140, End: 0x140, Name: "alias_without_size"},
		{Start: 0x200, End: 0x300, Name: "outer"},
		{Start: 0x210, End: 0x220, Name: "inner"},
	}, nil)
	assert.Equal(t, []string{"-", "label", "label", "alias", "alias", "-", "outer", "inner", "outer", "-"},
		names(table, 0xff, 0x100, 0x13f, 0x140, 0x14f, 0x150, 0x20f, 0x21f, 0x220, 0x300))
	table = newTable([]Symbol{
		{Start: 0x100, End: 0x200, Name: "sized"},
		{Start: 0x120, End: 0x120, Name: "label_within"},
		{Start: 0x200, End: 0x200, Name: "label_behind"},
		{Start: 0x240, End: 0x280, Name: "second"},
		{Start: 0x250, End: 0x250, Name: "last_within"},
	}, nil)
	assert.Equal(t, []string{"sized", "sized", "sized", "label_behind", "label_behind", "second", "second", "-"},
		names(table, 0x11f, 0x120, 0x1ff, 0x200, 0x23f, 0x240, 0x27f, 0x280))
	assert.Nil(t, (*Table)(nil).Find(1))
	assert.Zero(t, (*Table)(nil).Len())
}

func TestELF(t *testing.T) {
	e := unwindtest.ELF{Off: 0x1000, VAddr: 0x5000, Size: 0x100, Funcs: []unwindtest.Func{
		{Name: "_ZN3foo3barEi", Addr: 0x5000, Size: 0x10}, {Name: "plain", Addr: 0x5010, Size: 0x10}}}
	table, err := FromELF(bytes.NewReader(e.Bytes()), "", nil, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"_ZN3foo3barEi", "plain", "-"}, names(table, 0x5000, 0x501f, 0x5020))
	for cut := 0; cut < 0x1000; cut += 7 { // an error or some symbols, no panic
		_, _ = FromELF(bytes.NewReader(e.Bytes()[:cut]), "", nil, nil)
	}
}

// TestCodeObject wants the name of code whose symbol says that it is an object, and that
// no label before it reaches over it.
func TestCodeObject(t *testing.T) {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	src, obj := filepath.Join(dir, "o.s"), filepath.Join(dir, "o")
	require.NoError(t, os.WriteFile(src, []byte(`.text
before: nop
.globl hot
.type hot,@object
hot: mov $5,%eax
inside: dec %eax
 jnz inside
 ret
.size hot,.-hot
.section .rodata
.type data,@object
data: .quad 1
.size data,8
.section .note.GNU-stack
`), 0o666))
	out, err := exec.Command("gcc", "-nostdlib", "-shared", src, "-o", obj).CombinedOutput()
	require.NoError(t, err, string(out))
	f, err := elf.Open(obj)
	require.NoError(t, err)
	defer f.Close()
	list, err := f.Symbols()
	require.NoError(t, err)
	addrs := make(map[string]uint64)
	for _, s := range list {
		addrs[s.Name] = s.Value
	}
	b, err := os.ReadFile(obj)
	require.NoError(t, err)
	table, err := FromELF(bytes.NewReader(b), "", nil, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"before", "hot", "hot", "-"}, names(table, addrs["before"], addrs["hot"], addrs["inside"],
		addrs["data"]))
}

func TestDebugFile(t *testing.T) {
	dir := t.TempDir()
	stripped := unwindtest.ELF{Off: 0x1000, VAddr: 0x5000, Size: 0x100, BuildID: []byte{1, 2, 3}}
	full, others := stripped, stripped
	full.Funcs = []unwindtest.Func{{Name: "f", Addr: 0x5000, Size: 0x10}}
	others.Funcs, others.BuildID = []unwindtest.Func{{Name: "g", Addr: 0x5000, Size: 0x10}}, []byte{1, 2, 4}
	path, old := filepath.Join(dir, "x.debug"), filepath.Join(dir, "old.debug")
	require.NoError(t, os.WriteFile(path, full.Bytes(), 0o666))
	require.NoError(t, os.WriteFile(old, others.Bytes(), 0o666))
	table, err := FromELF(bytes.NewReader(stripped.Bytes()), "", []string{filepath.Join(dir, "absent"), old, path}, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"f"}, names(table, 0x5001), "not of another object's file where this one's was")
}

func TestText(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string {
		path := filepath.Join(dir, "file")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	kernel, err := Kallsyms(write("ffffffff81000000 T _text\nffffffff81000000 T startup\nffffffff81000100 t next\n" +
		"ffffffff81000180 a absolute\nffffffff81000200 D data\nffffffffc0000000 t mod_f\t[mod]\nffffffffc0000100 T last"))
	require.NoError(t, err)
	assert.Equal(t, []string{"-", "startup", "next", "next", "data", "mod_f", "last", "-"},
		names(kernel, 0xffffffff80ffffff, 0xffffffff810000ff,
			0xffffffff81000100, 0xffffffff81000190, 0xffffffff81000200, 0xffffffffc0000010, 0xffffffffc00010ff,
			0xffffffffc0001100))
	assert.Equal(t, "[mod]", kernel.Find(0xffffffffc0000010).Module)
	assert.Equal(t, "", kernel.Find(0xffffffffc0000100).Module)

	kernel, err = Kallsyms(write("\nno symbol\nffffffffc0000010 t g\t[b]\nffffffffc0000000 t f\t[a]\n" +
		"FFFFFFFFC0000010 t h\t[b]\n3 T low\nffffffffc0000010 T last\t[c]\n5 T\n"))
	require.NoError(t, err)
	assert.Equal(t, []string{"-", "low", "low", "f", "last"},
		names(kernel, 2, 3, 5, 0xffffffffc000000f, 0xffffffffc0000010))
	_, err = Kallsyms(write("1234x T f\n"))
	assert.ErrorContains(t, err, "1234x")
	assert.Nil(t, (*Kernel)(nil).Find(1))
	_, err = Kallsyms(write("0000000000000000 T _text\n"))
	assert.ErrorIs(t, err, ErrHidden)

	table, err := PerfMap(Written{Path: write(
		"7f0000001000 20 LazyCompile:~f file.js:1\nnonsense\n0x7f0000002000 0x10 g\n"), PID: 1},
		plenty())
	require.NoError(t, err)
	assert.Equal(t, []string{"LazyCompile:~f file.js:1", "-", "g"},
		names(table, 0x7f000000101f, 0x7f0000001020, 0x7f0000002000))
	_, err = PerfMap(Written{Path: dir, PID: 1}, plenty())
	assert.Error(t, err)
}

// TestKallsyms compares with a search of all lines, in files that are sorted and in
// others.
func TestKallsyms(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, sorted := range []bool{true, false} {
		var text bytes.Buffer
		type line struct {
			addr uint64
			name string
		}
		var want []line
		addr := uint64(0xffffffff81000000)
		for i := range 1000 {
			addr += 16 * random.Uint64N(3)
			kind := "tTdrA"[random.IntN(5)]
			fmt.Fprintf(&text, "%016x %c f%d\n", addr, kind, i)
			if kind == 't' || kind == 'T' || kind == 'd' {
				want = append(want, line{addr, fmt.Sprint("f", i)})
			}
		}
		if !sorted {
			fmt.Fprintf(&text, "%016x t first\n", want[0].addr-16)
			want = append([]line{{want[0].addr - 16, "first"}}, want...)
		}
		path := filepath.Join(t.TempDir(), "kallsyms")
		require.NoError(t, os.WriteFile(path, text.Bytes(), 0o666))
		k, err := Kallsyms(path)
		require.NoError(t, err)
		for a := want[0].addr - 8; a < want[len(want)-1].addr+4097; a += 8 {
			name := "-"
			for _, l := range want {
				if l.addr <= a {
					name = l.name
				}
			}
			if a >= want[len(want)-1].addr+4096 {
				name = "-"
			}
			require.Equal(t, []string{name}, names(k, a), "%#x", a)
		}
		s := k.Find(want[500].addr)
		assert.Equal(t, want[500].addr, s.Start)
		if sorted { // a file that becomes shorter
			require.NoError(t, os.Truncate(path, 0))
			assert.Nil(t, k.Find(want[500].addr))
		}
		k.Close()
	}
}
