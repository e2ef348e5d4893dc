package procfs

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Started returns when a process began, to a hundredth of a second, by today's setting of the clock; zero: that is not
// known. The kernel counts from boot, time in suspension included, so what the clock said at the time does not matter.
func Started(pid int32) time.Time {
	const field, ticks = 22 - 3, 100 // starttime of proc_pid_stat(5), after the name; USER_HZ
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	words := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var now unix.Timespec
	if len(words) <= field || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return time.Time{}
	}
	start, err := strconv.ParseInt(words[field], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(start)*(time.Second/ticks) - time.Duration(now.Nano()))
}
