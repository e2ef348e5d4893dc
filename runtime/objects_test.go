//go:build unix

package runtime_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

const objectsInProgram = 5 // the program, libehunwind, libc, ld.so, the vDSO

// ehElfs runs the program objects and returns how many of its objects have an
// eh_elf.
func ehElfs(t *testing.T, k *kit, path string, env ...string) int {
	t.Helper()
	var objects, found int
	out := k.mustRun(t, path, env, k.path("objects"))
	_, err := fmt.Sscanf(out, "objects=%d eh_elfs=%d", &objects, &found)
	require.NoError(t, err, "%s", out)
	require.Equal(t, objectsInProgram, objects)
	return found
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return b
}

// TestFound finds eh_elfs in each of the places for them.
func TestFound(t *testing.T) {
	k := makeKit(t)
	assert.Equal(t, 0, ehElfs(t, k, ""), "none anywhere")
	assert.Equal(t, objectsInProgram, ehElfs(t, k, k.path("eh")), "in EHASM_PATH")
	assert.Equal(t, objectsInProgram, ehElfs(t, k, "/nowhere::"+k.path("eh")+":"), "in its second folder")

	content := read(t, filepath.Join(k.path("eh"), "objects.eh_elf.so"))
	require.NoError(t, os.WriteFile(k.path("objects.eh_elf.so"), content, 0o644))
	assert.Equal(t, 1, ehElfs(t, k, ""), "beside the program")
	require.NoError(t, os.Remove(k.path("objects.eh_elf.so")))

	testtool.Need(t, "readelf")
	out, err := exec.Command("readelf", "-n", k.path("objects")).Output()
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(out), "Build ID: ")
	require.True(t, ok, "%s", out)
	id := strings.Fields(rest)[0]
	cache := t.TempDir()
	place := filepath.Join(cache, "ehasm", ".build-id", id[:2], id[2:]+".eh_elf.so")
	require.NoError(t, os.MkdirAll(filepath.Dir(place), 0o755))
	require.NoError(t, os.WriteFile(place, content, 0o644))
	assert.Equal(t, 1, ehElfs(t, k, "", "XDG_CACHE_HOME="+cache), "in the cache")
	filled := t.TempDir()
	build := exec.Command(k.path("ehasm"), "build", "--cache", "-q", "--deps", "--vdso", k.path("objects"))
	build.Env = append(os.Environ(), "XDG_CACHE_HOME="+filled)
	out, err = build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, objectsInProgram, ehElfs(t, k, "", "XDG_CACHE_HOME="+filled), "as ehasm build --cache fills it")
	home := t.TempDir()
	require.NoError(t, os.Symlink(cache, filepath.Join(home, ".cache")))
	assert.Equal(t, 1, ehElfs(t, k, "", "XDG_CACHE_HOME=", "HOME="+home), "in the cache at home")
}

// TestRefused: files that are not what they should be, or not safe, are as if
// they were not there.
func TestRefused(t *testing.T) {
	k := makeKit(t)
	good := read(t, filepath.Join(k.path("eh"), "objects.eh_elf.so"))
	other := read(t, filepath.Join(k.path("eh"), "corrupt.eh_elf.so"))
	for name, make := range map[string]func(path string) error{
		"another object's":      func(p string) error { return os.WriteFile(p, other, 0o644) },
		"writable by the group": func(p string) error { return writeMode(p, good, 0o664) },
		"writable by all":       func(p string) error { return writeMode(p, good, 0o646) },
		"empty":                 func(p string) error { return os.WriteFile(p, nil, 0o644) },
		"text":                  func(p string) error { return os.WriteFile(p, []byte("hello"), 0o644) },
		"cut":                   func(p string) error { return os.WriteFile(p, good[:len(good)/2], 0o644) },
		"only headers":          func(p string) error { return os.WriteFile(p, good[:1000], 0o644) },
		"folder":                func(p string) error { return os.Mkdir(p, 0o755) },
		"FIFO":                  func(p string) error { return syscall.Mkfifo(p, 0o644) },
		"wrong ABI version": func(p string) error {
			b := append([]byte{}, good...)
			i := strings.Index(string(b), "ehasm\x00\x00\x00\x01\x00\x00\x00")
			require.Positive(t, i)
			b[i+8]++
			return os.WriteFile(p, b, 0o644)
		},
	} {
		dir := t.TempDir()
		require.NoError(t, make(filepath.Join(dir, "objects.eh_elf.so")), name)
		assert.Equal(t, 0, ehElfs(t, k, dir), name)
		assert.Equal(t, objectsInProgram, ehElfs(t, k, dir+":"+k.path("eh")), "%s, and a good one behind", name)
	}
	dir := t.TempDir()
	require.NoError(t, writeMode(filepath.Join(dir, "objects.eh_elf.so"), good, 0o644))
	assert.Equal(t, 1, ehElfs(t, k, dir), "the same file as it should be")
}

