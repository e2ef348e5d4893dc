package sites_test

import (
	"bytes"
	"cmp"
	"debug/elf"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/sites"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// random makes a table of any shape that Table allows.
func random(rnd *rand.Rand) *sites.Table {
	t := &sites.Table{Functions: []sites.Function{}}
	for range 1 + rnd.IntN(4) {
		t.Personalities = append(t.Personalities, sites.Personality{Addr: sites.Addr(rnd.Uint64()),
			Indirect: rnd.IntN(2) == 0})
	}
	addr := sites.Addr(rnd.Uint32())
	for range rnd.IntN(40) {
		addr += sites.Addr(rnd.IntN(100))
		f := sites.Function{Start: addr, End: addr + 1 + sites.Addr(rnd.IntN(5000)),
			Personality: rnd.IntN(len(t.Personalities)+1) - 1}
		addr = f.End
		if f.Personality >= 0 {
			if rnd.IntN(5) > 0 {
				f.LSDA = sites.Addr(rnd.Uint32())
			}
			for s := f.Start; ; {
				site := sites.Site{Start: s + sites.Addr(rnd.IntN(200)), Kind: sites.Kind(rnd.IntN(6))}
				site.End = site.Start + 1 + sites.Addr(rnd.IntN(100))
				if site.End > f.End {
					break
				}
				if (site.Kind.HasPad() || site.Kind == sites.Ask) && rnd.IntN(3) == 0 {
					site.Args = 8 * (1 + rnd.Uint64N(sites.MaxArgs/8))
				}
				if site.Kind.HasPad() {
					site.Pad = f.Start + sites.Addr(rnd.IntN(int(f.End-f.Start)))
				}
				f.Sites = append(f.Sites, site)
				s = site.End
			}
		}
		t.Functions = append(t.Functions, f)
	}
	return t
}

func TestRoundTrip(t *testing.T) {
	for seed := range uint64(300) {
		want := random(rand.New(rand.NewPCG(seed, 1)))
		b, err := want.Encode()
		require.NoError(t, err)
		got, err := sites.Decode(b)
		require.NoError(t, err)
		if len(want.Functions) == 0 {
			require.Empty(t, b)
			continue
		}
		require.Equal(t, want, got)
	}
}

// TestDamaged: bytes that were changed, cut off or added to give an error or a
// table that keeps its promises.
func TestDamaged(t *testing.T) {
	seeds := uint64(20000)
	if testing.Short() {
		seeds = 2000
	}
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 2))
		b, err := random(rnd).Encode()
		require.NoError(t, err)
		if len(b) == 0 {
			continue
		}
		switch b = bytes.Clone(b); rnd.IntN(4) {
		case 0:
			b = b[:rnd.IntN(len(b))]
		case 1:
			b = append(b, byte(rnd.Uint32()))
		default:
			for range 1 + rnd.IntN(3) {
				b[rnd.IntN(len(b))] = []byte{0, 1, 0x7f, 0x80, 0xff, byte(rnd.Uint32())}[rnd.IntN(6)]
			}
		}
		got, err := sites.Decode(b)
		if err == nil {
			requireSound(t, got)
		}
	}
}

// requireSound checks what Table documents.
func requireSound(t *testing.T, table *sites.Table) {
	t.Helper()
	var end sites.Addr
	for _, f := range table.Functions {
		require.True(t, f.Start >= end && f.Start < f.End && f.Personality >= -1 &&
			f.Personality < len(table.Personalities))
		end = f.End
		addr := f.Start
		for _, s := range f.Sites {
			require.True(t, s.Start >= addr && s.Start < s.End && s.End <= f.End && s.Kind <= sites.Ask)
			require.Equal(t, s.Kind.HasPad(), s.Pad != 0)
			require.True(t, !s.Kind.HasPad() || s.Pad >= f.Start && s.Pad < f.End)
			require.True(t, s.Args == 0 || s.Args%8 == 0 && s.Args <= sites.MaxArgs &&
				(s.Kind.HasPad() || s.Kind == sites.Ask))
			addr = s.End
		}
	}
}

