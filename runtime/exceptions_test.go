//go:build unix

package runtime_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
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

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// thrown is what the tests of exceptions add to the kit.
var thrown struct {
	once sync.Once
	err  string
}

// throwing are the programs below eh/testdata. The output of each is to be the
// same with the system's libgcc and with ours.
var throwing = map[string]string{
	"eh-shapes-O0":  "g++ -O0 -fnon-call-exceptions -pthread shapes.cc",
	"eh-shapes-O2":  "g++ -O2 -fnon-call-exceptions -pthread shapes.cc",
	"eh-shapes-fp":  "g++ -O1 -fno-omit-frame-pointer -mno-accumulate-outgoing-args -fnon-call-exceptions -pthread shapes.cc",
	"eh-static-gcc": "g++ -O2 -static-libgcc -fnon-call-exceptions -pthread shapes.cc",
	"eh-static-cxx": "g++ -O2 -static-libstdc++ -fnon-call-exceptions -pthread shapes.cc",
	"eh-no-pie":     "g++ -O2 -no-pie -fno-pie -fnon-call-exceptions -pthread shapes.cc",
	"eh-noalloc":    "g++ -O2 -pthread noalloc.cc",
	"eh-registered": "g++ -O1 -rdynamic registered.cc",
	"eh-nested":     "gcc -O1 -fexceptions -pthread nested.c",
	"eh-replace":    "g++ -O2 -rdynamic -pthread replace.cc",
	"eh-inside":     "g++ -O2 -rdynamic -pthread inside.cc",
	"eh-green":      "g++ -O2 -pthread green.cc",
	"eh-made":       "g++ -O1 made.cc",
	"eh-no-table":   "g++ -O1 -Wl,--no-eh-frame-hdr notable.cc",
	"eh-many":       "g++ -O1 -std=c++17 many.cc",
	"eh-args":       "g++ -Os -std=c++14 -mno-accumulate-outgoing-args -mpush-args -fomit-frame-pointer -fno-ipa-sra -pthread args.cc",
	"eh-pointers":   "g++ -O2 -std=c++17 -pthread pointers.cc",
	"eh-crossing":   "g++ -O2 crossing.cc",
	"eh-late":       "gcc -O1 late.cc",
	"eh-static-all": "g++ -O2 -static-libgcc -static-libstdc++ -rdynamic crossing.cc",
}

func makeThrowing(t *testing.T) *kit {
	t.Helper()
	k := makeKit(t)
	testtool.Need(t, "g++", "readelf")
	thrown.once.Do(func() {
		compile := func(command, out string) []string {
			args := strings.Fields(command)
			for i, a := range args {
				if strings.HasSuffix(a, ".cc") || strings.HasSuffix(a, ".c") {
					args[i] = filepath.Join("eh/testdata", a)
				}
			}
			return append(args, "-w", "-o", k.path(out))
		}
		steps := [][]string{
			compile("g++ -O2 -shared -fPIC -DPARENT=Base -DPLUS=1 plugin.cc", "one.so"),
			compile("g++ -O2 -shared -fPIC -DPARENT=Other -DPLUS=2 -DMORE plugin.cc", "two.so"),
			compile("g++ -O2 -shared -fPIC -DLIBRARY -static-libgcc -static-libstdc++ crossing.cc",
				"crossing-static.so"),
			compile("g++ -O2 -shared -fPIC -DLIBRARY crossing.cc", "crossing-shared.so"),
			compile("g++ -O1 -std=c++17 -shared -fPIC -DLIBRARY late.cc", "late.so"),
		}
		build := []string{k.path("ehasm"), "build", "-q", "--deps", "--vdso", "-o", k.path("eh-throwing"),
			k.path("one.so"), k.path("two.so"),
			k.path("crossing-static.so"), k.path("crossing-shared.so"), k.path("late.so")}
		for name, command := range throwing {
			steps = append(steps, compile(command, name))
			build = append(build, k.path(name))
		}
		packed := append([]string{}, build...)
		packed[6] = k.path("eh-throwing-packed")
		thrown.err = runAll(append(steps, build, append(packed, "--dispatch=packed")))
	})
	require.Empty(t, thrown.err)
	return k
}

