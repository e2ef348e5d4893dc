//go:build linux && amd64

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// chained makes a program that loads an object by a chain of links, and one that has no
// unwind tables. It writes a line and waits for its standard input to end.
func chained(t *testing.T) (program string) {
	t.Helper()
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	write(t, []byte("int f(void) { return 1; }\n"), dir, "f.c")
	write(t, []byte(".globl g\n.type g,@function\ng: ret\n.size g,.-g\n.section .note.GNU-stack\n"), dir, "g.s")
	write(t, []byte("#include <unistd.h>\nint f(void); void g(void);\nint main(void) { char c; g(); if (write(1, \"\\n\", f()) != 1) return 1; return (int)read(0, &c, 1); }\n"), dir, "m.c")
	gcc := func(args ...string) {
		cmd := exec.Command("gcc", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	gcc("-shared", "-fPIC", "-Wl,-soname,libf.so.1", "-o", "libf.so.1.2.3", "f.c")
	require.NoError(t, os.Symlink("libf.so.1.2.3", filepath.Join(dir, "libf.so.1.2")))
	require.NoError(t, os.Symlink("libf.so.1.2", filepath.Join(dir, "libf.so.1")))
	require.NoError(t, os.Symlink("libf.so.1", filepath.Join(dir, "libf.so")))
	gcc("-shared", "-nostdlib", "-Wl,-soname,libg.so", "-o", "libg-1.so", "g.s")
	require.NoError(t, os.Symlink("libg-1.so", filepath.Join(dir, "libg.so")))
	gcc("-o", "prog-1", "m.c", "-L.", "-lf", "-lg", "-Wl,-rpath,$ORIGIN")
	require.NoError(t, os.Symlink("prog-1", filepath.Join(dir, "prog")))
	return filepath.Join(dir, "prog")
}

// TestMappedNames: --deps and --pid make an eh_elf for everything that a process maps, by the name
// in /proc/PID/maps and by the one the loader asked for.
func TestMappedNames(t *testing.T) {
	prog := chained(t)
	cmd := exec.Command(prog)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Wait()
	defer in.Close()
	_, err = stdout.Read(make([]byte, 1)) // it has loaded all
	require.NoError(t, err)
	pid := strconv.Itoa(cmd.Process.Pid)
	maps, err := os.ReadFile("/proc/" + pid + "/maps")
	require.NoError(t, err)
	var mapped []string
	for line := range strings.Lines(string(maps)) {
		if f := strings.Fields(line); len(f) == 6 && strings.Contains(f[1], "x") && strings.HasPrefix(f[5], "/") {
			mapped = append(mapped, filepath.Base(f[5]))
		}
	}
	require.Contains(t, mapped, "libf.so.1.2.3")
	require.Contains(t, mapped, "libg-1.so")
	asked := []string{"libf.so.1", "libg.so", "libc.so.6"}

	for _, how := range [][]string{{"--deps", prog}, {"--pid", pid}} {
		out := filepath.Join(t.TempDir(), "out")
		args := append([]string{"build", "-o", out}, how...)
		r := ehasm(t, args...)
		require.Equal(t, exitDone, r.code, r.stderr)
		assert.Empty(t, r.stderr)
		assert.NotContains(t, r.stdout, "skipped")
		have := files(t, out)
		for _, name := range append(mapped, asked...) {
			assert.Contains(t, have, name+abi.Suffix, how[0])
		}
		if how[0] == "--deps" {
			assert.Contains(t, have, "libf.so.1.2"+abi.Suffix)
			assert.Contains(t, have, "prog"+abi.Suffix)
		}
		one, err := os.ReadFile(filepath.Join(out, "libf.so.1"+abi.Suffix))
		require.NoError(t, err)
		other, err := os.ReadFile(filepath.Join(out, "libf.so.1.2.3"+abi.Suffix))
		require.NoError(t, err)
		assert.True(t, bytes.Equal(one, other))
		info := ehasm(t, "info", filepath.Join(out, "libg-1.so"+abi.Suffix))
		assert.Contains(t, info.stdout, " 0 ranges, 0 distinct\n")
		again := ehasm(t, args...)
		assert.Equal(t, exitDone, again.code)
		assert.Equal(t, strings.Count(again.stdout, "\n")-2, strings.Count(again.stdout, "up to date"))
	}
	// No process maps what is only given or found in a folder.
	dir := filepath.Dir(prog)
	r := ehasm(t, "build", "-o", filepath.Join(t.TempDir(), "out"), filepath.Join(dir, "libg-1.so"))
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stderr, "no unwind tables")
}

// TestMappedNamesClash: a name that was not requested yields to one that was.
func TestMappedNamesClash(t *testing.T) {
	prog := chained(t)
	other := writeFile(t, filepath.Join(t.TempDir(), "libf.so.1.2.3"), smallELF(t, 0))
	out := filepath.Join(t.TempDir(), "out")
	for _, order := range [][]string{{prog, other}, {other, prog}} {
		r := ehasm(t, append([]string{"build", "--deps", "-o", out}, order...)...)
		require.Equal(t, exitDone, r.code, r.stderr)
		st, err := os.Lstat(filepath.Join(out, "libf.so.1.2.3"+abi.Suffix))
		require.NoError(t, err)
		assert.True(t, st.Mode().IsRegular(), "the mode of the file which was given")
	}
}
