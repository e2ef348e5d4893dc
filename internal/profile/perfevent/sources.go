//go:build linux && amd64

package perfevent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ehasm/ehasm/internal/files/output"
)

// Sources are the folders in which the kernel describes events: numbers of tracepoints and types of PMUs differ
// between kernels. Tests have others.
type Sources struct {
	Devices string   // a folder for each PMU: Documentation/ABI/testing/sysfs-bus-event_source-devices
	Tracing []string // where tracefs may be mounted
}

// KernelSources returns the folders of this kernel.
func KernelSources() *Sources {
	return &Sources{Devices: "/sys/bus/event_source/devices", Tracing: []string{"/sys/kernel/tracing",
		"/sys/kernel/debug/tracing"}}
}

// Tracepoint returns the number of a tracepoint, which is the config of its event, and whether it is a probe, as 'perf
// probe' makes them.
func (s *Sources) Tracepoint(system, name string) (id uint64, probe bool, err error) {
	dir, err := s.events()
	if err != nil {
		return 0, false, err
	}
	if system != filepath.Base(system) || name != filepath.Base(name) {
		return 0, false, errors.New("want SYSTEM:NAME")
	}
	b, err := os.ReadFile(filepath.Join(dir, system, name, "id"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, false, fmt.Errorf("there is no such tracepoint%s", hint(tracepoints(dir), system+":"+name))
	case err != nil:
		return 0, false, forbidden(err)
	}
	if id, err = number(b); err != nil {
		return 0, false, err
	}
	b, err = os.ReadFile(filepath.Join(dir, system, name, "format"))
	return id, strings.Contains(string(b), " __probe_"), err
}

// events returns the folder of tracepoints. Tracefs may be mounted in either place, or in none.
func (s *Sources) events() (string, error) {
	for _, mount := range s.Tracing {
		dir := filepath.Join(mount, "events")
		switch _, err := os.ReadDir(dir); {
		case err == nil:
			return dir, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", forbidden(err)
		}
	}
	return "", fmt.Errorf("tracefs is not mounted; as root: mount -t tracefs none %s", s.Tracing[0])
}

// forbidden explains the error for a file of tracefs.
func forbidden(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: only root may read tracefs, which has the numbers of tracepoints", err)
	}
	return err
}

// tracepoints lists all tracepoints, as SYSTEM:NAME.
func tracepoints(dir string) (list []string) {
	paths, _ := filepath.Glob(filepath.Join(dir, "*", "*", "id"))
	for _, path := range paths {
		event := filepath.Dir(path)
		list = append(list, filepath.Base(filepath.Dir(event))+":"+filepath.Base(event))
	}
	return list
}

// hint proposes the only one of names that is close to name.
func hint(names []string, name string) string {
	if near := output.Nearest(names, name); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// Probes returns the type of the PMU kprobe or uprobe, and the config of its events that happen when a function
// returns.
func (s *Sources) Probes(pmu string) (typ uint32, atReturn uint64, err error) {
	dir := filepath.Join(s.Devices, pmu)
	b, err := os.ReadFile(filepath.Join(dir, "type"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, fmt.Errorf("this kernel has no %ss: %s is not there", pmu, dir)
	}
	if err != nil {
		return 0, 0, err
	}
	n, err := number(b)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: type: %w", dir, err)
	}
	if b, err = os.ReadFile(filepath.Join(dir, "format", "retprobe")); err != nil {
		return 0, 0, err
	}
	bit, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(string(b)), "config:"), 10, 6)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: format of retprobe %q: want config:BIT", dir, b)
	}
	return uint32(n), 1 << bit, nil
}

// number reads a file that has a decimal number of at most 32 bits.
func number(b []byte) (uint64, error) { return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32) }
