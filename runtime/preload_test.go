//go:build unix

package runtime_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// preloaded is what the tests of libehunwind-preload add to the kit.
var preloaded struct {
	once sync.Once
	err  string
}

// makePreload builds the programs below testdata/preload, and eh_elfs for all of
// their objects.
func makePreload(t *testing.T) *kit {
	t.Helper()
	k := makeKit(t)
	testtool.Need(t, "g++")
	preloaded.once.Do(func() {
		if err := os.Mkdir(k.path("hidden"), 0o755); err != nil {
			preloaded.err = err.Error()
			return
		}
		preloaded.err = runAll(k.preloadSteps())
	})
	require.Empty(t, preloaded.err)
	return k
}

func (k *kit) preloadSteps() [][]string {
	const dir = "testdata/preload/"
	const cxx = "g++ -O2 -g -std=c++14 -fnon-call-exceptions -Wno-deprecated "
	compile := func(command, out string, args ...string) []string {
		return append(strings.Fields(command+warnings+" -D_GNU_SOURCE -o "+k.path(out)), args...)
	}
	both := []string{"testdata/stacks.c", "testdata/trouble.c", "testdata/verdict.c", dir + "both.c", "-Iinclude",
		"-Wl,-rpath," + k.dir,
		k.path("libehunwind.so"), "-pthread", "-Wl,--no-as-needed"}
	programs := []string{"both", "both-libunwind", "life", "early", "locked", "locked-early", "counted",
		"counted-linked", "throws", "host", "host-rpath", "sandbox", "circle", "second", "contexts", "lazy"}
	libraries := []string{"thrower.so", "guest.so", "hidden/concealed.so", "libehunwind-preload.so"}
	build := []string{k.path("ehasm"), "build", "-q", "--deps", "--vdso", "-o", k.path("eh-preload"),
		k.path("plugin.so")}
	for _, name := range append(programs, libraries...) {
		build = append(build, k.path(name))
	}
	return [][]string{
		compile("gcc -O2 -g ", "both", append(both, "-lgcc_s", "-lc", "-lunwind")...),
		compile("gcc -O2 -g ", "both-libunwind", append(both, "-DLIBUNWIND_FIRST", "-lunwind", "-lgcc_s")...),
		compile("gcc -O2 -g ", "locked", dir+"locked.c", "-rdynamic", "-Wl,--no-as-needed", "-lstdc++", "-lgcc_s"),
		compile("gcc -O2 -g -DRESOLVER ", "locked-early", dir+"locked.c", "-rdynamic", "-Wl,--no-as-needed",
			"-lstdc++", "-lgcc_s"),
		compile("gcc -O2 -g ", "counted", dir+"counted.c", "-rdynamic"),
		compile("gcc -O2 -g ", "counted-linked", dir+"counted.c", "-rdynamic", "-Wl,--no-as-needed", "-lgcc_s",
			"-lunwind"),
		compile("gcc -O2 -g ", "sandbox", dir+"sandbox.c", "-pthread", "-lgcc_s"),
		compile("gcc -O2 -g ", "circle", dir+"circle.c", "-lgcc_s"),
		compile("gcc -O2 -g ", "second", dir+"second.c"),
		compile("gcc -O2 -g ", "lazy", dir+"lazy.c", "-pthread", "-Wl,--no-as-needed", "-lgcc_s"),
		compile("gcc -O2 -g ", "contexts", dir+"contexts.c", "-lgcc_s"),
		compile("gcc -O2 -g ", "life", dir+"life.c", "-lgcc_s", "-lc", "-lunwind", "-pthread"),
		compile("gcc -O2 -g -shared -fPIC ", "libearly.so", dir+"early.c", "-lgcc_s", "-lunwind"),
		compile("gcc -O2 -g ", "early", dir+"early_main.c", "-L"+k.dir, "-learly", "-Wl,-rpath,"+k.dir),
		compile(cxx, "throws", dir+"throws.cc", "-pthread"),
		compile(cxx+"-shared -fPIC ", "thrower.so", dir+"thrower.cc"),
		compile(cxx+"-shared -fPIC ", "guest.so", dir+"guest.cc"),
		compile(cxx+"-shared -fPIC ", "hidden/concealed.so", dir+"guest.cc"),
		compile("gcc -O2 -g ", "host", dir+"host.c", "-Wl,-rpath,"+k.path("hidden")),
		compile("gcc -O2 -shared -fPIC ", "libcaller.so", dir+"caller.c", "-Wl,-rpath,"+k.path("hidden"),
			"-Wl,--disable-new-dtags"),
		compile("gcc -O2 -g -DBY_LIBRARY ", "host-rpath", dir+"host.c", "-L"+k.dir, "-lcaller", "-Wl,-rpath,"+k.dir),
		build,
	}
}

