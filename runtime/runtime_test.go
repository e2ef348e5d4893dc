//go:build unix

// Package runtime_test builds libehunwind and runs C programs with it. The
// programs compare what it says with libunwind, frame by frame.
package runtime_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// kit is what the tests share: the library, the ehasm command, the programs and
// their eh_elfs. It is made once.
type kit struct {
	once sync.Once
	dir  string
	err  string
}

var shared kit

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.dir != "" {
		os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// programs are those of testdata; each is linked with the library.
var programs = map[string][]string{
	"stacks":   {"stacks.c", "check.c", "verdict.c", "trouble.c", "-lunwind", "-pthread"},
	"corrupt":  {"corrupt.c", "-pthread"},
	"objects":  {"objects.c"},
	"below":    {"below.c"},
	"race":     {"race.c", "forbid.c", "-pthread"},
	"children": {"children.c", "-pthread"},
	"jit":      {"jit.c", "copy.c", "forbid.c", "check.c", "verdict.c", "-lunwind", "-pthread"},
}

const warnings = "-Wall -Wextra -Werror"

func makeKit(t *testing.T) *kit {
	t.Helper()
	testtool.Need(t, "gcc", "make", "ar")
	testtool.DependsOn(t, "..")
	if _, err := os.Stat("/usr/include/libunwind.h"); err != nil {
		if found, _ := filepath.Glob("/usr/include/*/libunwind.h"); len(found) == 0 {
			t.Skip("needs libunwind-dev")
		}
	}
	shared.once.Do(func() {
		var err error
		if shared.dir, err = os.MkdirTemp("", "ehasm-runtime-"); err != nil {
			shared.err = err.Error()
			return
		}
		shared.err = shared.make()
	})
	require.Empty(t, shared.err)
	return &shared
}

func (k *kit) path(name string) string { return filepath.Join(k.dir, name) }

// make returns what went wrong.
func (k *kit) make() string {
	steps := [][]string{
		{"go", "build", "-o", k.path("ehasm"), "github.com/ehasm/ehasm/cmd/ehasm"},
		{"make", "-s", "OUT=" + k.dir, `CFLAGS=-O2 -g -DSYSTEM_CACHES='""'`, "all"},
		{"gcc", "-O2", "-shared", "-fPIC", "-o", k.path("plugin.so"), "testdata/plugin.c"},
		k.gcc("trust", "testdata/trust.c", "src/search.c", k.path("libehunwind.a"), "-pthread"),
		k.gcc("abandoned", "testdata/abandoned.c", k.path("libehunwind.a"), "-pthread"),
		k.gcc("forks", "testdata/forks.c", k.path("libehunwind.a"), "-pthread", "-Wl,--wrap=dl_iterate_phdr"),
		k.gcc("chain", "testdata/chain.c", k.path("libehunwind.a"), "-pthread"),
		k.gcc("stacks-fp", append(inTestdata(programs["stacks"]), "-fno-omit-frame-pointer",
			k.path("libehunwind.so"))...),
	}
	build := []string{k.path("ehasm"), "build", "-q", "--deps", "--vdso", "-o", k.path("eh"), k.path("plugin.so"),
		k.path("chain"), k.path("forks")}
	for name, args := range programs {
		steps = append(steps, k.gcc(name, append(inTestdata(args), k.path("libehunwind.so"))...))
		build = append(build, k.path(name))
	}
	return runAll(append(steps, build))
}

// runAll runs commands and returns what went wrong.
func runAll(steps [][]string) string {
	for _, step := range steps {
		if out, err := exec.Command(step[0], step[1:]...).CombinedOutput(); err != nil {
			return strings.Join(step, " ") + ": " + err.Error() + "\n" + string(out)
		}
	}
	return ""
}

func inTestdata(args []string) []string {
	var out []string
	for _, a := range args {
		if strings.HasSuffix(a, ".c") {
			a = filepath.Join("testdata", a)
		}
		out = append(out, a)
	}
	return out
}

// gcc returns the command that makes a program.
func (k *kit) gcc(name string, args ...string) []string {
	cmd := append([]string{"gcc", "-O2", "-g", "-D_GNU_SOURCE", "-Iinclude", "-Wl,-rpath," + k.dir, "-o", k.path(name)},
		strings.Fields(warnings)...)
	return append(cmd, args...)
}

// run runs a program of the kit with these eh_elfs, and returns what it printed.
func (k *kit) run(t *testing.T, path string, env []string, command ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "EHASM_PATH="+path, "XDG_CACHE_HOME="+t.TempDir(), "PLUGIN="+k.path("plugin.so"),
		"EHASM_STATS=")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mustRun also requires that it ends well.
func (k *kit) mustRun(t *testing.T, path string, env []string, command ...string) string {
	t.Helper()
	out, err := k.run(t, path, env, command...)
	require.NoError(t, err, "%s", out)
	return out
}

// TestStacks compares every frame of stacks of many sorts with libunwind's.
func TestStacks(t *testing.T) {
	k := makeKit(t)
	for scenario, figures := range map[string]string{ // deterministic: as many as the program makes
		"chains": "stacks=61", "callbacks": "stacks=", "signals": "stacks=194", "threads": "stacks=400",
		"deep":     "stacks=40",
		"overflow": "stacks=3", "forks": "stacks=2", "coroutines": "stacks=70", "assembly": "stacks=42",
		"loading": "stacks=60",
	} {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			out := k.mustRun(t, k.path("eh"), nil, k.path("stacks"), scenario)
			assert.Contains(t, out, scenario+" "+figures)
			assert.Contains(t, out, " failures=0\n")
			if scenario != "assembly" {
				assert.Contains(t, out, " guessed=0 ")
			}
		})
	}
}

