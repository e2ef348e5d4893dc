package srcline

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/cdecltest"
	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Further objects with DWARF, and how many random addresses of each are asked for:
// docs/validation/signatures.md.
var (
	gdbObjects = flag.String("gdb-objects", "",
		"compare parameters in these `FILES` with gdb's, too, separated by commas")
	gdbAddresses = flag.Int("gdb-addresses", 200, "at `N` random addresses of code")
)

// gdbScript prints for each address the functions that have it, inner ones first, for each its name, its
// type, and the names and types of its parameters. Blocks of gdb lie in each other as entries of
// DWARF do, so that a function may lie in the one that it is declared in.
const gdbScript = `
import gdb
for line in open("%s"):
    pc = int(line, 16)
    block, all = gdb.block_for_pc(pc), []
    while block is not None and not block.is_static and not block.is_global:
        f = block.function
        if f is not None:
            names = [s.name for s in block if s.is_argument]
            types = [str(x.type) for x in f.type.fields()]
            all.append("\x02".join([f.linkage_name, str(f.type), "\x01".join(names), "\x01".join(types)]))
        block = block.superblock
    print("%%x|%%s" %% (pc, "|".join(all)))
`

// TestGDB compares parameters with what gdb says at the same addresses.
func TestGDB(t *testing.T) {
	testtool.Need(t, "gdb")
	dir := t.TempDir()
	programs := []string{
		cdecltest.Build(t, cdecltest.Source(t), filepath.Join(dir, "c"), "-g", "-O2"),
		cdecltest.Build(t, cdecltest.Source(t), filepath.Join(dir, "types"), "-gdwarf-4", "-fdebug-types-section",
			"-O1"),
		compile(t, dir, "cxx", "-O1"),
	}
	if *gdbObjects != "" {
		programs = append(programs, strings.Split(*gdbObjects, ",")...)
	}
	for _, p := range programs {
		o := open(t, p, Options{})
		addrs := randomCode(o, *gdbAddresses)
		count := make(map[string]int)
		for i, functions := range gdbFunctions(t, p, addrs) {
			got := o.Lookup(addrs[i], Want{Parameters: true})
			if len(functions) == 0 {
				count["in no function of gdb's"]++
				continue
			}
			require.NotEmpty(t, got, "%#x: gdb has %v", addrs[i], functions)
			n := slices.IndexFunc(functions, func(g gdbFunction) bool { return g.is(got[0].Func) })
			if n < 0 {
				assert.Fail(t, "another function", "%#x: %s, gdb: %v", addrs[i], got[0].Func, functions)
				continue
			}
			g := functions[n]
			switch ours := tightly(got[0].Parameters); {
			case slices.Contains(g.parameters(), ours):
				count["as gdb has them"]++
			case slices.ContainsFunc(g.parameters(),
				func(theirs string) bool { return letters(theirs) == letters(ours) }):
				count["with const in another place of template arguments"]++
			case g.sameInOrder(ours):
				count["in another order"]++ // gdb has the order of the clone's entries
			case len(g.names) != len(g.types):
				count["clones that have lost some"]++
			default:
				assert.Fail(t, "not as gdb has it", "%#x %s: %s\ngdb: %v", addrs[i], g.name, got[0].Parameters, g)
			}
		}
		require.NoError(t, o.Err())
		t.Logf("%s: %d addresses: %v", filepath.Base(p), len(addrs), count)
		assert.Greater(t, count["as gdb has them"], len(addrs)/2)
	}
}

// randomCode returns addresses of code that has lines.
func randomCode(o *Info, n int) (addrs []uint64) {
	var list []Line
	total := uint64(0)
	for l := range o.Lines() {
		list = append(list, l)
		total += l.End - l.Start
	}
	rnd := rand.New(rand.NewPCG(21, 22))
	for range n {
		drawn := rnd.Uint64N(total)
		for _, l := range list {
			if drawn < l.End-l.Start {
				addrs = append(addrs, l.Start+drawn)
				break
			}
			drawn -= l.End - l.Start
		}
	}
	return addrs
}

