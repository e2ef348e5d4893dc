//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// manyFiles makes a folder of n large objects, no two of which are equal.
func manyFiles(t *testing.T, n int) string {
	t.Helper()
	content, err := os.ReadFile(goBuild(t))
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "in")
	for i := range n {
		writeFile(t, filepath.Join(dir, fmt.Sprintf("f%02d", i)), append(bytes.Clone(content), byte(i)))
	}
	return dir
}

// TestInterrupt sends SIGINT in the middle: one line, status 130, no temporary
// file, and what is there is whole.
func TestInterrupt(t *testing.T) {
	prog := goBuild(t)
	in := manyFiles(t, 40)
	for _, after := range []int{0, 1, 3} {
		out := filepath.Join(t.TempDir(), "out")
		cmd := exec.Command(prog, "build", "-j", "2", "-o", out, in)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		require.NoError(t, cmd.Start())
		for { // until enough files are written
			entries, _ := os.ReadDir(out)
			done := 0
			for _, e := range entries {
				if strings.HasSuffix(e.Name(), ".eh_elf.so") {
					done++
				}
			}
			if done >= after && entries != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		cmd.Wait()
		assert.Equal(t, 130, cmd.ProcessState.ExitCode())
		assert.Equal(t, fmt.Sprintf("ehasm: interrupted: %d of 40 files are built\n", len(files(t, out))),
			stderr.String(), "what is said to be built is there")
		assert.Empty(t, stdout.String())
		for _, name := range files(t, out) {
			require.True(t, strings.HasSuffix(name, ".eh_elf.so"), name)
			f, err := os.Open(filepath.Join(out, name))
			require.NoError(t, err)
			_, err = elfout.ReadInfo(f)
			f.Close()
			assert.NoError(t, err, name)
		}
	}
}

func TestInterruptedContext(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a.so"), smallELF(t, 0))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r := ehasmContext(t, ctx, "build", dir)
	assert.Equal(t, result{exitFailed, "", "ehasm: interrupted: 0 of 0 files are built\n"}, r)
	assert.Equal(t, []string{"a.so"}, files(t, dir))
}

// TestJobs: the bytes do not depend on -j.
func TestJobs(t *testing.T) {
	in := manyFiles(t, 4)
	for i := range 8 {
		writeFile(t, filepath.Join(in, "small", fmt.Sprint(i)), smallELF(t, byte(i)))
	}
	var first map[string]string
	for _, jobs := range []string{"1", "2", "7"} {
		out := filepath.Join(t.TempDir(), "out")
		r := ehasm(t, "build", "-j", jobs, "-o", out, in)
		require.Equal(t, exitDone, r.code, r.stderr)
		got := make(map[string]string)
		for _, name := range files(t, out) {
			b, err := os.ReadFile(filepath.Join(out, name))
			require.NoError(t, err)
			got[name] = string(b)
		}
		require.Len(t, got, 12)
		if first == nil {
			first = got
		}
		for name := range first {
			assert.True(t, first[name] == got[name], "-j %s: %s differs", jobs, name)
		}
	}
}

// failWriter fails as a closed pipe or a full disk does.
type failWriter struct{ err error }

func (w failWriter) Write([]byte) (int, error) { return 0, w.err }

func TestStdoutFails(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "a.so"), smallELF(t, 0))
	for _, args := range [][]string{{"build", file}, {"build", "--json", file}, {"dump", file},
		{"info", file + ".eh_elf.so"}, {"version"}, {"help"}} {
		var stderr bytes.Buffer
		code := run(context.Background(), args, failWriter{syscall.ENOSPC}, &stderr)
		assert.Equal(t, exitFailed, code, "%q", args)
		assert.Equal(t, "ehasm: standard output: no space left on device\n", stderr.String(), "%q", args)

		stderr.Reset()
		code = run(context.Background(), args, failWriter{syscall.EPIPE}, &stderr)
		assert.Equal(t, exitFailed, code, "%q", args)
		assert.Empty(t, stderr.String(), "no process listens any more: %q", args)
	}
}

// TestClosedPipe is "ehasm ... | head": all is written, nothing is said.
func TestClosedPipe(t *testing.T) {
	prog := goBuild(t)
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "a.so"), smallELF(t, 0))
	for _, args := range [][]string{{"build", file}, {"dump", "--stage=rows", prog}} {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, r.Close())
		cmd := exec.Command(prog, args...)
		var stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = w, &stderr
		cmd.Run()
		w.Close()
		assert.Empty(t, stderr.String())
	}
	assert.FileExists(t, file+".eh_elf.so")

	// Closed from the start: no file gets the table in its place.
	cmd := exec.Command("/bin/sh", "-c", `exec "$0" build --force "$1" >&- 2>&-`, prog, file)
	cmd.Run()
	f, err := os.Open(file + ".eh_elf.so")
	require.NoError(t, err)
	defer f.Close()
	_, err = elfout.ReadInfo(f)
	assert.NoError(t, err)
}