// preload runs a program of the kit under the preload. It returns what the
// program said and the figures at its end.
func (k *kit) preload(t *testing.T, path string, env []string, command ...string) (string, figures) {
	t.Helper()
	out := k.mustRun(t, path, append(env, "LD_PRELOAD="+k.path("libehunwind-preload.so"), "EHASM_STATS=1"), command...)
	var said []string
	f := figures{text: out}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "ehunwind: taken over/handed on:") {
			f.text = line // of several processes, the last to end
		}
		if !strings.HasPrefix(line, "ehunwind: ") {
			said = append(said, line)
		}
	}
	return strings.Join(said, ""), f
}

// figures is the line that the preload prints at exit.
type figures struct{ text string }

// of returns how many calls of a function were taken over and handed on.
func (f figures) of(t *testing.T, function string) (taken, handed int) {
	t.Helper()
	m := regexp.MustCompile(` ` + function + ` (\d+)/(\d+)`).FindStringSubmatch(f.text)
	require.NotNil(t, m, "%s", f.text)
	taken, _ = strconv.Atoi(m[1])
	handed, _ = strconv.Atoi(m[2])
	return taken, handed
}

var interfaces = []string{"backtrace", "_Unwind_Backtrace", "unw_backtrace", "unw_init_local"}

// TestPreloadSame takes each stack with the functions that the preload replaces and
// with the originals, and compares all that can be asked of each frame. A preload that hands
// everything on would pass, too, hence the figures: they are as many as the program
// makes, by what it asks for.
func TestPreloadSame(t *testing.T) {
	k := makePreload(t)
	const someHanded = "some"
	for _, program := range []string{"both", "both-libunwind"} {
		for scenario, want := range map[string]string{
			// 6 calls of backtrace per stack, two of them for no frames, which the original declines
			"chains":    "backtrace 244/122, _Unwind_Backtrace 183/0, unw_backtrace 244/0, unw_init_local 122/61;",
			"callbacks": "backtrace 972/486, _Unwind_Backtrace 729/0, unw_backtrace 972/0, unw_init_local 486/243;",
			"signals":   "backtrace 388/194, _Unwind_Backtrace 291/0, unw_backtrace 388/0, unw_init_local 388/194;",
			"threads":   "backtrace 960/480, _Unwind_Backtrace 720/0, unw_backtrace 960/0, unw_init_local 800/400;",
			"loading":   "backtrace 240/120, _Unwind_Backtrace 180/0, unw_backtrace 240/0, unw_init_local 120/60;",
			"deep":      "backtrace 160/80, _Unwind_Backtrace 120/0, unw_backtrace 160/0, unw_init_local 80/40;",
			// Some stacks are not known to their end by tables alone: the CFA in rax across a call,
			// those of makecontext.
			"assembly":   someHanded,
			"coroutines": someHanded,
			"forks":      "",
		} {
			// Each read of libunwind's is a system call or two, so not everything is done twice.
			if program == "both-libunwind" && scenario != "callbacks" && scenario != "assembly" {
				continue
			}
			t.Run(program+"/"+scenario, func(t *testing.T) {
				t.Parallel()
				said, f := k.preload(t, k.path("eh-preload"), nil, k.path(program), scenario)
				assert.Contains(t, said, " failures=0\n")
				if want == someHanded {
					taken, handed := f.of(t, "_Unwind_Backtrace")
					assert.True(t, taken > 0 && handed > 0, "%s", f.text)
				} else {
					assert.Contains(t, f.text, want)
				}
				if scenario == "chains" || scenario == "coroutines" || scenario == "loading" {
					assert.Equal(t, k.mustRun(t, k.path("eh-preload"), nil, k.path(program), scenario), said,
						"without the preload")
				}
			})
		}
	}
}

