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

func tables(t testing.TB, path string) []*Table {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	list, err := OfFile(f)
	require.NoError(t, err)
	return list
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

// TestPrototypes has gcc judge what sections say of the functions of a program, linked and not.
func TestPrototypes(t *testing.T) {
	src := cdecltest.Source(t)
	dir := t.TempDir()
	for _, c := range []struct {
		source Source
		flags  []string
		most   int
	}{
		{CTF, []string{"-gctf", "-c"}, 17}, {CTF, []string{"-gctf", "-shared", "-fPIC"}, 16},
		{CTF, []string{"-gctf", "-rdynamic"}, 16},
		{CTF, []string{"-gctf", "-rdynamic", "-s"}, 16}, {BTF, []string{"-gbtf", "-c"}, 17},
		{BTF, []string{"-gbtf", "-rdynamic"}, 17},
	} {
		p := cdecltest.Build(t, src, filepath.Join(dir, "prog"), append(c.flags, "-O2")...)
		list := tables(t, p)
		require.Len(t, list, 1)
		found, unknown := all(list[0])
		assert.Zero(t, unknown)
		assert.GreaterOrEqual(t, len(found), c.most)
		cdecltest.Compatible(t, src, declarations(found))
		assert.Equal(t, map[Source]string{CTF: "(const char *, ...)", BTF: "(const char *format, ...)"}[c.source],
			list[0].Parameters("variable"))
		assert.Equal(t, map[Source]string{CTF: "()", BTF: "(void)"}[c.source], list[0].Parameters("none"))
		assert.Equal(t, c.source, found[0].Source)
		assert.Empty(t, list[0].Parameters("no_such_function"))
	}
}

// TestConflicts has two units with different types of one name: they are in dicts of their
// own.
func TestConflicts(t *testing.T) {
	dir := t.TempDir()
	var args []string
	for i, text := range []string{"struct s { int i; }; int first(struct s *s) { return s->i; } int both(int a) { return a; }",
		"struct s { double d; }; int second(struct s *s, const struct s *t) { return s->d; } struct s third(void) { struct s s = {1}; return s; }"} {
		name := filepath.Join(dir, fmt.Sprint(i, ".c"))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o666))
		args = append(args, name)
	}
	p := cdecltest.Build(t, args[0], filepath.Join(dir, "two.so"), args[1], "-gctf", "-shared", "-fPIC")
	list, unknown := all(tables(t, p)[0])
	assert.Zero(t, unknown)
	assert.Equal(t, []string{"int both(int)", "int first(struct s *)", "int second(struct s *, const struct s *)",
		"struct s third()"}, declarations(list))
}

// TestStatic has a static function without types beside an exported one of the same name that has
// them: which of them a frame is in is not known by its name.
func TestStatic(t *testing.T) {
	dir := t.TempDir()
	var objects []string
	for i, c := range []struct{ text, flag string }{
		{"__attribute__((noinline)) static int foo(char *p) { return *p; } int other(void); int main() { return foo(\"\") + other(); }", "-O1"},
		{"__attribute__((noinline)) int foo(double d, int n) { return n + d; } int other(void) { return foo(1, 2); }",
			"-gctf"},
	} {
		src, out := filepath.Join(dir, fmt.Sprint(i, ".c")), filepath.Join(dir, fmt.Sprint(i, ".o"))
		require.NoError(t, os.WriteFile(src, []byte(c.text), 0o666))
		objects = append(objects, cdecltest.Build(t, src, out, "-c", "-O1", c.flag))
	}
	p := cdecltest.Build(t, objects[0], filepath.Join(dir, "prog"), objects[1], "-rdynamic")
	table := tables(t, p)[0]
	assert.Equal(t, "()", table.Parameters("other"))
	assert.Empty(t, table.Parameters("foo"))
	out, err := exec.Command("strip", "-o", p+".stripped", p).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "(double, int)", tables(t, p+".stripped")[0].Parameters("foo"), "the exported one alone has a name")
}