// TestJSON: the document is whole, failures included.
func TestJSON(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "a.so"), smallELF(t, 0))
	require.NoError(t, os.Symlink("a.so", filepath.Join(dir, "b.so")))
	text := writeFile(t, filepath.Join(dir, "text"), []byte("text"))
	r := ehasm(t, "build", "--json", dir, text, filepath.Join(dir, "gone"))
	assert.Equal(t, exitFailed, r.code)
	var doc struct {
		Files []struct {
			File, Status, Output, Error, Section string
			Links                                []string
			FDEs, Rows                           int
			Distinct                             int   `json:"distinct_rows"`
			TableBytes                           int64 `json:"table_bytes"`
			CodeBytes                            int64 `json:"code_bytes"`
			LeftOut                              []any `json:"left_out"`
			Ratio                                float64
		}
		Skipped map[string]int
		Errors  []string
		Total   struct{ Files, FDEs int }
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &doc), r.stdout)
	require.Len(t, doc.Files, 2)
	f := doc.Files[0]
	assert.Equal(t, file, f.File)
	assert.Equal(t, "built", f.Status)
	assert.Equal(t, file+".eh_elf.so", f.Output)
	assert.Equal(t, []string{filepath.Join(dir, "b.so.eh_elf.so")}, f.Links)
	assert.Equal(t, []int{2, 7, 3}, []int{f.FDEs, f.Rows, f.Distinct})
	assert.Equal(t, int64(92), f.TableBytes)
	assert.NotNil(t, f.LeftOut)
	assert.InDelta(t, float64(f.CodeBytes)/92, f.Ratio, 1e-9)
	assert.Equal(t, "failed", doc.Files[1].Status)
	assert.Equal(t, "not an ELF file", doc.Files[1].Error)
	assert.Len(t, doc.Errors, 2)
	assert.Equal(t, strings.Count(r.stderr, "\n"), len(doc.Errors))
	assert.Equal(t, 1, doc.Total.Files)
}

// TestEverything runs the main job: a program with all it loads, and the vDSO;
// then what this process has mapped.
func TestEverything(t *testing.T) {
	testtool.Need(t, "ls")
	if _, err := os.Stat("/proc/self/maps"); err != nil {
		t.Skip("needs /proc")
	}
	ls, err := exec.LookPath("ls")
	require.NoError(t, err)
	out := filepath.Join(t.TempDir(), "out")
	r := ehasm(t, "build", "--deps", "--vdso", "-o", out, ls)
	assert.Equal(t, exitDone, r.code)
	assert.Empty(t, r.stderr)
	names := files(t, out)
	for _, want := range []string{"ls", "libc.so.6", "ld-linux-x86-64.so.2", "linux-vdso.so.1"} {
		assert.Contains(t, names, want+".eh_elf.so")
	}

	out = filepath.Join(t.TempDir(), "pid")
	r = ehasm(t, "build", "--pid", fmt.Sprint(os.Getpid()), "-o", out)
	assert.Equal(t, exitDone, r.code)
	assert.Empty(t, r.stderr)
	assert.Contains(t, files(t, out), "linux-vdso.so.1.eh_elf.so")
}

// onTerminal runs a command whose standard error is a terminal, and what else it
// has not set; it returns what is written there.
func onTerminal(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	master, slave := openTerminal(t)
	cmd.Stderr = slave
	cmd.Env = append(cmd.Environ(), "TERM=xterm") // whatever the tests' own is
	if cmd.Stdout == nil {
		cmd.Stdout = slave
	}
	require.NoError(t, cmd.Start())
	slave.Close()
	screen, err := io.ReadAll(master)
	if err != nil && !errors.Is(err, syscall.EIO) { // EIO: the other side is closed
		t.Fatal(err)
	}
	cmd.Wait()
	return string(screen)
}

// TestProgressBar runs on a terminal.
func TestProgressBar(t *testing.T) {
	prog := goBuild(t)
	in := manyFiles(t, 4)
	writeFile(t, filepath.Join(in, "cut"), smallELF(t, 0)[:300])
	call := func(args ...string) string {
		cmd := exec.Command(prog, append([]string{"build", "-o", filepath.Join(t.TempDir(), "out"), in}, args...)...)
		screen := onTerminal(t, cmd)
		assert.Equal(t, exitDone, cmd.ProcessState.ExitCode())
		return screen
	}
	screen := call()
	assert.Contains(t, screen, "compiling")
	assert.Contains(t, screen, "/5")
	assert.Regexp(t, `\rehasm: [^\r\n]*cut: truncated`, screen, "an own line")
	for _, flag := range []string{"-q", "--json"} {
		screen = call(flag)
		assert.NotContains(t, screen, "compiling")
		assert.Equal(t, flag != "-q", strings.Contains(screen, "cut: truncated"), "no failure, so that -q is silent")
	}
}