// TestPreloadFallsBack: without an eh_elf for an object on the way to the outermost
// frame, and without any, the frames are the originals'.
func TestPreloadFallsBack(t *testing.T) {
	k := makePreload(t)
	without := t.TempDir()
	all, err := filepath.Glob(k.path("eh-preload") + "/*")
	require.NoError(t, err)
	for _, file := range all {
		if name := filepath.Base(file); name != "libc.so.6.eh_elf.so" {
			require.NoError(t, os.Symlink(file, filepath.Join(without, name)))
		}
	}
	for path, first := range map[string]int{without: 1, "": 0} {
		for _, scenario := range []string{"chains", "signals"} {
			said, f := k.preload(t, path, nil, k.path("both"), scenario)
			assert.Contains(t, said, " failures=0\n")
			taken, handed := f.of(t, "_Unwind_Backtrace")
			assert.Zero(t, taken)
			assert.Positive(t, handed)
			taken, handed = f.of(t, "unw_init_local")
			assert.Equal(t, taken, handed, "no cursor gets to the outermost frame")
			taken, _ = f.of(t, "unw_backtrace")
			if scenario == "chains" { // arrays that are full before libc is reached
				assert.Equal(t, first > 0, taken > 61, "%d: %s", taken, f.text)
			}
		}
	}
}

// TestPreloadExceptions throws while a sampler calls backtrace in a handler.
func TestPreloadExceptions(t *testing.T) {
	k := makePreload(t)
	env := []string{"THROWER=" + k.path("thrower.so")}
	said, f := k.preload(t, k.path("eh-preload"), env, k.path("throws"), "200")
	assert.Equal(t, "sampled=1 failures=0\n", said)
	taken, handed := f.of(t, "backtrace")
	assert.Greater(t, taken, 1000)
	assert.Less(t, handed, taken/10, "where an interrupted instruction has no table")
	taken, handed = f.of(t, "_Unwind_Backtrace")
	assert.Greater(t, taken, 1000)
	assert.Zero(t, handed)
	// Without a sampler: libgcc may crash where a signal meets the end of its _Unwind_Resume.
	said, f = k.preload(t, "", env, k.path("throws"))
	assert.Equal(t, "sampled=1 failures=0\n", said, "without eh_elfs")
	taken, _ = f.of(t, "_Unwind_Backtrace")
	assert.Zero(t, taken)
	assert.Equal(t, "sampled=1 failures=0\n", k.mustRun(t, "", env, k.path("throws")), "without the preload")
}

// TestPreloadAstray: where the tables lead to memory that cannot be read, libgcc
// crashes, and the preload does not hand it the call.
func TestPreloadAstray(t *testing.T) {
	k := makePreload(t)
	out, err := k.run(t, "", nil, k.path("life"), "astray")
	assert.Error(t, err, "libgcc does not crash any more: %s", out)
	said, f := k.preload(t, k.path("eh-preload"), nil, k.path("life"), "astray")
	assert.Equal(t, "3/2 3/2 astray failures=0\n", said)
	assert.Contains(t, f.text, "backtrace 2/0, _Unwind_Backtrace 2/0")
}

// TestPreloadLife: threads, fork, exec, objects that come and go under a sampler.
func TestPreloadLife(t *testing.T) {
	k := makePreload(t)
	for _, scenario := range []string{"threads", "forks", "loading"} {
		said, f := k.preload(t, k.path("eh-preload"), nil, k.path("life"), scenario)
		assert.Contains(t, said, scenario+" failures=0\n")
		if scenario == "forks" {
			assert.Equal(t, 4, strings.Count(said, "exec failures=0\n"))
			continue // the parent takes no stacks
		}
		for _, name := range interfaces {
			taken, handed := f.of(t, name)
			assert.GreaterOrEqual(t, taken, 200, name)
			assert.LessOrEqual(t, handed, taken/10, "%s: %s", name, f.text)
		}
		assert.Equal(t, scenario == "loading", strings.Contains(f.text, "not followed 0") &&
			!strings.Contains(f.text, "; dlopen followed 0"))
	}
	said, _ := k.preload(t, k.path("eh-preload"), nil, k.path("life"), "exec")
	assert.Equal(t, "exec failures=0\n", said)
	said, f := k.preload(t, k.path("eh-preload"), nil, k.path("life"), "resume")
	assert.Equal(t, "resume failures=0\n", said)
	assert.Contains(t, f.text, "unw_init_local 10/10")
}