func writeMode(path string, content []byte, mode os.FileMode) error {
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// TestDamaged loads files with a byte changed in headers, notes and symbols: they
// are refused or work, but do not crash the program.
func TestDamaged(t *testing.T) {
	k := makeKit(t)
	good := read(t, filepath.Join(k.path("eh"), "objects.eh_elf.so"))
	dir := t.TempDir()
	path := filepath.Join(dir, "objects.eh_elf.so")
	// Headers and notes. What the dynamic symbols say of the entry point is believed, if it is code.
	end := strings.Index(string(good), "ehasm\x00\x00\x00\x01\x00\x00\x00") + 64
	require.Greater(t, end, 64)
	const step = 3
	for i := 16; i < end; i += step {
		for _, value := range []byte{0xff, 0x80} {
			b := append([]byte{}, good...)
			if b[i] == value {
				continue
			}
			b[i] = value
			require.NoError(t, os.WriteFile(path, b, 0o644))
			cmd := exec.Command(k.path("objects"))
			cmd.Env = append(os.Environ(), "EHASM_PATH="+dir)
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "byte %#x is %#x: %s", i, value, out)
		}
	}
}

// TestOthersFile: a file of another user is ignored; a set-uid program ignores
// the environment.
func TestOthersFile(t *testing.T) {
	k := makeKit(t)
	needRoot(t)
	const otherUser = 65534
	dir := t.TempDir()
	file := filepath.Join(dir, "objects.eh_elf.so")
	require.NoError(t, writeMode(file, read(t, filepath.Join(k.path("eh"), "objects.eh_elf.so")), 0o644))
	require.Equal(t, 1, ehElfs(t, k, dir))
	require.NoError(t, os.Chown(file, otherUser, otherUser))
	assert.Equal(t, 0, ehElfs(t, k, dir), "of another user")

	// A static program: ld.so does not look for libehunwind in a rpath in set-uid programs.
	prog := filepath.Join(dir, "setuid")
	args := k.gcc("setuid", "testdata/objects.c", k.path("libehunwind.a"), "-pthread")
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Rename(k.path("setuid"), prog))
	eh := filepath.Join(dir, "eh")
	out, err = exec.Command(k.path("ehasm"), "build", "-q", "--deps", "-o", eh, prog).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, folder := range []string{filepath.Dir(dir), dir, eh} {
		require.NoError(t, os.Chmod(folder, 0o755))
	}
	assert.Contains(t, k.mustRun(t, eh, nil, prog), "eh_elfs=3", "the program, libc, ld.so")
	require.NoError(t, os.Chown(prog, otherUser, otherUser))
	require.NoError(t, os.Chmod(prog, os.ModeSetuid|0o755))
	assert.Contains(t, k.mustRun(t, eh, nil, prog), "eh_elfs=0", "set-uid")
}

// TestGuess: frames of a program without an eh_elf are found by frame pointer,
// if it has one.
func TestGuess(t *testing.T) {
	k := makeKit(t)
	testtool.Need(t, "gcc")
	out := k.mustRun(t, k.path("eh"), []string{"GUESSES=1"}, k.path("stacks-fp"), "chains")
	assert.Contains(t, out, "chains stacks=61")
	assert.Contains(t, out, " failures=0\n")
	assert.NotContains(t, out, "guessed=0 ")
}

// TestStats prints the figures at exit: of each stack, a walk and those of two cursors, one a copy of the other.
func TestStats(t *testing.T) {
	k := makeKit(t)
	out := k.mustRun(t, k.path("eh"), []string{"EHASM_STATS=1"}, k.path("stacks"), "chains")
	assert.Contains(t, out, "ehunwind: 183 walks; 7 of 7 objects have an eh_elf; list of objects read 1 times\n")
	assert.Contains(t, out, "no room in the array 0, no information 0, memory not readable 0,")
}

// TestInstall: what make install puts in place is enough to build a program.
func TestInstall(t *testing.T) {
	k := makeKit(t)
	testtool.Need(t, "pkg-config")
	prefix := t.TempDir()
	out, err := exec.Command("make", "-s", "OUT="+k.dir, "PREFIX="+prefix, "install").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, static := range []bool{false, true} {
		query := []string{"--cflags", "--libs", "ehunwind"}
		if static {
			query = append(query, "--static")
		}
		pc := exec.Command("pkg-config", query...)
		pc.Env = append(os.Environ(), "PKG_CONFIG_PATH="+filepath.Join(prefix, "lib", "pkgconfig"))
		flags, err := pc.Output()
		require.NoError(t, err)
		prog := filepath.Join(prefix, "program")
		args := append([]string{"-o", prog, "testdata/objects.c"}, strings.Fields(string(flags))...)
		out, err := exec.Command("gcc", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		got := k.mustRun(t, "", []string{"LD_LIBRARY_PATH=" + filepath.Join(prefix, "lib")}, prog)
		assert.Contains(t, got, "eh_elfs=0")
	}
}
