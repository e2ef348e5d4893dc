package input

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// open looks at the file by a descriptor that does not open it, and opens what it has
// looked at.
func open(path string) (*os.File, error) { return openAt(unix.AT_FDCWD, path, path, 0) }

// OpenBelow opens the file at path below a folder, such as the root folder of another process.
// No part of the path may be a symbolic link, which would lead out of there: a name that the
// kernel gives a mapping has none.
func OpenBelow(root, path string) (*os.File, error) {
	name := root + path
	dir, err := lookAt(unix.AT_FDCWD, root, unix.O_DIRECTORY)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: root, Err: err}
	}
	// Each folder is opened below the one before without following links: ".." would lead out of
	// the root.
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for len(parts) > 1 && err == nil {
		var next int
		if parts[0] == ".." {
			err = unix.EINVAL
		} else if next, err = lookAt(dir, parts[0], unix.O_DIRECTORY|unix.O_NOFOLLOW); err == nil {
			unix.Close(dir)
			dir = next
		}
		parts = parts[1:]
	}
	defer func() { unix.Close(dir) }()
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return openAt(dir, parts[0], name, unix.O_NOFOLLOW)
}

// lookAt opens a file or folder for nothing but a look at it.
func lookAt(dir int, path string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, path, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// openAt opens the file at path, from a folder on; name is for messages.
func openAt(dir int, path, name string, flags int) (*os.File, error) {
	fd, err := lookAt(dir, path, flags)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	seen := os.NewFile(uintptr(fd), name)
	defer seen.Close()
	st, err := seen.Stat()
	if err == nil {
		err = check(name, st)
	}
	if err != nil {
		return nil, err
	}
	// Opening the descriptor's entry opens the very file that was checked. Below another root, /proc may be missing, or be
	// files of that system: what is no regular file is not waited for.
	const noWait = unix.O_NONBLOCK | unix.O_NOCTTY
	again, err := read(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), noWait)
	if errors.Is(err, unix.ENOENT) {
		again, err = read(dir, path, flags|noWait)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(again), name)
	if st, err = f.Stat(); err == nil {
		err = check(name, st)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// read opens a file for reading.
func read(dir int, path string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, path, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}
