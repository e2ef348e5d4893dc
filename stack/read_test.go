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
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

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

// TestReplaced: the file of a running program is replaced by another, with a build-id or without. The process's own
// file, which it still has, is used; for its core, none.
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

// mover moves the code of the program that preloads it into anonymous memory, at its own place.
const mover = `
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((constructor)) static void move(void) {
	char exe[4096] = "", line[8192], rights[8], path[4096];
	unsigned long start, end;
	readlink("/proc/self/exe", exe, sizeof exe - 1);
	FILE *f = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %s", &start, &end, rights, path) == 4 && rights[2] == 'x' && !strcmp(path, exe))
			break;
	fclose(f);
	void *copy = mmap(0, end - start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(copy, (void *)start, end - start);
	mprotect(copy, end - start, PROT_READ | PROT_EXEC);
	mremap(copy, end - start, end - start, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start);
}
`

// TestNoFile: code that was moved into anonymous memory, and a program in a memfd or that was deleted in /dev/shm, have
// their rows and names, in the process and in its core.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "waiter")
	compile := exec.Command("gcc", "-shared", "-fPIC", "-w", "-o", filepath.Join(dir, "mover.so"), "-x", "c", "-")
	compile.Stdin = strings.NewReader(mover)
	out, err := compile.CombinedOutput()
	require.NoError(t, err, "%s", out)
	first := waiter(program)
	first.Process.Kill()
	first.Wait()
	text, err := os.ReadFile(program)
	require.NoError(t, err)
	shm := fmt.Sprintf("/dev/shm/ehasm-test-%d", os.Getpid())
	memory, err := unix.MemfdCreate("waiter", 0)
	require.NoError(t, err)
	file := os.NewFile(uintptr(memory), "waiter")
	defer file.Close()
	_, err = file.Write(text)
	require.NoError(t, err)
	moved := exec.Command(program)
	moved.Env = append(os.Environ(), "LD_PRELOAD="+filepath.Join(dir, "mover.so"))
	for name, cmd := range map[string]*exec.Cmd{program: moved,
		"/memfd:waiter (deleted)": exec.Command(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), memory)),
		shm + " (deleted)":        exec.Command(shm)} {
		require.NoError(t, os.WriteFile(shm, text, 0o700))
		_, err := cmd.StdinPipe()
		require.NoError(t, err)
		from, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		defer cmd.Wait()
		defer cmd.Process.Kill()
		_, err = from.Read(make([]byte, 1)) // it waits
		require.NoError(t, err)
		require.NoError(t, os.Remove(shm))
		live, err := stack.ReadProcess(t.Context(), cmd.Process.Pid, stack.Options{})
		require.NoError(t, err)
		assert.Equal(t, []string{"work", "main", "_start"}, names(t, live, name), name)
		core := filepath.Join(dir, "core")
		out, err := exec.CommandContext(t.Context(), "gcore", "-o", core, fmt.Sprint(cmd.Process.Pid)).CombinedOutput()
		require.NoError(t, err, "%s", out)
		dead, err := stack.ReadCore(t.Context(), fmt.Sprintf("%s.%d", core, cmd.Process.Pid), "", stack.Options{})
		require.NoError(t, err)
		var functions []string
		for _, f := range dead.Threads[0].Frames {
			if f.Object == name {
				functions = append(functions, f.Function)
			}
		}
		assert.Len(t, functions, 3, name)
		assert.Equal(t, unwind.Outermost, dead.Threads[0].End, name)
		if name == program { // else there are only the names that are in memory
			assert.Equal(t, []string{"work", "main", "_start"}, functions)
		}
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

// TestNoSymbol: functions of a program without symbols are named by the object and where they start.
func TestNoSymbol(t *testing.T) {
	program := filepath.Join(t.TempDir(), "sleep")
	out, err := exec.Command("strip", "-o", program, "/bin/sleep").CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.Command(program, "1000")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	var named int
	require.Eventually(t, func() bool {
		target, err := stack.ReadProcess(t.Context(), cmd.Process.Pid, stack.Options{})
		require.NoError(t, err)
		for _, f := range target.Threads[0].Frames {
			if f.NoSymbol {
				named++
				assert.Regexp(t, `^sleep\+0x[0-9a-f]+$`, f.Function)
				assert.Equal(t, program, f.Object)
			}
		}
		return named > 0
	}, time.Minute, 10*time.Millisecond)
}
