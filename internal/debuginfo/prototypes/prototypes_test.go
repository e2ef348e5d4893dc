package prototypes

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

func table(t testing.TB, path string) *Table {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	of, err := OfFile(f)
	require.NoError(t, err)
	return of
}

// all are the prototypes of a table that are known, and how many are not.
func all(t *Table) (list []Prototype, unknown int) {
	for p, err := range t.All() {
		if err != nil {
			unknown++
			continue
		}
		list = append(list, p)
	}
	return list, unknown
}

// declarations are those that can be written after the source: C has no name for what has no
// tag, and gcc before version 14 writes dimensions in the wrong order.
func declarations(list []Prototype) (texts []string) {
	for _, p := range list {
		if !strings.Contains(p.Declaration, "{...}") && !strings.Contains(p.Declaration, "][") {
			texts = append(texts, p.Declaration)
		}
	}
	return texts
}

// TestPrototypes has gcc judge what the section says of the functions of a program, linked and not.
func TestPrototypes(t *testing.T) {
	src := cdecltest.Source(t)
	dir := t.TempDir()
	for _, flags := range [][]string{{"-c"}, {"-rdynamic"}, {"-shared", "-fPIC"}, {"-rdynamic", "-s"}} {
		p := cdecltest.Build(t, src, filepath.Join(dir, "prog"), append(flags, "-gbtf", "-O2")...)
		of := table(t, p)
		found, unknown := all(of)
		assert.Zero(t, unknown)
		assert.GreaterOrEqual(t, len(found), 17)
		cdecltest.Compatible(t, src, declarations(found))
		assert.Equal(t, "(const char *format, ...)", of.Parameters("variable"))
		assert.Equal(t, "(void)", of.Parameters("none"))
		assert.Empty(t, of.Parameters("no_such_function"))
	}
}

// TestStatic has a static function without types beside an exported one of the same name that has
// them: which of them a frame is in is not known by its name.
func TestStatic(t *testing.T) {
	dir := t.TempDir()
	var objects []string
	for i, c := range []struct{ text, flag string }{
		{"__attribute__((noinline)) static int foo(char *p) { return *p; } int other(void); int main() { return foo(\"\") + other(); }", "-O1"},
		{"__attribute__((noinline)) int foo(double d, int n) { return n + d; } int other(void) { return foo(1, 2); }",
			"-gbtf"},
	} {
		src, out := filepath.Join(dir, fmt.Sprint(i, ".c")), filepath.Join(dir, fmt.Sprint(i, ".o"))
		require.NoError(t, os.WriteFile(src, []byte(c.text), 0o666))
		objects = append(objects, cdecltest.Build(t, src, out, "-c", "-O1", c.flag))
	}
	p := cdecltest.Build(t, objects[0], filepath.Join(dir, "prog"), objects[1], "-rdynamic")
	of := table(t, p)
	assert.Equal(t, "(void)", of.Parameters("other"))
	assert.Empty(t, of.Parameters("foo"))
	out, err := exec.Command("strip", "-o", p+".stripped", p).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "(double d, int n)", table(t, p+".stripped").Parameters("foo"), "the exported one alone has a name")
}

// TestRandom has 1,000 functions of random types, which gcc and pahole know.
func TestRandom(t *testing.T) {
	testtool.Need(t, "pfunct")
	dir := t.TempDir()
	source := func(depth int) string {
		src := filepath.Join(dir, fmt.Sprintf("random%d.c", depth))
		require.NoError(t, os.WriteFile(src, []byte(cdecltest.Random(rand.New(rand.NewPCG(7, 8)), 1000, depth)), 0o666))
		return src
	}
	src := source(3)

	btf := cdecltest.Build(t, src, filepath.Join(dir, "btf.o"), "-gbtf", "-c")
	list, unknown := all(table(t, btf))
	assert.Zero(t, unknown)
	require.GreaterOrEqual(t, len(list), 1000)
	cdecltest.Compatible(t, src, declarations(list))

	src = source(1)
	btf = cdecltest.Build(t, src, filepath.Join(dir, "simple.o"), "-gbtf", "-c")
	list, unknown = all(table(t, btf))
	assert.Zero(t, unknown)
	cdecltest.Compatible(t, src, declarations(list))
	pahole(t, btf, list)
}

