//go:build unix

package find

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/ehasm/ehasm/internal/files/input"

	"golang.org/x/sys/unix"
)

// fileID is equal for two names of one file.
type fileID struct {
	dev, ino uint64
	name     string // of an input that is not a file
}

// idOf returns the identity of a file: device and inode, which all of its names share. info is of the file, not of a
// link.
func idOf(_ string, info fs.FileInfo) fileID {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{name: info.Name()}
	}
	return fileID{dev: uint64(st.Dev), ino: uint64(st.Ino)}
}

// openRegular opens a file that was just found to be regular. If it has become
// a FIFO or device since, the open does not block.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New(kind(info.Mode()))}
	}
	if err == nil && input.IsSparse(info) {
		err = &fs.PathError{Op: "open", Path: path, Err: input.ErrSparse}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// isLinkLoop reports whether an error says that symbolic links lead round in a circle, or too far.
func isLinkLoop(err error) bool { return errors.Is(err, syscall.ELOOP) }

// inodeOf returns a file's inode number; 0 if it is not known.
func inodeOf(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino)
	}
	return 0
}

// isNotFolder reports whether an error says that a part of the path before the last is a file.
func isNotFolder(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// mayExecute reports whether this process may execute the file at path.
func mayExecute(path string) bool {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS) == nil
}

// isPrivileged reports whether the kernel would execute the file in secure mode
// (getauxval(3), AT_SECURE) for this user.
func isPrivileged(path string, info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	mode := info.Mode()
	const groupExecutes = 0o010 // without it, set-gid is the mark of mandatory locking: stat(2)
	switch {
	case mode&fs.ModeSetuid != 0 && int(st.Uid) != os.Getuid():
		return true
	case mode&fs.ModeSetgid != 0 && mode&groupExecutes != 0 && int(st.Gid) != os.Getgid():
		return true
	// The superuser has all capabilities already, so a file with capabilities adds none.
	case os.Getuid() == 0:
		return false
	}
	n, err := unix.Getxattr(path, "security.capability", nil)
	return err == nil && n > 0
}
