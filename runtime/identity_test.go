//go:build unix

package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/profile/ondemand"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// builds are files with one build-id, or without one, that differ in their tables.
type builds struct {
	k   *kit
	dir string
	id  string // the linker's option
	eh  string // a folder with the eh_elfs of all libraries
}

func makeBuilds(t *testing.T, k *kit, id string) *builds {
	t.Helper()
	b := &builds{k: k, dir: t.TempDir(), id: id}
	t.Setenv("LD_LIBRARY_PATH", k.path("libgcc"))
	b.eh = buildFor(t, k, filepath.Join(b.dir, "eh"), "--deps", "--vdso", b.compile(t, "any", "first", 0, ""),
		k.path("libehunwind-preload.so"))
	return b
}

func (b *builds) compile(t *testing.T, name, pad string, room int, more string) string {
	t.Helper()
	return compileTo(t, filepath.Join(b.dir, name),
		fmt.Sprintf("g++ -O1 %s -DPAD=%s -DROOM=%d %s testdata/identity.cc", b.id, pad, room, more))
}

// rewritten are ways in which a file gets into the place of another, or changes there. same: its tables stay.
var rewritten = []struct {
	name string
	tool string
	same bool
	do   string // a command of the shell: $1 is the file, $2 and $3 others of its build-id
}{
	{"the file", "cp", true, `:`},
	{"another link, other handler", "cp", false, `cp "$2" "$1.new" && mv "$1.new" "$1"`},
	{"another link, other frame", "cp", false, `cp "$3" "$1.new" && mv "$1.new" "$1"`},
	{"cp over", "cp", false, `cp "$2" "$1"`},
	{"cat", "cp", false, `cat "$3" > "$1"`},
	{"rsync", "rsync", false, `rsync --inplace --ignore-times "$2" "$1"`},
	{"strip", "strip", true, `strip "$1"`},
	{"objcopy", "objcopy", true, `objcopy --strip-debug --add-section=.more=/etc/passwd "$1"`},
	{"objcopy of a section", "objcopy", false,
		`objcopy -O binary --only-section=.gcc_except_table "$2" "$1.lsda" && objcopy --update-section .gcc_except_table="$1.lsda" "$1"`},
	{"patchelf", "patchelf", true, `patchelf --set-rpath /nowhere/long/enough/to/move/something "$1"`},
	{"patchelf of another", "patchelf", false, `cp "$2" "$1" && patchelf --set-rpath /nowhere/long/enough "$1"`},
}

// TestRewritten: an eh_elf serves the tables that it was made from, whatever build-id the file has that is in their
// place, and in every reader.
func TestRewritten(t *testing.T) {
	k := makePreload(t)
	for kind, id := range map[string]string{"one build-id": "-Wl,--build-id=0x1234",
		"no build-id": "-Wl,--build-id=none"} {
		b := makeBuilds(t, k, id)
		first, handler, frame := b.compile(t, "first", "first", 0, ""), b.compile(t, "handler", "second", 0, ""),
			b.compile(t, "frame", "first", 48, "")
		require.Equal(t, len(read(t, first)), len(read(t, handler)))
		for _, r := range rewritten {
			t.Run(kind+"/"+r.name, func(t *testing.T) {
				testtool.Need(t, r.tool)
				dir := t.TempDir()
				prog, eh, cache := filepath.Join(dir, "prog"), filepath.Join(dir, "eh"),
					"XDG_CACHE_HOME="+filepath.Join(dir, "cache")
				require.NoError(t, writeMode(prog, read(t, first), 0o755))
				buildFor(t, k, eh, prog)
				statusOf(t, k, cache, "--cache", "--synth=missing", prog)
				old := read(t, filepath.Join(eh, "prog.eh_elf.so"))
				out, err := exec.Command("sh", "-ec", r.do, "sh", prog, handler, frame).CombinedOutput()
				require.NoError(t, err, "%s", out)
				b.judge(t, prog, eh, cache, old, r.same)
			})
		}
	}
}