// inKit runs a program in the kit's folder.
func (k *kit) inKit(t *testing.T, eh string, env []string, name string) (string, int) {
	t.Helper()
	cmd := exec.Command(k.path(name))
	cmd.Dir = k.dir
	cmd.Env = append(os.Environ(), "EHASM_PATH="+eh, "XDG_CACHE_HOME="+t.TempDir())
	cmd.Env = append(cmd.Env, env...)
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

var exceptionFigures = regexp.MustCompile(
	`ehasm: exceptions: (on|off), \d+ throws taken over, \d+ handed over, (\d+) frames learnt, (\d+) calls handed over, \d+ routines asked\n`)

// TestExceptionsSame: programs do the same with our libgcc_s in the place of the
// system's, preloaded or found by the loader, with either dispatch, with
// eh_elfs and without.
func TestExceptionsSame(t *testing.T) {
	k := makeThrowing(t)
	lib := k.path("libgcc/libgcc_s.so.1")
	for name := range throwing {
		want, code := k.inKit(t, "", nil, name)
		require.NotEmpty(t, want)
		require.NotContains(t, want, "no sandbox")
		for _, way := range []struct{ eh, env string }{
			{"eh-throwing", "LD_PRELOAD=" + lib},
			{"eh-throwing-packed", "LD_LIBRARY_PATH=" + filepath.Dir(lib)},
			{"none", "LD_PRELOAD=" + lib},
			{"eh-throwing", "LD_PRELOAD=" + k.path("libehunwind-preload.so") + ":" + lib},
		} {
			got, gotCode := k.inKit(t, k.path(way.eh), []string{way.env}, name)
			assert.Equal(t, want, got, "%s %v", name, way)
			assert.Equal(t, code, gotCode, "%s %v", name, way)
		}
		if strings.HasPrefix(name, "eh-static") { // of the throw, the static part begins nothing
			continue
		}
		if name == "eh-made" || name == "eh-no-table" { // ends without its exit handlers
			continue
		}
		got, _ := k.inKit(t, k.path("eh-throwing"), []string{"LD_PRELOAD=" + lib, "EHASM_STATS=1"}, name)
		all := exceptionFigures.FindAllStringSubmatch(got, -1)
		require.NotEmpty(t, all, got)
		learnt, err := strconv.Atoi(all[len(all)-1][2])
		require.NoError(t, err)
		assert.Equal(t, "on", all[0][1])
		assert.Positive(t, learnt, name)
		if name == "eh-many" {
			assert.Less(t, learnt, 700, "most are learnt once")
		}
	}
}

// TestExceptionsArgs: throws through frames whose arguments are popped before the landing pad are taken over.
func TestExceptionsArgs(t *testing.T) {
	k := makeThrowing(t)
	got, _ := k.inKit(t, k.path("eh-throwing"), []string{"LD_PRELOAD=" + k.path("libgcc/libgcc_s.so.1"),
		"EHASM_STATS=1"}, "eh-args")
	assert.Regexp(t, `exceptions: on, [1-9]\d{3} throws taken over, 0 handed over, \d+ frames learnt, 0 calls handed over`,
		got)
	out := mustOutput(t, k.path("ehasm"), "dump", "--stage=sites", k.path("eh-args"))
	for _, site := range []string{"cleanup pad .* args", "action pad .* args", "ask args"} {
		assert.Regexp(t, `(?m)^  \S+ `+site+` [1-9]\d*$`, out)
	}
}

// TestExceptionsPointers: what libstdc++'s routine says of pointers, and of what is thrown by an exception_ptr, is
// remembered.
func TestExceptionsPointers(t *testing.T) {
	k := makeThrowing(t)
	got, _ := k.inKit(t, k.path("eh-throwing"), []string{"LD_PRELOAD=" + k.path("libgcc/libgcc_s.so.1"), "EHASM_STATS=1"},
		"eh-pointers")
	assert.Regexp(t, `exceptions: on, [1-9]\d{4} throws taken over, 0 handed over, \d+ frames learnt, 0 calls handed over, [1-9]\d{3} routines asked\n`, got)
}

// TestExceptionsLate: what libstdc++'s routine says is remembered also if a library brings libstdc++ after the start.
func TestExceptionsLate(t *testing.T) {
	k := makeThrowing(t)
	got, _ := k.inKit(t, k.path("eh-throwing"),
		[]string{"LD_PRELOAD=" + k.path("libgcc/libgcc_s.so.1"), "EHASM_STATS=1"}, "eh-late")
	all := regexp.MustCompile(`exceptions: on, 3200 throws taken over, 0 handed over, \d+ frames learnt, 0 calls handed over, (\d+) routines asked\n`).FindStringSubmatch(got)
	require.NotNil(t, all, got)
	asked, err := strconv.Atoi(all[1])
	require.NoError(t, err)
	assert.Less(t, asked, 3000, "32 answers; those that share a slot are asked each time")
}

// TestExceptionsOff: without eh_elfs, or where the environment says so, nothing
// is taken over.
func TestExceptionsOff(t *testing.T) {
	k := makeThrowing(t)
	for _, env := range [][]string{{"EHASM_EXCEPTIONS=0"}, {"EHASM_PATH="}} {
		got, _ := k.inKit(t, k.path("eh-throwing"), append(env, "LD_PRELOAD="+k.path("libgcc/libgcc_s.so.1"),
			"EHASM_STATS=1"), "eh-replace")
		assert.Contains(t, got,
			"exceptions: off, 0 throws taken over, 0 handed over, 0 frames learnt, 0 calls handed over")
	}
}

// TestExceptionsEarly: a throw may come before the constructor of our libgcc_s has run, from the
// malloc that it calls itself, in its own thread and in another.
func TestExceptionsEarly(t *testing.T) {
	k := makeThrowing(t)
	early := k.path("early.so")
	require.Empty(t, runAll([][]string{{"g++", "-O1", "-shared", "-fPIC", "-pthread", "-o", early,
		"eh/testdata/early.cc"}}))
	for _, libraries := range []string{early, early + ":" + k.path("libgcc/libgcc_s.so.1"),
		early + ":" + k.path("libehunwind-preload.so") + ":" + k.path("libgcc/libgcc_s.so.1")} {
		cmd := exec.Command("/bin/true")
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+libraries)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", libraries, out)
		assert.Equal(t, "caught 200\n", string(out), libraries)
	}
}

