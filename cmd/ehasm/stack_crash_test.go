//go:build linux && amd64

package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// crashHandler starts ehasm as the kernel does for a process that crashes: the core comes by a pipe, and there is
// neither an environment nor an output. It returns the messages.
func crashHandler(t *testing.T, core io.Reader, args ...string) (stderr string, code int) {
	t.Helper()
	cmd := exec.Command(goBuild(t), append([]string{"stack", "--core-pattern"}, args...)...)
	cmd.Env, cmd.Dir = []string{}, "/"
	from, to, err := os.Pipe()
	require.NoError(t, err)
	var messages bytes.Buffer
	cmd.Stdin, cmd.Stderr = from, &messages
	require.NoError(t, cmd.Start())
	from.Close()
	io.Copy(to, core) // an error means that it reads no more
	to.Close()
	cmd.Wait()
	return messages.String(), cmd.ProcessState.ExitCode()
}

// TestStackCorePattern: the report of a process that the kernel holds has the stacks that eu-stack
// finds in its core and the registers that gdb does; another handler gets the same core.
func TestStackCorePattern(t *testing.T) {
	program, pid := startStacks(t, 0, "-g")
	dir := t.TempDir()
	core := filepath.Join(dir, "core")
	out, err := exec.Command("gcore", "-o", core, fmt.Sprint(pid)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	core += fmt.Sprintf(".%d", pid)
	bytesOf, err := os.ReadFile(core)
	require.NoError(t, err)
	want := euStack(t, "-p", fmt.Sprint(pid))
	pids := []string{fmt.Sprint(pid), fmt.Sprint(pid)}

	reports, copied := filepath.Join(dir, "reports"), filepath.Join(dir, "copied")
	stderr, code := crashHandler(t, bytes.NewReader(bytesOf), append([]string{"-o", reports}, pids...)...)
	require.Zero(t, code, stderr)
	text := onlyReport(t, reports, ".txt")
	for tid, list := range want {
		assert.Equal(t, list[:min(len(list), 256)], pcsOf(text)[tid])
	}
	assert.Regexp(t, fmt.Sprintf(`(?m)^core of process %d \(stacks\): `, pid), text)
	assert.Contains(t, text, "thread "+fmt.Sprint(pid)+" (stacks):\n#0 ")
	assert.Contains(t, text, `(a;\x1b[1mb):`)
	assert.Contains(t, text, " interrupted+0x")
	assert.NotContains(t, text, "\x1b")
	for name, value := range gdbRegisters(t, core) {
		assert.Regexp(t, fmt.Sprintf(`(?m)\b%-3s %016x`, name, value), text)
	}
	checkCode(t, pid, text)
	notes, err := exec.Command("readelf", "-n", program).Output()
	require.NoError(t, err)
	assert.Contains(t, text, " "+regexp.MustCompile(`Build ID: ([0-9a-f]+)`).FindStringSubmatch(string(notes))[1]+" "+
		program+"\n")

	reports = filepath.Join(dir, "json")
	stderr, code = crashHandler(t, bytes.NewReader(bytesOf),
		append(append([]string{"-o", reports, "--format=json"}, pids...), "--", "/bin/sh", "-c", "cat >$0", copied)...)
	require.Zero(t, code, stderr)
	testCrashJSON(t, want, onlyReport(t, reports, ".json"))
	passed, err := os.ReadFile(copied)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(bytesOf, passed), "%d of %d bytes", len(passed), len(bytesOf))

	for _, c := range []struct {
		core []byte
		args []string
		want string
	}{
		{nil, pids, "core cut short: 0 bytes"},
		{[]byte("no core"), pids, "not a core file of an x86-64 program: it has 7 bytes"},
		{bytesOf[:1000], pids, "core cut short: 1000 bytes"},
		{bytesOf, []string{"2147483647", "2147483647"}, "there is no such process"},
		{bytesOf, append(pids, "--", "/absent/handler"), "handler: "},
		{bytesOf, append(pids, "--", "/bin/sh", "-c", "exit 3"), "handler /bin/sh: exit status 3"},
	} {
		stderr, code := crashHandler(t, bytes.NewReader(c.core),
			append([]string{"-o", filepath.Join(dir, "wrong")}, c.args...)...)
		assert.Equal(t, exitFailed, code)
		assert.Contains(t, stderr, c.want)
	}
	stderr, code = crashHandler(t, strings.NewReader("no core"),
		append(append([]string{"-o", reports}, pids...), "--", "/bin/sh", "-c", "cat >$0", copied)...)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stderr, "not a core")
	passed, err = os.ReadFile(copied)
	require.NoError(t, err)
	assert.Equal(t, "no core", string(passed), "the other handler gets what there is")
}

