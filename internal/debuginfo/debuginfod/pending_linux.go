package debuginfod

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// create makes a file without a name, where the file system can: open(2), O_TMPFILE. Nothing is left of it if the
// process is ended.
func create(dir, prefix string) (*pending, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return createNamed(dir, prefix)
	}
	return &pending{os.NewFile(uintptr(fd), dir), true}, nil
}

// keep gives the file its name.
func (p *pending) keep(path string) error {
	if !p.nameless {
		return os.Rename(p.Name(), path)
	}
	link := func() error {
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", p.Fd()), unix.AT_FDCWD, path,
			unix.AT_SYMLINK_FOLLOW)
	}
	err := link()
	if errors.Is(err, unix.EEXIST) { // that no server had it is remembered
		os.Remove(path)
		err = link()
	}
	if err != nil {
		return &os.PathError{Op: "link", Path: path, Err: err}
	}
	return nil
}