// TestExceptionsExports: our libgcc_s has all names and versions of the system's.
func TestExceptionsExports(t *testing.T) {
	k := makeThrowing(t)
	names := func(path string) []string {
		var out []string
		for line := range strings.Lines(mustOutput(t, "readelf", "--dyn-syms", "-W", path)) {
			f := strings.Fields(line)
			if len(f) >= 8 && f[6] != "UND" && (f[3] == "FUNC" || f[3] == "OBJECT") {
				out = append(out, f[3]+" "+f[7])
			}
		}
		return out
	}
	theirs := names(strings.TrimSpace(mustOutput(t, "gcc", "-print-file-name=libgcc_s.so.1")))
	assert.Greater(t, len(theirs), 150)
	// No others: a program's own libehunwind is not to find its functions here.
	assert.ElementsMatch(t, append(theirs, "FUNC ehasm_throws@@EHASM_1", "OBJECT EHASM_1"),
		names(k.path("libgcc/libgcc_s.so.1")))
	dynamic := mustOutput(t, "readelf", "-dW", k.path("libgcc/libgcc_s.so.1"))
	assert.Contains(t, dynamic, "Library soname: [libgcc_s.so.1]")
	assert.Equal(t, 2, strings.Count(dynamic, "(NEEDED)"))
	assert.Contains(t, dynamic, "[libc.so.6]")
	assert.Contains(t, dynamic, "[ld-linux-x86-64.so.2]")
}

