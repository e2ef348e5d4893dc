package lsda_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/lsda"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// area returns a hand-made LSDA at 0x2000 of a function at 0x1000: one call that an
// exception passes through, one with a cleanup, one with int and catch (...).
func area() []byte {
	return []byte{
		0xff,       // LPStart omitted
		0x03, 0x1f, // types: udata4, end 0x1f bytes on
		0x01, 0x11, // call sites: uleb128, 0x11 bytes
		0x04, 0x05, 0x00, 0x00,
		0x09, 0x05, 0x20, 0x00,
		0x10, 0x08, 0x90, 0x01, 0x01, // pad 0x90, action 1
		0x20, 0x01, 0x40, 0x03,
		0x01, 0x01, // action 1: type 1, then the next record
		0x02, 0x00, // action 3: type 2, the end
		0, 0, 0, 0, // type 2
		0x78, 0x56, 0, 0, // type 1
	}
}

func parse(b []byte) (*lsda.Table, error) {
	return lsda.Parse(dwarfcfa.NewEncoded("test", 0x2000, b, dwarfcfa.Bases{}), 0x2000, 0x1000)
}

func TestParse(t *testing.T) {
	b := area()
	table, err := parse(b)
	require.NoError(t, err)
	require.Equal(t, []lsda.Site{
		{Start: 0x1004, End: 0x1009},
		{Start: 0x1009, End: 0x100e, Pad: 0x1020},
		{Start: 0x1010, End: 0x1018, Pad: 0x1090, Action: 1},
		{Start: 0x1020, End: 0x1021, Pad: 0x1040, Action: 3},
	}, table.Sites)
	require.Equal(t, table.Sites, table.Effective())
	chain, err := table.Chain(table.Sites[2])
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, chain)
	chain, err = table.Chain(table.Sites[3])
	require.NoError(t, err)
	require.Equal(t, []int64{2}, chain)
	chain, err = table.Chain(table.Sites[1])
	require.NoError(t, err)
	require.Empty(t, chain)

	for n := range len(b) {
		table, err := parse(b[:n])
		if err == nil { // cut off after the call sites
			_, err = table.Chain(table.Sites[2])
		}
		require.Error(t, err, "%d bytes", n)
	}
}

// TestEffective: of records that overlap or do not ascend the first that holds the
// pc counts, and nothing after one that begins after it.
func TestEffective(t *testing.T) {
	table := &lsda.Table{Sites: []lsda.Site{
		{Start: 10, End: 20, Pad: 1}, {Start: 15, End: 30, Pad: 2}, {Start: 12, End: 25, Pad: 3},
		{Start: 28, End: 40, Pad: 4},
	}}
	// What libstdc++'s personality does with each pc.
	scan := func(pc lsda.Addr) lsda.Addr {
		for _, s := range table.Sites {
			if pc < s.Start {
				return 0
			}
			if pc < s.End {
				return s.Pad
			}
		}
		return 0
	}
	for pc := lsda.Addr(0); pc < 50; pc++ {
		var got lsda.Addr
		for _, s := range table.Effective() {
			if pc >= s.Start && pc < s.End {
				require.Zero(t, got)
				got = s.Pad
			}
		}
		require.Equal(t, scan(pc), got, pc)
	}
}

const program = `
#include <cstdio>
#include <stdexcept>
struct S { ~S(); }; void f(int); void g();
void plain() { S s; f(1); g(); }
__attribute__((noinline, used)) int caught(int n) { S s; try { f(n); } catch (const std::runtime_error &) { return 1; } catch (int) { return 2; } catch (...) { g(); throw; } return 0; }
void never() noexcept { f(2); }
void (*all[])() = { plain, never }; int (*more)(int) = caught;
volatile int sink; S::~S() { if (sink) std::puts(""); } __attribute__((noinline)) void f(int n) { if (sink) throw n; } __attribute__((noinline)) void g() { if (sink) throw std::logic_error(""); }
int main(int argc, char **) { all[argc & 1](); return more(argc); }
`

// TestCompilers: what gcc and clang write is read whole, pads lie where the code
// of the function is.
func TestCompilers(t *testing.T) {
	testtool.Need(t, "g++", "clang++", "strip")
	dir := t.TempDir()
	src := filepath.Join(dir, "p.cc")
	require.NoError(t, os.WriteFile(src, []byte(program), 0o644))
	for _, compiler := range []string{"g++", "clang++"} {
		for _, flags := range testtool.Sweep([]string{"-O0", "-O2", "-O2 -no-pie", "-O1 -static"}) {
			exe := filepath.Join(dir, "p")
			args := append(strings.Fields(flags), "-fPIE", "-o", exe, src)
			out, err := exec.Command(compiler, args...).CombinedOutput()
			require.NoError(t, err, "%s %v: %s", compiler, args, out)
			o, err := dwarfcfa.Open(exe)
			require.NoError(t, err)
			section, err := o.Section(dwarfcfa.SourceEHFrame)
			require.NoError(t, err)
			functions := functionsOf(t, exe)
			r := lsda.NewReader(o)
			seen := map[string]int{}
			for e, err := range section.Entries() {
				require.NoError(t, err)
				if e.FDE == nil {
					continue
				}
				table, err := r.Table(e.FDE)
				require.NoError(t, err)
				if table == nil || !strings.HasPrefix(functions[uint64(e.FDE.Start)], "_Z") {
					continue
				}
				for _, s := range table.Sites {
					require.GreaterOrEqual(t, s.Start, e.FDE.Start)
					require.LessOrEqual(t, s.End, e.FDE.End)
					if s.Pad != 0 {
						require.True(t, s.Pad > e.FDE.Start && s.Pad < e.FDE.End)
					}
					chain, err := table.Chain(s)
					require.NoError(t, err)
					if len(chain) > seen[functions[uint64(e.FDE.Start)]] {
						seen[functions[uint64(e.FDE.Start)]] = len(chain)
					}
				}
			}
			require.GreaterOrEqual(t, seen["_Z6caughti"], 3, "%s %s: two types and catch (...)", compiler, flags)
			require.NoError(t, o.Close())
		}
	}
}

func functionsOf(t *testing.T, exe string) map[uint64]string {
	t.Helper()
	f, err := elf.Open(exe)
	require.NoError(t, err)
	defer f.Close()
	syms, err := f.Symbols()
	require.NoError(t, err)
	names := map[uint64]string{}
	for _, s := range syms {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			names[s.Value] = s.Name
		}
	}
	return names
}

// FuzzParse: any bytes give a table or an error, and chains end.
func FuzzParse(f *testing.F) {
	f.Add(area())
	f.Add([]byte{0xff, 0x9b, 0x10, 0x01, 0x04, 0, 4, 8, 1, 0x7f, 0x7f, 1, 0x7d})
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := parse(b)
		if err != nil {
			require.Nil(t, table)
			return
		}
		var end lsda.Addr
		for _, s := range table.Effective() {
			require.Less(t, s.Start, s.End)
			require.GreaterOrEqual(t, s.Start, end)
			end = s.End
		}
		for i, s := range table.Sites {
			if i == 64 {
				break
			}
			chain, err := table.Chain(s)
			require.False(t, err != nil && chain != nil)
		}
	})
}