// gdbFunction is what gdb says of a function.
type gdbFunction struct {
	name, whole  string
	names, types []string
}

// is reports whether a function is of that name. Without a linkage name, gdb makes one of C++.
func (g gdbFunction) is(name string) bool {
	plain, _, _ := strings.Cut(g.name, "(")
	return g.name == name || plain[strings.LastIndex(plain, ":")+1:] == name
}

func gdbFunctions(t *testing.T, path string, addrs []uint64) (list [][]gdbFunction) {
	t.Helper()
	dir := t.TempDir()
	addresses, script := filepath.Join(dir, "addresses"), filepath.Join(dir, "ask.py")
	var text strings.Builder
	for _, a := range addrs {
		fmt.Fprintf(&text, "%x\n", a)
	}
	require.NoError(t, os.WriteFile(addresses, []byte(text.String()), 0o666))
	require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, gdbScript, addresses), 0o666))
	out, err := exec.Command("gdb", "-nx", "-q", "-batch", "-iex", "set debuginfod enabled off", "-x", script,
		path).Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "|")
		var functions []gdbFunction
		for f := range strings.SplitSeq(rest, "|") {
			if part := strings.Split(f, "\x02"); len(part) == 4 {
				functions = append(functions, gdbFunction{part[0], part[1], cutList(part[2]), cutList(part[3])})
			}
		}
		list = append(list, functions)
	}
	require.Len(t, list, len(addrs))
	return list
}

func cutList(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, "\x01")
}

// declarator is the place of the name in a type, after the innermost parenthesis.
var declarator = regexp.MustCompile(`\([\w:]*[*&]+(?:const|volatile|restrict)*()(?:\)|\[)`)

// gdb writes integers in a shorter way than the compiler names them.
var shorter = strings.NewReplacer("long long unsigned int", "unsigned long long", "long unsigned int",
	"unsigned long", "short unsigned int", "unsigned short",
	"long long int", "long long", "long int", "long", "short int", "short")

// declared are the parameters, each as C declares it, and those that are not shown.
func (g gdbFunction) declared() (list, hidden []string) {
	for i, typ := range g.types {
		typ = strings.ReplaceAll(tightly(typ), "__restrict__", "restrict")
		name := ""
		if i < len(g.names) {
			name = g.names[i]
		}
		if span := declarator.FindStringSubmatchIndex(typ); span != nil {
			typ = typ[:span[2]] + name + typ[span[2]:]
		} else {
			typ += name
		}
		if name == "this" || name == "__closure" {
			hidden = append(hidden, typ)
		} else {
			list = append(list, typ)
		}
	}
	if strings.HasSuffix(g.whole, "...)") {
		list = append(list, "...")
	}
	return list, hidden
}

// parameters are the ways in which they may be written.
func (g gdbFunction) parameters() []string {
	list, hidden := g.declared()
	all := []string{"(" + strings.Join(list, ",") + ")"}
	if len(list) == 0 {
		all = append(all, "(void)", "(...)")
	}
	if len(hidden) > 0 {
		all = append(all, all[0]+"const")
	}
	return all
}

// letters are those of a text with template arguments, in order: gdb writes "int const&" there.
func letters(s string) string {
	if !strings.Contains(s, "<") {
		return s
	}
	b := []byte(s)
	slices.Sort(b)
	return string(b)
}

// sameInOrder reports whether parameters are the same in some order.
func (g gdbFunction) sameInOrder(ours string) bool {
	want, _ := g.declared()
	if len(want) < 2 {
		return false
	}
	for _, p := range want {
		if !strings.Contains(","+ours[1:len(ours)-1]+",", ","+p+",") {
			return false
		}
	}
	return len(ours) == len(strings.Join(want, ","))+2
}

// tightly leaves out spaces.
func tightly(s string) string {
	return strings.Join(strings.Fields(shorter.Replace(tags.ReplaceAllString(s, ""))), "")
}

// tags are written by gdb in C++, too.
var tags = regexp.MustCompile(`\b(class|struct|union|enum) `)