// TestExceptionSlots: what is remembered is written while it is read, between any two instructions of the
// reader, and by other threads under the thread sanitizer.
func TestExceptionSlots(t *testing.T) {
	k := makeKit(t)
	testtool.Need(t, "gcc", "setarch")
	testtool.DependsOn(t, "..")
	build := func(args ...string) string {
		program := filepath.Join(t.TempDir(), "stepped")
		args = append(append([]string{"gcc"}, args...), "-g", "-std=c11", "-D_GNU_SOURCE", "-mno-red-zone", "-Wall",
			"-Wextra", "-Iinclude", "-Ieh", "-pthread",
			"-o", program, "eh/testdata/stepped.c", "eh/entry.S", k.path("eh/libgcc.o"))
		mustOutput(t, args...)
		return program
	}
	stepped := build("-O2", "-Werror")
	assert.Equal(t, 20, strings.Count(mustOutput(t, stepped), "\n"))
	assert.Equal(t, "threads\n", mustOutput(t, stepped, "threads"))
	assert.Equal(t, "threads\n", mustOutput(t, "setarch", "-R", build("-O1", "-fsanitize=thread", "-Wno-tsan"),
		"threads"))
}

// siteTable returns the table of sites of an eh_elf, by its note: small files have no sections.
func siteTable(t *testing.T, f *elf.File) []byte {
	t.Helper()
	le := binary.LittleEndian
	head := append(le.AppendUint32(nil, abi.NoteSites), abi.NoteOwner...)
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		notes := make([]byte, p.Filesz)
		_, err := p.ReadAt(notes, 0)
		require.NoError(t, err)
		_, rest, ok := bytes.Cut(notes, head)
		require.True(t, ok)
		desc := rest[(len(abi.NoteOwner)+4)/4*4-len(abi.NoteOwner):]
		table := make([]byte, le.Uint64(desc[16:]))
		addr := le.Uint64(desc[8:])
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && addr >= p.Vaddr && addr < p.Vaddr+p.Filesz {
				_, err := p.ReadAt(table, int64(addr-p.Vaddr))
				require.NoError(t, err)
				return table
			}
		}
	}
	require.Fail(t, "no table of sites")
	return nil
}

// TestHostileSites: damaged tables of sites are read without a fault, by a reader built with
// sanitizers. EHASM_HOSTILE is the number of tables.
func TestHostileSites(t *testing.T) {
	k := makeThrowing(t)
	dir := t.TempDir()
	program, table := filepath.Join(dir, "hostile"), filepath.Join(dir, "sites")
	mustOutput(t, "gcc", "-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-fsanitize=address,undefined",
		"-fno-sanitize-recover",
		"-Iinclude", "-o", program, "eh/testdata/hostile.c")
	f, err := elf.Open(k.path("eh-throwing/eh-shapes-O2.eh_elf.so"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, os.WriteFile(table, siteTable(t, f), 0o600))
	cases := os.Getenv("EHASM_HOSTILE")
	if cases == "" {
		cases = "2000"
	}
	out := mustOutput(t, program, table, cases)
	assert.Regexp(t, `^skip \d+ cleanup [1-9]\d* action [1-9]\d* both \d+ handed over [1-9]\d* ask [1-9]\d*\n$`, out)
}

// TestExceptionsForked: children throw while another thread of their parent is in dlopen, in
// dlclose, or in a throw that renews the table.
func TestExceptionsForked(t *testing.T) {
	k := makeThrowing(t)
	dir := t.TempDir()
	library := compileTo(t, filepath.Join(dir, "other.so"), "gcc -shared -fPIC testdata/plugin.c")
	const compile = "g++ -O1 eh/testdata/forked.cc -pthread"
	program := compileTo(t, filepath.Join(dir, "forked"), compile)
	linked := compileTo(t, filepath.Join(dir, "linked"), compile+" -Wl,-rpath,"+k.path("libgcc"))
	for _, way := range [][]string{{program, "LD_PRELOAD=" + k.path("libgcc/libgcc_s.so.1")}, {linked, "LD_PRELOAD="}} {
		mustOutput(t, k.path("ehasm"), "build", "-q", "--deps", "-o", way[0]+".eh", way[0], library)
		for _, mode := range []string{"load", "throw"} {
			out := k.mustRun(t, way[0]+".eh", []string{way[1], "EHASM_STATS=1"}, way[0], "150", library, mode)
			assert.Contains(t, out, "150 of 150, 0\n", mode)
			assert.Contains(t, out, "exceptions: on")
		}
	}
}