// TestRandom has 1,000 functions of random types, which gcc and objdump know.
func TestRandom(t *testing.T) {
	testtool.Need(t, "objdump", "pfunct")
	dir := t.TempDir()
	source := func(depth int) string {
		src := filepath.Join(dir, fmt.Sprintf("random%d.c", depth))
		require.NoError(t, os.WriteFile(src, []byte(cdecltest.Random(rand.New(rand.NewPCG(7, 8)), 1000, depth)), 0o666))
		return src
	}
	src := source(3)

	ctf := cdecltest.Build(t, src, filepath.Join(dir, "ctf.so"), "-gctf", "-shared", "-fPIC")
	list, unknown := all(tables(t, ctf)[0])
	assert.Zero(t, unknown)
	require.Len(t, list, 1000)
	cdecltest.Compatible(t, src, declarations(list))
	same, other := agree(list, objdump(t, ctf))
	t.Logf("CTF: %d as objdump writes them; %d return pointers to functions or arrays, which it writes otherwise",
		same, len(other))
	assert.Greater(t, same, 600)
	for _, p := range other {
		assert.Contains(t, p.Declaration, "(*", p.Name)
	}

	btf := cdecltest.Build(t, src, filepath.Join(dir, "btf.o"), "-gbtf", "-c")
	list, unknown = all(tables(t, btf)[0])
	assert.Zero(t, unknown)
	require.GreaterOrEqual(t, len(list), 1000)
	cdecltest.Compatible(t, src, declarations(list))

	src = source(1)
	btf = cdecltest.Build(t, src, filepath.Join(dir, "simple.o"), "-gbtf", "-c")
	list, unknown = all(tables(t, btf)[0])
	assert.Zero(t, unknown)
	cdecltest.Compatible(t, src, declarations(list))
	pahole(t, btf, list)
}

// Further objects that were built with -gctf or -gbtf, and how many of their functions are compared:
// docs/validation/signatures.md.
var (
	objects = flag.String("objects", "",
		"compare the functions of these `FILES` with what objdump and pahole say, too, separated by commas")
	objectFunctions = flag.Int("object-functions", 1000, "compare `N` random functions of each")
)

// TestObjects compares random functions of large programs.
func TestObjects(t *testing.T) {
	if *objects == "" {
		return
	}
	testtool.Need(t, "objdump", "pfunct")
	for _, path := range strings.Split(*objects, ",") {
		for _, table := range tables(t, path) {
			list, unknown := all(table)
			rnd := rand.New(rand.NewPCG(17, 18))
			slices.SortFunc(list, func(a, b Prototype) int { return strings.Compare(a.Name, b.Name) })
			rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			t.Logf("%s: %s: %d functions, %d without a prototype", filepath.Base(path), table.source, len(list),
				unknown)
			list = list[:min(*objectFunctions, len(list))]
			if table.source == BTF {
				pahole(t, path, list)
				continue
			}
			same, other := agree(list, objdump(t, path))
			t.Logf("CTF: %d as objdump writes them", same)
			for _, p := range other {
				assert.Regexp(t, `\(\*|\{\.\.\.\}`, p.Declaration, p.Name)
			}
		}
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

// objdump are the functions that objdump finds in a .ctf section. It writes the type of a function
// as "int (*) (char)", of a pointer to one as "int (*)(*) (char)".
func objdump(t testing.TB, path string) map[string][]string {
	t.Helper()
	out, err := exec.Command("objdump", "--ctf=.ctf", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	line := regexp.MustCompile(`(?m)^    (\w+) -> 0x[0-9a-f]+: \(kind 5\) (.*) \(aligned at 0x8\)$`)
	all := make(map[string][]string)
	for _, m := range line.FindAllStringSubmatch(string(out), -1) {
		text := strings.ReplaceAll(m[2], "(*) (", "(")
		at := strings.Index(text, "(")
		all[m[1]] = append(all[m[1]], tight(text[:max(at, 0)]+m[1]+text[max(at, 0):]))
	}
	return all
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