// built compiles a program, damages its exception table by change, and returns the table of sites.
func built(t *testing.T, file []byte) *sites.Table {
	t.Helper()
	o, err := dwarfcfa.NewFile("p", bytes.NewReader(file), int64(len(file)))
	require.NoError(t, err)
	sections, err := o.Sections(dwarfcfa.SourceAuto)
	require.NoError(t, err)
	table, _ := sites.Build(o, sections)
	return table
}

const program = `
#include <stdexcept>
struct S { ~S(); }; __attribute__((noinline)) void f(int); volatile int sink;
__attribute__((noinline)) void plain() { S s; f(1); f(2); }
__attribute__((noinline)) int caught(int n) { S s; try { f(n); } catch (const std::runtime_error &) { return 1; } catch (int) { return 2; } f(3); return 0; }
__attribute__((noinline)) int other(int n) { try { f(n); } catch (const std::logic_error &) { return 1; } return 0; }
__attribute__((noinline)) void never() noexcept { f(2); }
__attribute__((noinline)) void many(int a, int b, int c, int d, int e, int f, S g, long h) { sink = a + b + c + d + e + f + h; if (sink) throw 1; }
__attribute__((noinline)) void pushes() { S s; many(1, 2, 3, 4, 5, 6, s, 8); }
S::~S() { if (sink) sink = 1; } void f(int n) { if (sink == n) throw n; }
int main() { plain(); never(); pushes(); return caught(0) + other(1); }
`

