//go:build linux && amd64

package stack_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/stack"
	"github.com/ehasm/ehasm/unwind"
)

// names returns the functions of a program on the stack of the one thread, inlined ones too.
func names(t *testing.T, target *stack.Target, program string) (list []string) {
	t.Helper()
	require.Len(t, target.Threads, 1)
	th := target.Threads[0]
	assert.Equal(t, unwind.Outermost, th.End)
	require.Len(t, th.Frames, len(th.PCs))
	for i, f := range th.Frames {
		assert.Equal(t, th.PCs[i], f.PC)
		if f.Object != program {
			continue
		}
		for _, in := range f.Inlined {
			list = append(list, in.Function)
		}
		list = append(list, f.Function)
	}
	return list
}

// TestRead: a process and its core have the same stacks; --consistent and plain do, too.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "waiter")
	cmd := waiter(program)
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	pid := cmd.Process.Pid
	core := filepath.Join(dir, "core")
	out, err := exec.Command("gcore", "-o", core, fmt.Sprint(pid)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	core += fmt.Sprintf(".%d", pid)

	for _, opt := range []stack.Options{{Lines: true}, {Lines: true, Consistent: true}} {
		live, err := stack.ReadProcess(t.Context(), pid, opt)
		require.NoError(t, err)
		assert.Equal(t, []string{"wait", "work", "main", "_start"}, names(t, live, program))
		assert.NotZero(t, live.Threads[0].Stopped)
		dead, err := stack.ReadCore(t.Context(), core, "", opt)
		require.NoError(t, err)
		assert.Equal(t, []string{"wait", "work", "main", "_start"}, names(t, dead, program))
		assert.Equal(t, int32(pid), dead.PID)
	}
	live, err := stack.ReadProcess(t.Context(), pid, stack.Options{})
	require.NoError(t, err)
	assert.Equal(t, []string{"work", "main", "_start"}, names(t, live, program))
	moved := filepath.Join(dir, "moved")
	require.NoError(t, os.Rename(program, moved))
	dead, err := stack.ReadCore(t.Context(), core, moved, stack.Options{})
	require.NoError(t, err)
	assert.Equal(t, []string{"work", "main", "_start"}, names(t, dead, program))
	_, err = stack.ReadCore(t.Context(), core, "/bin/true", stack.Options{})
	assert.ErrorIs(t, err, unwind.ErrReplaced)
}

// TestReplaced: the file of a running program is replaced by another, with a build-id or without. The process's own file, which
// it still has, is used; for its core, none.
func TestReplaced(t *testing.T) {
	for _, id := range [][2]string{{"sha1", "none"}, {"none", "sha1"}, {"none", "none"}} {
		dir := t.TempDir()
		program := filepath.Join(dir, "waiter")
		build := func(path, id, define string) {
			out, err := exec.Command("gcc", "-g", "-O0", define, "-Wl,--build-id="+id, "-o", path, program+".c").CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
		cmd := waiterOf(program, "-Wl,--build-id="+id[0])
		defer cmd.Wait()
		defer cmd.Process.Kill()
		build(program+".new", id[1], "-Dwork=other")
		core := filepath.Join(dir, "core")
		out, err := exec.Command("gcore", "-o", core, fmt.Sprint(cmd.Process.Pid)).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NoError(t, os.Rename(program, program+".old"))
		require.NoError(t, os.Rename(program+".new", program))

		live, err := stack.ReadProcess(t.Context(), cmd.Process.Pid, stack.Options{})
		require.NoError(t, err)
		assert.Equal(t, []string{"work", "main", "_start"}, names(t, live, program+".old"), id)
		core += fmt.Sprint(".", cmd.Process.Pid)
		dead, err := stack.ReadCore(t.Context(), core, "", stack.Options{})
		require.NoError(t, err)
		for _, f := range dead.Threads[0].Frames {
			assert.False(t, f.Object == program && f.Function != "", "%v: %v", id, f)
		}
		dead, err = stack.ReadCore(t.Context(), core, program+".old", stack.Options{})
		require.NoError(t, err)
		assert.Equal(t, []string{"work", "main", "_start"}, names(t, dead, program), id)
		_, err = stack.ReadCore(t.Context(), core, program, stack.Options{})
		assert.ErrorContains(t, err, "not the program of the core", id)
	}
}

// TestReadWrong: errors are one line, and say what is wrong.
func TestReadWrong(t *testing.T) {
	for pid, want := range map[int]string{0: "want a number from 1", -1: "want a number from 1",
		1 << 31: "want a number from 1", 1<<31 - 1: "there is no such process"} {
		target, err := stack.ReadProcess(t.Context(), pid, stack.Options{})
		assert.Nil(t, target)
		assert.ErrorContains(t, err, fmt.Sprintf("process %d: %s", pid, want))
	}
	_, err := stack.ReadCore(t.Context(), "read_test.go", "", stack.Options{})
	assert.ErrorIs(t, err, stack.ErrNotCore)
	assert.False(t, strings.Contains(err.Error(), "\n"))
	_, err = stack.ReadCore(t.Context(), t.TempDir(), "", stack.Options{})
	assert.ErrorContains(t, err, "no regular file")
	_, err = stack.ReadCore(t.Context(), "absent", "", stack.Options{})
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestReadKeepsNothing: a program that looks at processes again and again does not grow.
func TestReadKeepsNothing(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	heap := func(reads int) int64 {
		for range reads {
			_, err := stack.ReadProcess(context.Background(), cmd.Process.Pid, stack.Options{})
			require.NoError(t, err)
		}
		runtime.GC()
		runtime.GC() // the first may only have found what ends with a cleanup
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const reads, most = 20, 4 << 20 // a process of libc alone takes 1 MB
	first := heap(1)
	assert.Less(t, heap(reads)-first, int64(most))
}