// TestForbidden runs where the system call for looking at unknown stacks is
// forbidden, and another has to do.
func TestForbidden(t *testing.T) {
	k := makeKit(t)
	for _, scenario := range []string{"chains", "signals", "threads", "coroutines"} {
		out, err := k.run(t, k.path("eh"), []string{"NO_READV=1"}, k.path("stacks"), scenario)
		if strings.HasPrefix(out, "cannot forbid") {
			t.Skip("needs seccomp")
		}
		require.NoError(t, err, "%s", out)
		assert.Contains(t, out, " guessed=0 failures=0\n")
	}
}

// TestJIT walks through code in no object: made at run time or mapped a second
// time. The kernel is asked what memory is code in each of two ways.
func TestJIT(t *testing.T) {
	k := makeKit(t)
	for scenario, figures := range map[string]string{
		"regions": "stacks=60", "file": "stacks=2", "instructions": "stacks=7", "copy": "stacks=2",
		"not-frames": "stacks=28", "vanishing": "stacks=",
	} {
		for _, env := range []string{"NO_QUERY=", "NO_QUERY=1"} {
			t.Run(scenario+" "+env, func(t *testing.T) {
				t.Parallel()
				out := k.mustRun(t, k.path("eh"), []string{env}, k.path("jit"), scenario)
				assert.Contains(t, out, scenario+" "+figures)
				assert.Contains(t, out, " failures=0\n")
			})
		}
	}
}

// TestCorrupt walks overwritten stacks that end in inaccessible pages.
func TestCorrupt(t *testing.T) {
	k := makeKit(t)
	out := k.mustRun(t, k.path("eh"), nil, k.path("corrupt"))
	assert.Contains(t, out, "no_object=1 not_rising=1 unreadable=1 guessed=1 failures=0")
}

// TestRace walks in three threads while objects and regions of code come and go.
func TestRace(t *testing.T) {
	k := makeKit(t)
	for _, env := range []string{"NO_QUERY=", "NO_QUERY=1"} {
		assert.Equal(t, "refreshes=61 odd=0\n", k.mustRun(t, k.path("eh"), []string{env}, k.path("race"), "30"), env)
	}
}

