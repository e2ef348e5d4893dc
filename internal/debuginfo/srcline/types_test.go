package srcline

import (
	"debug/elf"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/testing/cdecltest"
	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// prototypes returns the functions of an object by name.
func prototypes(t testing.TB, path string) map[string]Function {
	t.Helper()
	o := open(t, path, Options{})
	all := make(map[string]Function)
	for f := range o.Functions() {
		all[f.Name] = f
	}
	require.NoError(t, o.Err())
	return all
}

// TestPrototypes has gcc judge what is said of the functions of a C program.
func TestPrototypes(t *testing.T) {
	src := cdecltest.Source(t)
	for name, flags := range map[string][]string{
		"v5": {"-O2"}, "v4": {"-gdwarf-4", "-O1"}, "v2": {"-gdwarf-2"}, "types": {"-fdebug-types-section"},
		"dwarf64": {"-gdwarf64"},
		"split":   {"-gsplit-dwarf"}, "split4": {"-gsplit-dwarf", "-gdwarf-4"},
		"types4":            {"-gdwarf-4", "-fdebug-types-section", "-O1"},
		"types4 compressed": {"-gdwarf-4", "-fdebug-types-section", "-gz"},
		"split types4":      {"-gsplit-dwarf", "-gdwarf-4", "-fdebug-types-section"},
		"split types5":      {"-gsplit-dwarf", "-fdebug-types-section"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := cdecltest.Build(t, src, filepath.Join(t.TempDir(), "prog"), append(flags, "-g")...)
			all := prototypes(t, p)
			var list []string
			for _, f := range all {
				require.NoError(t, f.Err, f.Name)
				if !strings.Contains(f.Declaration, "{...}") { // not to be written in C
					list = append(list, f.Declaration)
				}
			}
			require.Len(t, list, 17)
			cdecltest.Compatible(t, src, list)
			assert.Equal(t, "(int sig, void (*handler)(int))", all["returns"].Parameters)
			assert.Equal(t, "void (*returns(int sig, void (*handler)(int)))(int)", all["returns"].Declaration)
			assert.Equal(t, "(struct point p, union value v, untagged_t u)", all["by_value"].Parameters)
			assert.Equal(t, "(void)", all["none"].Parameters)
			assert.Equal(t, "()", all["unspecified"].Parameters)
			assert.Equal(t, "(const char *format, ...)", all["variable"].Parameters)
		})
	}
}

// TestParametersInlined has the parameters of inlined functions, and of that which they are in.
func TestParametersInlined(t *testing.T) {
	p := cdecltest.Build(t, cdecltest.Source(t), filepath.Join(t.TempDir(), "prog"), "-g", "-O2")
	f, err := elf.Open(p)
	require.NoError(t, err)
	defer f.Close()
	list, err := f.Symbols()
	require.NoError(t, err)
	o := open(t, p, Options{})
	inlined := 0
	for _, s := range list {
		if s.Name != "outer" {
			continue
		}
		for a := s.Value; a < s.Value+s.Size; a++ {
			got := o.Lookup(a, Want{Inline: true, Parameters: true})
			last := got[len(got)-1]
			assert.Equal(t, Frame{Func: "outer", Parameters: "(struct point *list, size_t n)"}, last)
			if len(got) == 2 {
				assert.Equal(t, Frame{Func: "inner", Inlined: true,
					Parameters: "(const struct point *p, int factor)"}, got[0])
				inlined++
			}
			lines := o.Lookup(a, Want{Lines: true})
			last.File, last.Line = lines[0].File, lines[0].Line
			assert.Equal(t, []Frame{last}, o.Lookup(a, Want{Parameters: true, Lines: true}))
		}
	}
	assert.Positive(t, inlined)
}

const classes = `#include <string>
#include <utility>
#include <vector>
namespace shop {
struct item { int n; enum kind { A, B }; struct part { int m; }; };
namespace { struct local { int x; }; }
template <class T> struct box { T v; };
int plain(item &i, const item &c, item &&r, item::part *p, item::kind k) { return i.n + c.n + r.n + p->m + k; }
int members(int item::*m, int (item::part::*f)(char) const, box<item::part> b) { return m != 0 || f != 0 || b.v.m; }
std::vector<std::string> *library(const std::vector<item> &v, std::string s, std::pair<int, box<item> > p) { return v.empty() ? 0 : new std::vector<std::string>{s + char(p.first)}; }
__attribute__((noinline, used)) int hidden(local *l, decltype(nullptr)) { return l->x; }
int (&arrays(int (&a)[3], bool))[3] { return a; }
int none() { return 0; }
typedef item goods;
goods *alias(goods **g, const volatile unsigned char *const *b, ...) { return b ? *g : 0; }
struct counter { int n; int get(int more) const; void add(int); static int zero(long); };
int counter::get(int more) const { return n + more; }
void counter::add(int m) { n += m; }
int counter::zero(long l) { return l; }
int use(local *l) { return hidden(l, nullptr); }
}
int main() { return 0; }
`

