//go:build linux && amd64

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRecordRawFull: a file that --raw cannot write whole keeps what it had; and one that it
// can is replaced, with its folder as it was.
func TestRecordRawFull(t *testing.T) {
	dir := t.TempDir()
	raw := writeFile(t, filepath.Join(dir, "raw"), []byte("keep"))
	sh := func(limit string) (string, int) {
		cmd := recordCommand(t, dir, "-q", "--cache=false", "-o", "p.folded", "--raw", raw, "sh", "-c", busy)
		cmd.Args = append([]string{"sh", "-c", limit + `exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	said, status := sh("ulimit -f 128; ") // the profile has some KB, the samples hundreds
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, said, "raw: cannot write: file too large")
	b, err := os.ReadFile(raw)
	require.NoError(t, err)
	assert.Equal(t, "keep", string(b))
	assert.Equal(t, []string{"p.folded", "raw"}, files(t, dir))

	said, status = sh("")
	assert.Zero(t, status, said)
	b, err = os.ReadFile(raw)
	require.NoError(t, err)
	assert.Equal(t, "PERFILE2", string(b[:8]))
	assert.Equal(t, []string{"p.folded", "raw"}, files(t, dir))
}

// TestRecordChains: perf and script see the same frames in a recording with call chains, which has no copies of
// stacks. If it cannot be written whole, what had its name stays.
func TestRecordChains(t *testing.T) {
	testtool.Need(t, "perf", "gcc")
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "deep.c"), []byte(deepProgram))
	out, err := exec.Command("gcc", "-O1", "-o", filepath.Join(dir, "deep"), filepath.Join(dir, "deep.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	file := writeFile(t, filepath.Join(dir, "x.perf.data"), []byte("keep"))
	require.NoError(t, os.Chmod(file, 0o600))
	flags := []string{"--cache=false", "-e", "page-faults,cpu-clock", "-o", file, "./deep"}
	cmd := recordCommand(t, dir, flags...)
	cmd.Args = append([]string{"sh", "-c", `ulimit -f 2; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	said, _ := cmd.CombinedOutput()
	assert.Equal(t, exitFailed, cmd.ProcessState.ExitCode(), "%s", said)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "keep", string(b))

	r := recordIn(t, dir, flags...)
	assert.Zero(t, r.code, r.stderr)
	assert.Contains(t, r.stderr, "perf report -i "+file)
	assert.Equal(t, []string{"deep", "deep.c", "x.perf.data"}, files(t, dir))
	st, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), st.Mode().Perm())
	want := ehasm(t, "script", "-q", "--comm", "measured", "-i", file)
	require.Zero(t, want.code, want.stderr)
	assert.Contains(t, want.stdout, " touch")
	assert.Contains(t, want.stdout, " main+")
	assert.Contains(t, want.stdout, "page-faults: ")
	assert.Equal(t, framesOf(want.stdout),
		framesOf(perfIn(t, dir, "script", "--no-inline", "--max-stack", "1024", "--comms", "measured", "-F", "ip,sym", "-i",
			file)))
	assert.Contains(t, perfIn(t, dir, "report", "--stdio", "--no-inline", "-i", file), " touch")
}

// compiler is a program that compiles at run time: it writes a jitdump file, maps it as
// perf wants it, and runs the code for half a second.
const compiler = `
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xb9, 0x40, 0x42, 0x0f, 0, 0xff, 0xc9, 0x75, 0xfc, 0x5d, 0xc3}; /* a loop, with a frame pointer */
int main(void) {
	char name[64];
	snprintf(name, sizeof name, "jit-%d.dump", getpid());
	int fd = open(name, O_CREAT | O_TRUNC | O_RDWR, 0600);
	uint32_t head[10] = {0x4a695444, 1, 40, 62, 0, getpid()};
	write(fd, head, sizeof head);
	mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	char *at = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(at, code, sizeof code);
	static const char symbol[] = "made_at_run_time";
	struct { uint32_t id, size; uint64_t time; uint32_t pid, tid; uint64_t vma, addr, bytes, index; } load =
		{0, sizeof load + sizeof symbol + sizeof code, 0, getpid(), getpid(), (uintptr_t)at, (uintptr_t)at, sizeof code, 1};
	write(fd, &load, sizeof load); write(fd, symbol, sizeof symbol); write(fd, at, sizeof code);
	for (clock_t end = clock() + CLOCKS_PER_SEC / 2; clock() < end;) ((void (*)(void))at)();
}`

// TestRecordJITDump: code that is compiled at run time has the names of its jitdump file, for record
// and for script.
func TestRecordJITDump(t *testing.T) {
	dir := t.TempDir()
	build := exec.Command("gcc", "-O1", "-w", "-x", "c", "-o", filepath.Join(dir, "jit"), "-")
	build.Stdin = strings.NewReader(compiler)
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	r := recordIn(t, dir, "-o", "p.folded", "--raw", "raw.data", "--", "./jit")
	require.Zero(t, r.code, r.stderr)
	folded, err := os.ReadFile(filepath.Join(dir, "p.folded"))
	require.NoError(t, err)
	assert.Contains(t, string(folded), "made_at_run_time")
	script := ehasm(t, "script", "-q", "--format", "folded", "-i", filepath.Join(dir, "raw.data"))
	require.Zero(t, script.code, script.stderr)
	assert.Contains(t, script.stdout, "made_at_run_time")
}
