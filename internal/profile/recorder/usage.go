//go:build linux && amd64

package recorder

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// This file measures the recorder itself: a process that runs for days should show its price.

// usage measures what this process takes from one call to the next. Its methods are safe for concurrent use.
type usage struct {
	mu    sync.Mutex
	since time.Time
	used  time.Duration // processor time up to then
}

func newUsage() *usage { return &usage{since: time.Now(), used: processorTime()} }

// text says how much of a processor this process has taken since the last call, and how much memory it takes.
func (u *usage) text() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	now, used := time.Now(), processorTime()
	share := 100 * float64(used-u.used) / float64(max(now.Sub(u.since), 1))
	u.since, u.used = now, used
	return fmt.Sprintf("recorder: %.1f %% of a CPU, %d MB", share, residentBytes()>>20)
}

// processorTime returns the processor time of all threads of this process, in user and kernel mode; 0: unknown.
func processorTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// residentBytes returns the memory of this process, without pages of files; 0: unknown.
func residentBytes() int64 {
	const resident, shared = 1, 2 // fields of proc(5), /proc/self/statm, in pages
	text, _ := os.ReadFile("/proc/self/statm")
	fields := bytes.Fields(text)
	if len(fields) <= shared {
		return 0
	}
	all, _ := strconv.ParseInt(string(fields[resident]), 10, 64)
	files, _ := strconv.ParseInt(string(fields[shared]), 10, 64)
	return (all - files) * int64(os.Getpagesize())
}
