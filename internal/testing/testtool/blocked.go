package testtool

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// WaitBlocked waits until all threads of a process are blocked in a read, a lock or pause. threads is how many they
// are. A look at a thread interrupts its system call, which begins anew once the thread has a CPU for a moment.
func WaitBlocked(t testing.TB, pid, threads int) {
	t.Helper()
	const hang = time.Minute
	require.Eventually(t, func() bool {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil || len(tasks) != threads {
			return false
		}
		for _, task := range tasks {
			if !isBlocked(task) {
				return false
			}
		}
		return true
	}, hang, time.Millisecond)
}

// isBlocked reports whether the thread of a folder of /proc sleeps in one of the system calls. A thread that is stopped
// or wakes up has the system call's number, too.
func isBlocked(task string) bool {
	stat, err1 := os.ReadFile(filepath.Join(task, "stat"))
	call, err2 := os.ReadFile(filepath.Join(task, "syscall"))
	number, _, _ := strings.Cut(string(call), " ")
	const read, pause, futex = "0", "34", "202"
	return err1 == nil && err2 == nil && strings.Contains(string(stat), ") S ") &&
		slices.Contains([]string{read, pause, futex}, number)
}