// TestPreloadContexts: what a callback of _Unwind_Backtrace asks of some frames, or of none, changes no other frame.
func TestPreloadContexts(t *testing.T) {
	k := makePreload(t)
	said, f := k.preload(t, k.path("eh-preload"), nil, k.path("contexts"))
	taken, handed := f.of(t, "_Unwind_Backtrace")
	assert.True(t, taken > 500 && handed == 0, "%s", f.text)
	assert.Equal(t, 3, strings.Count(said, " frames, "), "%s", said)
	assert.Equal(t, k.mustRun(t, "", nil, k.path("contexts")), said, "without the preload")
}

// TestPreloadStack: on a stack of 64 KiB; and it uses no more of it than the
// originals, or than leaves enough.
func TestPreloadStack(t *testing.T) {
	k := makePreload(t)
	said, f := k.preload(t, k.path("eh-preload"), nil, k.path("life"), "stack")
	t.Logf("with: %swithout: %s", said, k.mustRun(t, "", nil, k.path("life"), "stack"))
	var used [4]int
	_, err := fmt.Sscanf(said, "backtrace=%d _Unwind_Backtrace=%d unw_backtrace=%d unw_step=%d", &used[0], &used[1],
		&used[2], &used[3])
	require.NoError(t, err, "%s", said)
	for i, name := range interfaces {
		assert.Less(t, used[i], 4096, name)
		taken, handed := f.of(t, name)
		assert.Equal(t, 2, taken, name)
		assert.Zero(t, handed, name)
	}
}

// TestPreloadEarly: a library's constructor takes stacks before the preload's own
// constructor has run.
func TestPreloadEarly(t *testing.T) {
	k := makePreload(t)
	said, f := k.preload(t, k.path("eh-preload"), nil, k.path("early"))
	assert.Equal(t, k.mustRun(t, "", nil, k.path("early")), said)
	assert.Contains(t, f.text,
		"backtrace 0/1, _Unwind_Backtrace 0/1, unw_backtrace 0/0, unw_init_local 0/1; dlopen followed 0, not followed 1")
}

// TestPreloadLocked: a malloc that takes stacks while it holds its lock, as heap
// profilers do, is not called for them, and gets them from its first call on.
func TestPreloadLocked(t *testing.T) {
	k := makePreload(t)
	said, f := k.preload(t, k.path("eh-preload"), nil, k.path("locked"))
	assert.Equal(t, "stacks taken\n", said)
	taken, handed := f.of(t, "_Unwind_Backtrace")
	assert.Positive(t, taken, "after the constructor")
	assert.Positive(t, handed, "before it")
	for _, libraries := range []string{k.path("libgcc/libgcc_s.so.1"),
		k.path("libehunwind-preload.so") + ":" + k.path("libgcc/libgcc_s.so.1")} {
		for _, program := range []string{"locked", "locked-early"} {
			assert.Equal(t, "stacks taken\n", k.mustRun(t, k.path("eh-preload"), []string{"LD_PRELOAD=" + libraries},
				k.path(program)), libraries)
		}
	}
}

// TestPreloadCounted: a malloc that counts its calls, as heap profilers do, counts none of
// the preload's; and what the preload has mapped for objects that went is given back.
func TestPreloadCounted(t *testing.T) {
	k := makePreload(t)
	for _, program := range []string{"counted", "counted-linked"} {
		said, f := k.preload(t, k.path("eh-preload"), nil, k.path(program), k.path("plugin.so"))
		assert.Contains(t, f.text, "dlopen followed 110, not followed 0")
		assert.Contains(t, said, "pages +0\n")
		assert.Equal(t, k.mustRun(t, "", nil, k.path(program), k.path("plugin.so")), said, program)
	}
}

// TestPreloadLazy: objects are looked up when a stack is taken, not when they come and go, and only if that waits for
// no lock.
func TestPreloadLazy(t *testing.T) {
	k := makePreload(t)
	said, f := k.preload(t, k.path("eh-preload"), nil, k.path("lazy"), k.path("plugin.so"))
	assert.Equal(t, k.mustRun(t, "", nil, k.path("lazy"), k.path("plugin.so")), said)
	assert.Equal(t, 5, strings.Count(said, "frames"))
	assert.Contains(t, f.text, "dlopen followed 101, not followed 0")
	taken, handed := f.of(t, "backtrace")
	assert.Equal(t, []int{3, 2}, []int{taken, handed})
	out := k.mustRun(t, k.path("eh-preload"), []string{"LD_PRELOAD=" + k.path("libehunwind-preload.so"), "EHASM_STATS=1"},
		k.path("lazy"), k.path("plugin.so"))
	assert.Contains(t, out, "; list of objects read 4 times\n", "at the start, and for three stacks")
}