// judge asks each reader whether it takes the eh_elf for the program's, and what comes of it.
func (b *builds) judge(t *testing.T, prog, eh, cache string, old []byte, same bool) {
	t.Helper()
	k := b.k
	plain := k.mustRun(t, "", nil, prog)
	run := func(path string) (objects, throws string) {
		out := k.mustRun(t, path, []string{"EHASM_STATS=1",
			"LD_PRELOAD=" + k.path("libehunwind-preload.so") + ":" + k.path("libgcc/libgcc_s.so.1")}, prog)
		assert.Contains(t, out, plain)
		m := regexp.MustCompile(`; (\d+ of \d+) objects have an eh_elf(?s:.*)on, (\d+) throws taken over, `).FindStringSubmatch(out)
		if assert.NotNil(t, m, out) {
			objects, throws = m[1], m[2]
		}
		return objects, throws
	}
	check := func(when string, same bool) {
		objects, throws := run(eh + ":" + b.eh)
		all := strings.Fields(objects)
		assert.Equal(t, same, all[0] == all[2], "%s: %s objects have an eh_elf", when, objects)
		assert.Equal(t, same, throws == "1", "%s: %s throws taken over", when, throws)
	}
	check("rewritten", same)

	file, err := os.Open(prog)
	require.NoError(t, err)
	defer file.Close()
	o, err := ehelf.OpenFor(filepath.Join(eh, "prog.eh_elf.so"), file)
	assert.Equal(t, same, err == nil, "%v", err)
	if err == nil {
		o.Close()
	} else {
		assert.ErrorIs(t, err, ehelf.ErrMismatch)
	}
	object, err := dwarfcfa.Open(prog)
	require.NoError(t, err)
	defer object.Close()
	_, err = compile.Prove(context.Background(), old, object)
	assert.Equal(t, same, err == nil, "prove: %v", err)

	// What record and script run.
	home, _ := strings.CutPrefix(cache, "XDG_CACHE_HOME=")
	cached, err := filepath.Glob(filepath.Join(home, "ehasm", ".build-id", "*", "*.so"))
	require.NoError(t, err)
	require.Len(t, cached, 1)
	t.Setenv("XDG_CACHE_HOME", home)
	st, err := file.Stat()
	require.NoError(t, err)
	image, err := ondemand.New(ondemand.Options{}).EhElf(context.Background(), prog, file, st.Size())
	require.NoError(t, err)
	assert.Equal(t, same, string(image) == string(read(t, cached[0])), "record and script use the cache")

	// A server that has the other's, and what is there already.
	from := filepath.Join(home, "ehasm", ".build-id")
	assert.Equal(t, map[bool]string{true: "fetched", false: "built"}[same], statusOf(t, k, "XDG_CACHE_HOME="+t.TempDir(),
		"--cache", "--synth=missing", "--from", from, prog))
	want := map[bool]string{true: "up to date", false: "built"}[same]
	assert.Equal(t, want, statusOf(t, k, cache, "--cache", "--synth=missing", prog))
	assert.Equal(t, want, statusOf(t, k, cache, "-o", eh, prog))
	check("built again", true)
}

// TestOneBuildID: a project may give all of its objects one build-id. The cache has room for each.
func TestOneBuildID(t *testing.T) {
	k := makePreload(t)
	b := makeBuilds(t, k, "-Wl,--build-id=0x1234")
	cache := "XDG_CACHE_HOME=" + filepath.Join(b.dir, "cache")
	var programs []string
	for room := range 3 {
		more := strings.Repeat("-DMORE ", min(room, 1)) + strings.Repeat("-DSTILL_MORE", room/2)
		programs = append(programs, b.compile(t, fmt.Sprint("bin/", room), "first", 16*room, more))
	}
	for _, want := range []string{"built", "up to date"} {
		for _, program := range programs {
			assert.Equal(t, want, statusOf(t, k, cache, "--cache", program))
		}
	}
	call := exec.Command(k.path("ehasm"), "cache", "--prune", "--only", filepath.Join(b.dir, "bin"))
	call.Env = append(os.Environ(), cache)
	out, err := call.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "removed: 0 files")
	for _, program := range programs {
		out := k.mustRun(t, b.eh, []string{cache, "EHASM_STATS=1", "LD_PRELOAD=" + k.path("libehunwind-preload.so") + ":" +
			k.path("libgcc/libgcc_s.so.1")}, program)
		assert.Contains(t, out, k.mustRun(t, "", nil, program))
		assert.Contains(t, out, "on, 1 throws taken over, ")
	}
}