// TestThreadSanitizer runs the same, instrumented.
func TestThreadSanitizer(t *testing.T) {
	k := makeKit(t)
	sources, err := filepath.Glob("src/*.[cS]")
	require.NoError(t, err)
	dir := t.TempDir()
	prog := filepath.Join(dir, "race-tsan")
	args := append([]string{"-g", "-O1", "-fsanitize=thread", "-D_GNU_SOURCE", "-Iinclude", "-o", prog,
		"testdata/race.c", "testdata/forbid.c", "-pthread"}, sources...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		if strings.Contains(string(out), "libtsan") {
			t.Skip("needs libtsan")
		}
		t.Fatalf("%s", out)
	}
	out, err := exec.Command(k.path("ehasm"), "build", "-q", "-o", dir, prog).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, env := range []string{"NO_QUERY=", "NO_QUERY=1"} {
		assert.Equal(t, "refreshes=11 odd=0\n", k.mustRun(t, dir+":"+k.path("eh"), []string{env}, prog, "5"), env)
	}
}

// TestValgrind looks for reads of what is not the program's, and for leaks.
func TestValgrind(t *testing.T) {
	k := makeKit(t)
	testtool.Need(t, "valgrind")
	for _, command := range [][]string{
		{k.path("objects")}, {k.path("race"), "2"}, {k.path("jit"), "vanishing"}, {k.path("jit"), "not-frames"},
		{k.path("jit"), "copy"},
	} {
		valgrind := []string{"valgrind", "-q", "--error-exitcode=9", "--leak-check=full",
			"--show-leak-kinds=definite,indirect,possible",
			"--errors-for-leak-kinds=definite,indirect", "--fair-sched=yes"}
		k.mustRun(t, k.path("eh"), []string{"VALGRIND=1"}, append(valgrind, command...)...)
	}
}

// TestChain compares walks that go from object to object in one call with calls for
// each.
func TestChain(t *testing.T) {
	k := makeKit(t)
	out := k.mustRun(t, k.path("eh"), nil, k.path("chain"))
	assert.Regexp(t, `^walks=\d{4,} full=\d{3,} outermost=\d{2,} others=\d{3,} changes=many failures=0\n$`, out)
}

// TestAbandoned: a handler that interrupts a walk and does not return keeps one table,
// and not all that are made later.
func TestAbandoned(t *testing.T) {
	k := makeKit(t)
	assert.Equal(t, "pages +0\n", k.mustRun(t, k.path("eh"), nil, k.path("abandoned"), k.path("plugin.so")))
}

// TestForks: a fork never waits for a refresh that it interrupts, nor does the child for one
// that it has lost; and a refresh is not cut short by the end of its thread.
func TestForks(t *testing.T) {
	k := makeKit(t)
	for _, scenario := range []string{"handler", "raw", "returns", "thread", "cancel"} {
		out, err := k.run(t, k.path("eh"), nil, k.path("forks"), scenario)
		assert.NoError(t, err, scenario)
		assert.Equal(t, scenario+" failures=0\n", out)
	}
}

// TestChildren: children of fork, and those that share their parent's memory, walk and refresh
// while another thread of it loads.
func TestChildren(t *testing.T) {
	k := makeKit(t)
	for how, number := range map[string]string{"fork": "300", "share": "2000", "namespace": "2000"} {
		t.Run(how, func(t *testing.T) {
			out := k.mustRun(t, k.path("eh"), nil, k.path("children"), number, how, k.path("plugin.so"), "libm.so.6")
			if how == "namespace" && out == "no namespaces\n" {
				t.Skip("needs pid namespaces, which are forbidden in some containers")
			}
			assert.Empty(t, out)
		})
	}
}

// TestTrust tests the rules of what is believed.
func TestTrust(t *testing.T) {
	k := makeKit(t)
	assert.Empty(t, k.mustRun(t, "", nil, k.path("trust")))
}

// TestHeaderCXX compiles the header as C++ and as strict C.
func TestHeaderCXX(t *testing.T) {
	testtool.Need(t, "gcc", "g++")
	for _, command := range []string{
		"g++ -std=c++11 -Wpedantic -x c++ ", "g++ -std=c++20 -Wpedantic -x c++ ", "gcc -std=c11 -Wpedantic -x c ",
	} {
		args := strings.Fields(command + warnings + " -fsyntax-only include/ehunwind.h")
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		assert.NoError(t, err, "%s", out)
	}
}