func compiled(t *testing.T, flags ...string) []byte {
	t.Helper()
	testtool.Need(t, "g++")
	dir := t.TempDir()
	src, exe := filepath.Join(dir, "p.cc"), filepath.Join(dir, "p")
	require.NoError(t, os.WriteFile(src, []byte(program), 0o644))
	out, err := exec.Command("g++", append(flags, "-o", exe, src)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	b, err := os.ReadFile(exe)
	require.NoError(t, err)
	return b
}

// TestRelocated: a personality routine that only the loader knows is read where the loader writes its address.
func TestRelocated(t *testing.T) {
	for _, flags := range testtool.Sweep([]string{"-fuse-ld=bfd", "-fuse-ld=gold", "-fuse-ld=lld"}) {
		table := built(t, compiled(t, "-O2", "-mcmodel=large", "-fno-pic", "-pie", "-Wl,-z,notext", flags))
		requireSound(t, table)
		require.Len(t, table.Personalities, 1)
		p := table.Personalities[0]
		require.True(t, p.Indirect)
		require.NotZero(t, p.Addr)
		require.NotZero(t, p.Addr)
		for _, f := range table.Functions {
			require.NotZero(t, f.LSDA, "%#x", uint64(f.Start))
		}
	}
}

func TestBuild(t *testing.T) {
	for _, flags := range testtool.Sweep([]string{"-O0", "-O2", "-O2 -no-pie"}) {
		table := built(t, compiled(t, strings.Fields(flags)...))
		requireSound(t, table)
		kinds := map[sites.Kind]int{}
		for _, f := range table.Functions {
			for _, s := range f.Sites {
				kinds[s.Kind]++
			}
			pc := f.Start
			for _, s := range f.Sites {
				_, got := table.Lookup(s.Start)
				require.Equal(t, s, got)
				if s.Start > pc {
					_, got = table.Lookup(s.Start - 1)
					require.Equal(t, sites.Site{Kind: sites.Ask}, got)
				}
				pc = s.End
			}
		}
		for _, k := range []sites.Kind{sites.Skip, sites.Cleanup, sites.Action, sites.ActionCleanup} {
			require.NotZero(t, kinds[k], "%s: %v", flags, k)
		}
		f, s := table.Lookup(0)
		require.Nil(t, f)
		require.Equal(t, sites.Skip, s.Kind)
	}
	// Without a frame pointer and with arguments pushed, gcc says how many are on the stack.
	table := built(t, compiled(t, "-O2", "-mno-accumulate-outgoing-args", "-mpush-args", "-fomit-frame-pointer",
		"-fno-ipa-sra"))
	require.True(t, slices.ContainsFunc(table.Functions, func(f sites.Function) bool {
		return slices.ContainsFunc(f.Sites, func(s sites.Site) bool { return s.Kind == sites.Cleanup && s.Args == 16 })
	}), "DW_CFA_GNU_args_size")
}

// TestHostile: damaged exception tables give an error for their function or a
// sound table, whose pads lie inside the function.
func TestHostile(t *testing.T) {
	file := compiled(t, "-O2")
	o, err := dwarfcfa.NewFile("p", bytes.NewReader(file), int64(len(file)))
	require.NoError(t, err)
	table := built(t, file)
	require.NotEmpty(t, table.Functions)
	area, err := o.Encoded(table.Functions[0].LSDA)
	require.NoError(t, err)
	headers, err := elf.NewFile(bytes.NewReader(file))
	require.NoError(t, err)
	section := headers.Section(".gcc_except_table")
	require.EqualValues(t, section.Addr, area.Addr())
	data, err := section.Data()
	require.NoError(t, err)
	off := int(section.Offset)
	changed := 0
	cases, err := strconv.ParseUint(cmp.Or(os.Getenv("EHASM_HOSTILE"), "600"), 10, 32)
	require.NoError(t, err)
	for seed := range cases {
		rnd := rand.New(rand.NewPCG(seed, 3))
		b := bytes.Clone(file)
		for range 1 + rnd.IntN(4) {
			b[off+rnd.IntN(len(data))] = []byte{0, 1, 0x7f, 0x80, 0xff, 0x9b, byte(rnd.Uint32())}[rnd.IntN(7)]
		}
		got := built(t, b)
		requireSound(t, got)
		enc, err := got.Encode()
		require.NoError(t, err)
		back, err := sites.Decode(enc)
		require.NoError(t, err)
		copy(back.Personalities, got.Personalities)
		for i := range back.Functions {
			require.Equal(t, got.Functions[i].Start, back.Functions[i].Start)
			require.True(t, slices.Equal(got.Functions[i].Sites, back.Functions[i].Sites))
		}
		if want, _ := table.Encode(); !bytes.Equal(want, enc) {
			changed++
		}
	}
	require.Greater(t, changed, 100)
}

// counted counts the bytes that are read.
type counted struct {
	r *bytes.Reader
	n int64
}

func (c *counted) ReadAt(b []byte, off int64) (int, error) {
	n, err := c.r.ReadAt(b, off)
	c.n += int64(n)
	return n, err
}

// TestManySections: areas in many sections, of a file that has relocations in its text, cost what the file has.
func TestManySections(t *testing.T) {
	testtool.Need(t, "gcc", "ld")
	const functions, passes = 500, 12 // over the file
	source := "\t.text\n\t.type __gxx_personality_v0,@function\n__gxx_personality_v0: ret\n"
	for i := range functions {
		n := strconv.Itoa(i)
		source += "f" + n + ": .cfi_startproc\n\t.cfi_personality 0, __gxx_personality_v0\n\t.cfi_lsda 0, .L" + n + "\n" +
			strings.Repeat("\tmovabsq $f"+n+", %rax\n", 8) + "\tret\n\t.cfi_endproc\n" +
			"\t.section lsda" + n + ",\"a\",@progbits\n.L" + n + ": .byte 0xff,0xff,1,4,0,5,0,0\n\t.text\n"
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "many.s"), []byte(source), 0o600))
	out, err := exec.Command("gcc", "-shared", "-nostdlib", "-Wl,-z,notext", "-o", filepath.Join(dir, "many.so"),
		filepath.Join(dir, "many.s")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	file, err := os.ReadFile(filepath.Join(dir, "many.so"))
	require.NoError(t, err)
	r := &counted{r: bytes.NewReader(file)}
	o, err := dwarfcfa.NewFile("many.so", r, int64(len(file)))
	require.NoError(t, err)
	sections, err := o.Sections(dwarfcfa.SourceEHFrame)
	require.NoError(t, err)
	table, report := sites.Build(o, sections)
	require.Empty(t, report.Details)
	require.Len(t, table.Functions, functions)
	require.NotEmpty(t, table.Functions[0].Sites)
	require.Less(t, r.n, passes*int64(len(file)))
}