// TestPreloadCaller: dlopen finds what it finds for the object that calls it; and
// where a call cannot be followed, stacks through what it loads are the originals',
// which only the loaded library has in its scope.
func TestPreloadCaller(t *testing.T) {
	k := makePreload(t)
	for _, c := range []struct{ program, path, figures string }{
		{"host", k.path("guest.so"),
			"_Unwind_Backtrace 2/0, unw_backtrace 0/0, unw_init_local 0/0; dlopen followed 1, not followed 0"},
		{"host", "concealed.so",
			"_Unwind_Backtrace 2/0, unw_backtrace 0/0, unw_init_local 0/0; dlopen followed 0, not followed 1"},
		{"host", "$ORIGIN/guest.so",
			"_Unwind_Backtrace 2/0, unw_backtrace 0/0, unw_init_local 0/0; dlopen followed 0, not followed 1"},
		{"host-rpath", "concealed.so",
			"_Unwind_Backtrace 2/0, unw_backtrace 0/0, unw_init_local 0/0; dlopen followed 0, not followed 1"},
	} {
		said, f := k.preload(t, k.path("eh-preload"), nil, k.path(c.program), c.path)
		assert.Equal(t, k.mustRun(t, "", nil, k.path(c.program), c.path), said)
		assert.Contains(t, said, "frames=", "it was found")
		assert.Contains(t, f.text, c.figures, c.path)
	}
}

// TestPreloadValgrind looks for reads of what is not the program's, and for leaks.
func TestPreloadValgrind(t *testing.T) {
	k := makePreload(t)
	testtool.Need(t, "valgrind")
	for _, command := range [][]string{{k.path("life"), "threads"}, {k.path("host"), k.path("guest.so")}} {
		valgrind := []string{"valgrind", "-q", "--error-exitcode=9", "--leak-check=full",
			"--show-leak-kinds=definite,indirect,possible",
			"--errors-for-leak-kinds=definite,indirect"}
		_, f := k.preload(t, k.path("eh-preload"), nil, append(valgrind, command...)...)
		assert.Contains(t, f.text, "taken over")
	}
}

// TestPreloadExports: it depends on libc alone, and exports what it replaces: names
// that one of the libraries exports, too.
func TestPreloadExports(t *testing.T) {
	k := makePreload(t)
	testtool.Need(t, "readelf", "nm", "gcc")
	lib := k.path("libehunwind-preload.so")
	out, err := exec.Command("readelf", "-dW", lib).Output()
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(out), "(NEEDED)"))
	assert.Contains(t, string(out), "Shared library: [libc.so.6]")
	known := map[string]bool{}
	for _, name := range []string{"libc.so.6", "libgcc_s.so.1", "libunwind.so.8"} {
		path, err := exec.Command("gcc", "-print-file-name="+name).Output()
		require.NoError(t, err)
		for symbol := range exports(t, strings.TrimSpace(string(path))) {
			known[symbol] = true
		}
	}
	ours := exports(t, lib)
	known["__asan_default_options"] = true // see preload/asan.c
	assert.Len(t, ours, 30)
	for symbol := range ours {
		assert.True(t, known[symbol], symbol)
	}
	for symbol := range exports(t, strings.TrimSpace(mustOutput(t, "gcc", "-print-file-name=libgcc_s.so.1"))) {
		if strings.HasPrefix(symbol, "_Unwind_Get") || strings.HasPrefix(symbol, "_Unwind_Set") {
			assert.True(t, ours[symbol], "%s takes a context", symbol)
		}
	}
}

func mustOutput(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).Output()
	require.NoError(t, err)
	return string(out)
}

// exports returns the names that a library defines.
func exports(t *testing.T, path string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for line := range strings.Lines(mustOutput(t, "nm", "-D", "--defined-only", path)) {
		fields := strings.Fields(line)
		name, _, _ := strings.Cut(fields[len(fields)-1], "@")
		names[name] = true
	}
	return names
}