// Further objects that were built with -gbtf, and how many of their functions are compared:
// docs/validation/signatures.md.
var (
	objects = flag.String("objects", "",
		"compare the functions of these `FILES` with what pahole says, too, separated by commas")
	objectFunctions = flag.Int("object-functions", 1000, "compare `N` random functions of each")
)

// TestObjects compares random functions of large programs.
func TestObjects(t *testing.T) {
	if *objects == "" {
		return
	}
	testtool.Need(t, "pfunct")
	for _, path := range strings.Split(*objects, ",") {
		list, unknown := all(table(t, path))
		rnd := rand.New(rand.NewPCG(17, 18))
		slices.SortFunc(list, func(a, b Prototype) int { return strings.Compare(a.Name, b.Name) })
		rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		t.Logf("%s: %d functions, %d without a prototype", filepath.Base(path), len(list), unknown)
		pahole(t, path, list[:min(*objectFunctions, len(list))])
	}
}

// kernelFunctions is how many of the running kernel's functions are compared with what pahole
// says of them, for which it takes half a minute: docs/validation/signatures.md.
var kernelFunctions = flag.Int("kernel-functions", 0, "compare `N` functions of the running kernel with pahole's")

// TestKernel reads the prototypes of the running kernel.
func TestKernel(t *testing.T) {
	k := NewKernel(KernelDir)
	table := k.Table("")
	require.NoError(t, k.Err())
	if _, err := os.Stat(filepath.Join(KernelDir, "vmlinux")); err != nil {
		assert.Nil(t, table) // a kernel without BTF
		return
	}
	list, unknown := all(table)
	assert.Zero(t, unknown)
	assert.Greater(t, len(list), 10000)
	assert.Equal(t, "(struct file *file, char *buf, size_t count, loff_t *pos)", table.Parameters("vfs_read"))
	assert.Nil(t, k.Table("[no_such_module]"))
	assert.NoError(t, k.Err())
	if *kernelFunctions == 0 {
		return
	}
	testtool.Need(t, "pfunct")
	rnd := rand.New(rand.NewPCG(9, 10))
	rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	pahole(t, filepath.Join(KernelDir, "vmlinux"), list[:min(*kernelFunctions, len(list))])
}

var spaces = regexp.MustCompile(`\s+`)

// tight leaves out what tools write in different ways.
func tight(s string) string {
	s = spaces.ReplaceAllString(s, "")
	s = strings.NewReplacer("singlefloat", "float", "singledouble", "double", "singlelongdouble",
		"longdouble").Replace(s)
	return strings.ReplaceAll(s, "volatileconst", "constvolatile")
}

// agree counts the prototypes that are as texts has them, and returns the others.
func agree(list []Prototype, texts map[string][]string) (same int, other []Prototype) {
	for _, p := range list {
		if slices.Contains(texts[p.Name], tight(p.Declaration)) {
			same++
		} else {
			other = append(other, p)
		}
	}
	return same, other
}

// pahole compares prototypes with those that pfunct writes. It writes a pointer to an array as one to
// the element, const char *const as const const char *, and a function that returns a pointer to another
// in a way that is not C: those it is not asked.
func pahole(t testing.TB, path string, list []Prototype) {
	t.Helper()
	out, err := exec.Command("pfunct", "-P", "-F", "btf", path).Output()
	require.NoError(t, err)
	texts := make(map[string][]string)
	wanted := make(map[string]bool)
	for _, p := range list {
		wanted[p.Name] = true
	}
	for line := range strings.Lines(string(out)) {
		before, _, _ := strings.Cut(line, "(")
		if name := before[strings.LastIndexAny(before, " *")+1:]; wanted[name] {
			texts[name] = append(texts[name], tight(strings.TrimSuffix(line, ";\n")))
		}
	}
	same, other := agree(list, texts)
	odd := 0
	unlike := regexp.MustCompile(`\)\[|\]\(|\)\(.*\(|\(\*\w*\(|\(\*\*|\*(const|volatile)`)
	for _, p := range other {
		if unlike.MatchString(p.Declaration) {
			odd++
			continue
		}
		assert.Fail(t, "not as pahole has it", "%s\n%v", p.Declaration, texts[p.Name])
	}
	t.Logf("BTF: %d of %d as pahole writes them; %d are of pointers that are const or to arrays, or to functions that have or return others", same, len(list), odd)
	assert.Less(t, odd, len(list)/2)
}
