//go:build linux

package docs

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReadmeExamples: the programs in the README are those of examples, which tests run.
func TestReadmeExamples(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	found := 0
	for _, b := range blocks(string(text)) {
		if len(b.info) != 2 {
			continue
		}
		found++
		name := b.info[1]
		example, err := os.ReadFile(filepath.Join("..", "examples", strings.TrimSuffix(name, filepath.Ext(name)), name))
		require.NoError(t, err)
		assert.Equal(t, string(example), b.text, name)
	}
	assert.NotZero(t, found)
}

// TestExampleCompile runs examples/compile: it writes a file that ehasm prove accepts, and says
// what is wrong otherwise.
func TestExampleCompile(t *testing.T) {
	dir := t.TempDir()
	program, object := filepath.Join(dir, "compile"), filepath.Join(dir, "true")
	output := func(name string, args ...string) (string, int) {
		cmd := exec.Command(name, args...)
		out, err := cmd.CombinedOutput()
		require.NotNil(t, cmd.ProcessState, "%v", err)
		return string(out), cmd.ProcessState.ExitCode()
	}
	out, code := output("go", "build", "-o", program, "../examples/compile")
	require.Zero(t, code, out)
	image, err := os.ReadFile("/bin/true")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(object, image, 0o755))

	out, code = output(program, object)
	assert.Zero(t, code, out)
	assert.Regexp(t, `^\d+ rows, proven: true\n$`, out)
	out, code = output("go", "run", "../cmd/ehasm", "prove", object+abi.Suffix)
	assert.Zero(t, code, out)

	out, code = output(program)
	assert.Equal(t, 2, code)
	assert.Equal(t, "usage: compile OBJECT\n", out)
	out, code = output(program, "compile.go")
	assert.Equal(t, 1, code)
	assert.Equal(t, 1, strings.Count(out, "\n"), out)
}

// gdbStacks prints the stacks of all threads as examples/stacks does. Frames of libraries have no
// name, and inlined functions of theirs no line: that depends on whether their debug information is
// installed. gdb also shows functions that left by a jump; no return address is theirs.
const gdbStacks = `
import gdb
gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
for thread in sorted(gdb.selected_inferior().threads(), key=lambda t: t.ptid[1]):
    thread.switch()
    print("thread", thread.ptid[1])
    frame = gdb.newest_frame()
    while frame:
        own = gdb.solib_name(frame.pc()) is None
        if frame.type() != gdb.TAILCALL_FRAME and (own or frame.type() != gdb.INLINE_FRAME):
            print("%#x" % frame.pc(), frame.name() if own else "-")
        frame = frame.older()
`

// TestExampleStacks runs examples/stacks beside gdb: on all stacks, the same pcs and functions.
func TestExampleStacks(t *testing.T) {
	dir := t.TempDir()
	example, target, script := filepath.Join(dir, "stacks"), filepath.Join(dir, "target"), filepath.Join(dir,
		"stacks.py")
	require.NoError(t, os.WriteFile(script, []byte(gdbStacks), 0o666))
	for _, args := range [][]string{{"go", "build", "-o", example, "../examples/stacks"},
		{"gcc", "-g", "-O1", "-pthread", "-o", target, "../cmd/ehasm/testdata/stacks.c"}} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	cmd := exec.Command(target)
	from, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	_, err = bufio.NewReader(from).ReadString('\n')
	require.NoError(t, err)
	pid := strconv.Itoa(cmd.Process.Pid)
	testtool.WaitBlocked(t, cmd.Process.Pid, 6)

	said, err := exec.Command("gdb", "-q", "-batch", "-iex", "set debuginfod enabled off", "-p", pid, "-x",
		script).Output()
	require.NoError(t, err)
	// again: a system call that gdb has interrupted begins anew once the thread gets a CPU
	testtool.WaitBlocked(t, cmd.Process.Pid, 6)
	_, list, found := strings.Cut(string(said), "\nthread ")
	require.True(t, found, "%s", said)
	list, _, _ = strings.Cut(list, "\n[Inferior ")
	var want, have []string
	nameless := make(map[string]bool)
	for line := range strings.Lines("thread " + list) {
		want = append(want, strings.TrimSpace(line))
		pc, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		nameless[pc] = name == "-"
	}
	// A thread with a deep stack is stopped twice. The second time it may be on the way back to its system call.
	for range 10 {
		if have = exampleStacks(t, example, pid, nameless); slices.Equal(have, want) {
			break
		}
		testtool.WaitBlocked(t, cmd.Process.Pid, 6)
	}
	require.Len(t, have, len(want))
	for i, line := range want {
		require.Equal(t, line, have[i], "line %d", i)
	}
	assert.Greater(t, len(want), 300)
	assert.Contains(t, strings.Join(want, "\n"), " inner\n")

	for args, want := range map[string]string{"": "usage: stacks PID\n", "x": "usage: stacks PID\n",
		"2147483647": "stacks: process 2147483647: there is no such process\n"} {
		out, err := exec.Command(example, strings.Fields(args)...).CombinedOutput()
		assert.Error(t, err)
		assert.Equal(t, want, string(out))
	}
}

// exampleStacks runs the example, and returns its lines as those of gdb are.
func exampleStacks(t *testing.T, example, pid string, nameless map[string]bool) (list []string) {
	t.Helper()
	got, err := exec.Command(example, pid).CombinedOutput()
	require.NoError(t, err, "%s", got)
	for line := range strings.Lines(string(got)) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), ":")
		if pc, _, _ := strings.Cut(line, " "); nameless[pc] {
			line = pc + " -"
		}
		if line != "outermost frame" && (!strings.HasSuffix(line, " -") || line != list[len(list)-1]) {
			list = append(list, line)
		}
	}
	return list
}
