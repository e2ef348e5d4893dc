//go:build linux && amd64

package crash

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/files/output"

	"golang.org/x/sys/unix"
)

// This file keeps reports in a folder, within bounds on their number and age: a service that crashes in a loop must
// not fill the disk, nor push out the reports of others.

// MostBytes bounds a report.
const MostBytes = 256 << 10

// room bounds the folder of reports.
type room struct {
	reports int           // bound on their number
	age     time.Duration // older ones are removed
	free    uint64        // bytes that its file system must have for others than root
}

// ordinary returns the bounds of all folders: with MostBytes, 25 MB of reports.
func ordinary() room { return room{100, 30 * 24 * time.Hour, 64 << 20} }

// saved is a report in the folder.
type saved struct {
	name string
	user string
}

// reportName matches the names of reports: see crashed.name. The crashed process chooses no part of a name.
var reportName = regexp.MustCompile(`^crash-(\d{8}T\d{6}\.\d{6}Z)-user(\d+)-pid\d+\.(txt|json)$`)

// lockName is the name of the file that a handler locks while it writes.
const lockName = ".lock"

// save writes a report to the folder. First it removes reports that are too old or too many. The folder must belong to
// root or the effective user, and only its owner may write to it.
func (r room) save(folder, name string, b []byte, now time.Time) (path string, err error) {
	if err := input.MkdirAll(folder); err != nil {
		return "", err
	}
	dir, err := os.Open(folder)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	if st, err := dir.Stat(); err != nil {
		return "", err
	} else if st.Mode().Perm()&0o022 != 0 {
		return "", fmt.Errorf("%s: others may write to it: mode %v", folder, st.Mode().Perm())
	}
	// One handler at a time: together they keep to the bounds. The kernel drops the lock with the process. A reader of
	// the folder could lock it for ever, but not this file.
	lock, err := os.OpenFile(filepath.Join(folder, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := ignoreEINTR(func() error { return unix.Flock(int(lock.Fd()), unix.LOCK_EX) }); err != nil {
		return "", fmt.Errorf("%s: lock: %w", folder, err)
	}
	if err := r.make(folder, now); err != nil {
		return "", err
	}
	var fs unix.Statfs_t
	if err := ignoreEINTR(func() error { return unix.Fstatfs(int(dir.Fd()), &fs) }); err != nil {
		return "", fmt.Errorf("%s: %w", folder, err)
	}
	// Bavail leaves out what is reserved for root.
	if free := fs.Bavail * uint64(fs.Bsize); free < r.free {
		return "", fmt.Errorf("%s: no report: its file system has %d MB free, and %d MB are to stay free", folder, free>>20,
			r.free>>20)
	}
	path = filepath.Join(folder, name)
	return path, output.WriteFile(path, b, 0o600)
}

// make makes room for one more report. It removes reports, and temporary files of handlers that were killed. The
// caller holds the lock, so no other handler is writing one.
func (r room) make(folder string, now time.Time) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var list []saved
	// Times in names are text that sorts.
	oldest := timeText(now.Add(-r.age))
	for _, e := range entries {
		m := reportName.FindStringSubmatch(e.Name())
		switch {
		case m != nil && m[1] >= oldest:
			list = append(list, saved{e.Name(), m[2]})
		// Reports that are too old, and temporary files of package output.
		case m != nil, strings.HasPrefix(e.Name(), ".ehasm-") && strings.HasSuffix(e.Name(), ".tmp"):
			if err := os.Remove(filepath.Join(folder, e.Name())); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(list, func(a, b saved) int { return cmp.Compare(a.name, b.name) })
	// One report must still fit.
	for len(list) >= r.reports {
		i := victim(list)
		if err := os.Remove(filepath.Join(folder, list[i].name)); err != nil {
			return err
		}
		list = slices.Delete(list, i, i+1)
	}
	return nil
}

// victim returns the oldest report of the user with the most, so that no user's crashes push out those of others.
func victim(list []saved) int {
	counts := make(map[string]int)
	for _, s := range list {
		counts[s.user]++
	}
	found := 0
	for i, s := range list {
		if counts[s.user] > counts[list[found].user] {
			found = i
		}
	}
	return found
}

// timeText returns a time as names of reports have it: UTC, with microseconds.
func timeText(t time.Time) string { return t.UTC().Format("20060102T150405.000000Z") }

// ignoreEINTR repeats a system call that a signal has interrupted.
func ignoreEINTR(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
