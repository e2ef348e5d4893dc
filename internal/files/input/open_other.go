//go:build !linux

package input

import (
	"errors"
	"os"
)

// open looks first: on these systems what is there may be another file when it is opened, and the
// names are not those of running processes.
func open(path string) (*os.File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := check(path, st); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// OpenBelow opens nothing: root folders of processes are reached on Linux only.
func OpenBelow(_, _ string) (*os.File, error) { return nil, errors.ErrUnsupported }