// TestStackCorePatternLog: the kernel starts handlers without outputs. A failure then has its line in the kernel's log,
// if the handler may write there, and its usual status.
func TestStackCorePatternLog(t *testing.T) {
	const folder = "/dev/null/crashes"
	shell := exec.Command("/bin/sh", "-c", `echo no core | "$0" stack --core-pattern -o `+folder+` 2147483646 1 >&- 2>&-`,
		goBuild(t))
	err := shell.Run()
	require.Equal(t, exitFailed, shell.ProcessState.ExitCode(), "%v", err)
	log, err := unix.Open(kernelLog, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil || unix.Access(kernelLog, unix.W_OK) != nil {
		return // not root, or in a container
	}
	defer unix.Close(log)
	var text strings.Builder
	for b := make([]byte, 8<<10); ; { // a read returns a line
		n, err := unix.Read(log, b)
		if err == unix.EPIPE {
			continue // lines were overwritten
		}
		if err != nil {
			break
		}
		text.Write(b[:n])
	}
	assert.Contains(t, text.String(),
		";ehasm: crash of process 2147483646: not a core file of an x86-64 program: it has 8 bytes\n")
}

// onlyReport returns the one report in a folder.
func onlyReport(t *testing.T, folder, suffix string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "crash-*"+suffix))
	require.NoError(t, err)
	require.Len(t, paths, 1)
	b, err := os.ReadFile(paths[0])
	require.NoError(t, err)
	assert.Less(t, len(b), 64<<10)
	return string(b)
}

// gdbRegisters returns what gdb says of the registers of a core's first thread.
func gdbRegisters(t *testing.T, core string) map[string]uint64 {
	t.Helper()
	out, err := exec.Command("gdb", "-q", "-batch", "-iex", "set debuginfod enabled off", "-ex",
		"info registers rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip", "-c", core).Output()
	require.NoError(t, err)
	registers := make(map[string]uint64)
	for _, m := range regexp.MustCompile(`(?m)^(r\w+) +(0x[0-9a-f]+)`).FindAllStringSubmatch(string(out), -1) {
		var n uint64
		_, err := fmt.Sscan(m[2], &n)
		require.NoError(t, err)
		registers[m[1]] = n
	}
	require.Len(t, registers, 17)
	return registers
}

// checkCode compares the code in a report with the process's memory.
func checkCode(t *testing.T, pid int, text string) {
	t.Helper()
	m := regexp.MustCompile(`(?m)^code at (0x[0-9a-f]+): ([0-9a-f]+) > ([0-9a-f]+)$`).FindStringSubmatch(text)
	require.NotNil(t, m, text)
	var start int64
	_, err := fmt.Sscan(m[1], &start)
	require.NoError(t, err)
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	require.NoError(t, err)
	defer mem.Close()
	b := make([]byte, 64)
	_, err = mem.ReadAt(b, start)
	require.NoError(t, err)
	assert.Equal(t, hex.EncodeToString(b), m[2]+m[3])
	rip := regexp.MustCompile(`(?m)^rip ([0-9a-f]+)$`).FindStringSubmatch(text)
	require.NotNil(t, rip)
	assert.Equal(t, rip[1], fmt.Sprintf("%016x", start+32))
}

func testCrashJSON(t *testing.T, want map[string][]string, text string) {
	t.Helper()
	var report struct {
		Registers map[string]string
		Threads   []struct {
			TID    int
			Frames []struct{ PC, Function, Object string }
		}
		Objects []struct {
			Name    string
			BuildID string `json:"build_id"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &report))
	pcs := make(map[string][]string)
	for _, th := range report.Threads {
		for _, f := range th.Frames {
			var n uint64
			_, err := fmt.Sscan(f.PC, &n)
			require.NoError(t, err)
			pcs[fmt.Sprint(th.TID)] = append(pcs[fmt.Sprint(th.TID)], fmt.Sprintf("%#016x", n))
		}
	}
	for tid, list := range want {
		assert.Equal(t, list[:min(len(list), 256)], pcs[tid])
	}
	assert.Len(t, report.Registers, 17)
	assert.Len(t, report.Objects[0].BuildID, 40)
}