// TestPrototypesCXX has g++ compare types with those of the functions.
func TestPrototypesCXX(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "classes.cc")
	require.NoError(t, os.WriteFile(src, []byte(classes), 0o666))
	for _, flags := range testtool.Sweep([][]string{{"-g", "-O1"}, {"-g", "-gdwarf-4"}, {"-g", "-fdebug-types-section"},
		{"-g", "-gdwarf-4", "-fdebug-types-section"}}) {
		p := cdecltest.Build(t, src, filepath.Join(dir, "prog"), append(flags, "-fno-eliminate-unused-debug-types")...)
		byName := make(map[string]Function)
		for _, f := range prototypes(t, p) {
			if f.Err == nil {
				byName[f.Name] = f
			}
		}
		var checks []string
		for _, name := range []string{"plain", "members", "library", "hidden", "arrays", "none", "alias"} {
			found := false
			for linkage, f := range byName {
				if linkage == name || strings.Contains(linkage, fmt.Sprintf("4shop%d%s", len(name), name)) {
					found = true
					text := strings.ReplaceAll(f.Declaration, "(anonymous namespace)::", "")
					checks = append(checks,
						fmt.Sprintf("namespace check { using namespace shop; %s; static_assert(__is_same(decltype(check::%s), decltype(shop::%s)), \"%s\"); }",
							text, name, name, name))
				}
			}
			assert.True(t, found, name)
		}
		cdecltest.Compatible(t, src, checks)
		assert.Equal(t, "(int more) const", byName["_ZNK4shop7counter3getEi"].Parameters)
		assert.Equal(t, "(int m)", byName["_ZN4shop7counter3addEi"].Parameters)
		assert.Equal(t, "(long l)", strings.ReplaceAll(byName["_ZN4shop7counter4zeroEl"].Parameters, "long int",
			"long"))
	}
}

// mutations of each program; docs/validation/signatures.md has a run with 20,000.
var mutations = flag.Int("mutations", 200, "try `N` mutations of each program's sections")

// TestPrototypesBroken changes the sections that types are of at random places.
func TestPrototypesBroken(t *testing.T) {
	src := cdecltest.Source(t)
	for _, flags := range [][]string{{"-O2"}, {"-gdwarf-4"}, {"-fdebug-types-section"},
		{"-gdwarf-4", "-fdebug-types-section"}} {
		p := cdecltest.Build(t, src, filepath.Join(t.TempDir(), "prog"), append(flags, "-g")...)
		whole := load(t, p)
		rnd := rand.New(rand.NewPCG(5, 6))
		failed, same, all := 0, 0, 0
		var slowest time.Duration
		var most uint64
		for range *mutations {
			o := mutated(whole, rnd)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begin := time.Now()
			for f := range o.Functions() {
				all++
				if f.Err != nil {
					failed++
				} else {
					same++
				}
				assert.LessOrEqual(t, len(f.Declaration), 3*4096)
			}
			slowest = max(slowest, time.Since(begin))
			runtime.ReadMemStats(&after)
			most = max(most, after.TotalAlloc-before.TotalAlloc)
		}
		assert.Positive(t, failed)
		t.Logf("%v: %d mutations, %d functions; %d have no prototype; at most %d KB allocated, %v", flags, *mutations,
			all, failed, most>>10, slowest)
		assert.Less(t, most, uint64(64<<20))
	}
}

// mutated returns an object whose .debug_info or .debug_abbrev differs in a few bytes.
func mutated(whole *sections, rnd *rand.Rand) *Info {
	s := &sections{contents: contents{info: whole.info, abbrev: whole.abbrev, str: whole.str, lineStr: whole.lineStr,
		ranges: whole.ranges, rnglists: whole.rnglists, line: whole.line, aranges: whole.aranges, types: whole.types}}
	p := &s.info
	switch n := rnd.IntN(3); {
	case n == 0:
		p = &s.abbrev
	case n == 1 && len(s.types) > 0:
		p = &s.types
	}
	b := append([]byte(nil), *p...)
	for range 1 + rnd.IntN(4) {
		b[rnd.IntN(len(b))] = byte(rnd.Uint32())
	}
	*p = b
	return &Info{sec: s, limit: 1 << 20, dir: "/nonexistent"}
}
