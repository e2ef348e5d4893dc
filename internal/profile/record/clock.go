//go:build linux && amd64

package record

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// clock tells the time of the kernel's records: CLOCK_MONOTONIC of the machine, which cannot be set and which stands
// still while the machine is suspended. In a time namespace this process sees that clock moved: time_namespaces(7).
type clock struct {
	moved int64 // ns
}

// newClock returns the clock of this process's time namespace.
func newClock() clock {
	const own = "/proc/self/ns/time"
	here, err := os.Readlink(own)
	children, childErr := os.Readlink(own + "_for_children")
	if err != nil || childErr != nil || here != children { // there is none, or it is for programs that this one starts
		return clock{}
	}
	b, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil {
		return clock{}
	}
	return clock{moved: parseOffset(string(b))}
}

// parseOffset returns how far the text of /proc/self/timens_offsets moves CLOCK_MONOTONIC, in ns.
func parseOffset(text string) int64 {
	for line := range strings.Lines(text) {
		var name string
		var sec, nsec int64
		if n, _ := fmt.Sscan(line, &name, &sec, &nsec); n == 3 &&
			(name == "monotonic" || name == fmt.Sprint(unix.CLOCK_MONOTONIC)) {
			return sec*int64(time.Second) + nsec
		}
	}
	return 0
}

// now returns the time in ns.
func (c clock) now() (uint64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, fmt.Errorf("clock_gettime: %w", err)
	}
	return uint64(t.Nano() - c.moved), nil
}

// wall returns when it was some time of this clock, by the clock on the wall.
func (c clock) wall(when uint64) time.Time {
	now, err := c.now()
	if err != nil {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(when - now))
}