// statusOf builds one file and returns what became of it.
func statusOf(t *testing.T, k *kit, cache string, args ...string) string {
	t.Helper()
	cmd := exec.Command(k.path("ehasm"), append([]string{"build", "--json"}, args...)...)
	cmd.Env = append(os.Environ(), cache)
	out, err := cmd.Output()
	require.NoError(t, err, "%s", out)
	var r struct{ Files []struct{ Status string } }
	require.NoError(t, json.Unmarshal(out, &r), "%s", out)
	require.Len(t, r.Files, 1)
	return r.Files[0].Status
}

// TestReloaded: plug-ins with one build-id that have one place in the memory of a process, one after the other.
func TestReloaded(t *testing.T) {
	k := makePreload(t)
	for kind, id := range map[string]string{"one build-id": "-Wl,--build-id=0x1234",
		"no build-id": "-Wl,--build-id=none"} {
		t.Run(kind, func(t *testing.T) {
			b := makeBuilds(t, k, id)
			host := b.compile(t, "host", "first", 0, "")
			var plugins []string
			for _, p := range []struct {
				pad  string
				room int
			}{{"first", 0}, {"second", 0}, {"first", 48}, {"first", 0}, {"second", 48}} {
				plugins = append(plugins, b.compile(t, fmt.Sprint(p.pad, p.room, ".so"), p.pad, p.room, "-shared -fPIC -DPLUGIN"))
			}
			place := filepath.Join(b.dir, "plugin.so")
			command := append([]string{host, place}, plugins...)
			plain := k.mustRun(t, "", nil, command...)
			require.Equal(t, len(plugins), strings.Count(plain, "caught 1\n"))
			require.NotContains(t, plain, "elsewhere", "the case that this is about")
			for _, made := range plugins[:3] { // for which there is an eh_elf
				require.NoError(t, writeMode(place, read(t, made), 0o755))
				eh := buildFor(t, k, filepath.Join(b.dir, "eh-plugin"), host, place) + ":" + b.eh
				for _, libraries := range []string{"libehunwind-preload.so", "libgcc/libgcc_s.so.1"} {
					out := k.mustRun(t, eh, []string{"LD_PRELOAD=" + k.path(libraries), "EHASM_STATS=1"}, command...)
					assert.Contains(t, out, plain, libraries)
					taken := map[string]string{ // the plug-ins that have these tables, and no other
						plugins[0]: "2", plugins[1]: "1", plugins[2]: "1",
					}[made]
					if libraries == "libgcc/libgcc_s.so.1" {
						assert.Contains(t, out, "on, "+taken+" throws taken over, ")
					} else {
						assert.Contains(t, out, "backtrace "+taken+"/")
					}
				}
			}
		})
	}
}

// TestCut: a plug-in whose file is shorter by the time of the first walk, as while another is copied over it, harms no
// program that does not call it.
func TestCut(t *testing.T) {
	k := makePreload(t)
	b := makeBuilds(t, k, "-Wl,--build-id=0x1234")
	host := compileTo(t, filepath.Join(b.dir, "cut"), "g++ -O1 testdata/cut.cc")
	plugin := b.compile(t, "plugin.so", "first", 0, "-shared -fPIC -DPLUGIN")
	place := filepath.Join(b.dir, "place.so")
	require.NoError(t, writeMode(place, read(t, plugin), 0o755))
	eh := buildFor(t, k, filepath.Join(b.dir, "eh-cut"), host, place) + ":" + b.eh
	for _, size := range []string{"4096", "0"} {
		for _, libraries := range []string{"", "libehunwind-preload.so", "libgcc/libgcc_s.so.1"} {
			require.NoError(t, writeMode(place, read(t, plugin), 0o755))
			preload := ""
			if libraries != "" {
				preload = k.path(libraries)
			}
			out := k.mustRun(t, eh, []string{"LD_PRELOAD=" + preload}, host, place, size)
			assert.Regexp(t, `^frames [4-9]\ncaught 1\n$`, out, "%s %s", size, libraries)
		}
	}
}
