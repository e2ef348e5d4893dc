//go:build linux && amd64

package perfevent

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/ehasm/ehasm/internal/files/procfs"

	"golang.org/x/sys/unix"
)

// Refusal says why the kernel refused a call, and what helps.
type Refusal struct {
	Call   string // what was refused
	Err    error
	Reason string // "" if Err says it all
	Remedy string // "" if nothing is known to help
}

// Error returns all that is known, in a line.
func (r *Refusal) Error() string {
	text := fmt.Sprintf("%s: %v", r.Call, r.Err)
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	if r.Remedy != "" {
		text += "; " + r.Remedy
	}
	return text
}

// Unwrap returns the error number.
func (r *Refusal) Unwrap() error { return r.Err }

// host holds the facts that explain a refusal: the kernel says one number for many reasons.
type host struct {
	paranoid  int    // kernel.perf_event_paranoid; -1 allows everything
	readable  bool   // paranoid is known
	seccomp   bool   // this process has a filter
	mlockKB   string // kernel.perf_event_mlock_kb: what a user may lock for rings, beside ulimit -l
	maxRate   string // in samples a second
	available bool   // the kernel has performance events
}

// thisHost reads the facts, once a refusal has to be explained.
func thisHost() host {
	h := host{mlockKB: "?", maxRate: "?"}
	if b, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid"); err == nil {
		h.available = true
		h.paranoid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		h.readable = err == nil
	}
	if b, err := os.ReadFile("/proc/sys/kernel/perf_event_mlock_kb"); err == nil {
		h.mlockKB = strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/proc/sys/kernel/perf_event_max_sample_rate"); err == nil {
		h.maxRate = strings.TrimSpace(string(b))
	}
	h.seccomp = procfs.Status(int32(os.Getpid()))["Seccomp"] == "2"
	return h
}

// refused explains an error of a call. One that is no error number stays as it is.
func refused(call string, err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err
	}
	return thisHost().explain(call, errno)
}

// explain turns an error number into a Refusal. The numbers are those of
// kernel/events/core.c.
func (h host) explain(call string, errno unix.Errno) *Refusal {
	r := &Refusal{Call: call, Err: errno}
	switch errno {
	case unix.EACCES, unix.EPERM:
		switch {
		case strings.HasPrefix(call, "mmap"):
			r.Reason = fmt.Sprintf("more memory than may be locked (kernel.perf_event_mlock_kb=%s, and ulimit -l)", h.mlockKB)
			r.Remedy = "a smaller --ring, or as root sysctl kernel.perf_event_mlock_kb=8192"
		case !h.available:
			r.Reason, r.Remedy = "/proc/sys/kernel/perf_event_paranoid is not there", "a kernel with CONFIG_PERF_EVENTS"
		// values above 2 are Debian's, Ubuntu's and Android's
		case h.readable && h.paranoid > 2:
			r.Reason = fmt.Sprintf("kernel.perf_event_paranoid=%d keeps performance events for root", h.paranoid)
			r.Remedy = "as root sysctl kernel.perf_event_paranoid=2, or give ehasm CAP_PERFMON"
		case h.seccomp:
			r.Reason = "a seccomp filter is active, as in containers"
			r.Remedy = "run the container with --cap-add=PERFMON and a seccomp profile that allows perf_event_open"
		default:
			r.Reason = fmt.Sprintf("not allowed to this user (kernel.perf_event_paranoid=%d)", h.paranoid)
			r.Remedy = "at 2 you may record your own programs; for others' and the whole system be root, have CAP_PERFMON, or as root sysctl kernel.perf_event_paranoid=-1"
		}
	case unix.ENOSYS:
		if h.available {
			r.Reason, r.Remedy = "the call is filtered, as in containers",
				"run the container with --cap-add=PERFMON and a seccomp profile that allows perf_event_open"
		} else {
			r.Reason, r.Remedy = "this kernel has no performance events", "a kernel with CONFIG_PERF_EVENTS"
		}
	case unix.ENOENT, unix.EOPNOTSUPP:
		r.Reason, r.Remedy = "the processor, or the virtual machine, does not have this event",
			"--event cpu-clock works everywhere"
	case unix.EMFILE, unix.ENFILE:
		r.Reason, r.Remedy = "too many open files: there are two events for each thread and CPU",
			"ulimit -n with more, or record the whole system with -a"
	case unix.ESRCH:
		r.Reason = "there is no such process"
	case unix.EINVAL, unix.E2BIG:
		r.Reason = fmt.Sprintf("this kernel does not support the request, or its frequency is above kernel.perf_event_max_sample_rate=%s", h.maxRate)
	}
	return r
}
