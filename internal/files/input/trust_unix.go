//go:build unix

package input

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenTrusted opens the file at path for reading if it is trusted. If it is not, the
// error wraps ErrUntrusted; otherwise it is the failed operation's.
func OpenTrusted(path string) (*os.File, error) { return openFor(self(), path) }

// MkdirAll makes the folder at path and the missing folders above it, with mode 0700
// whatever the umask. Existing folders must be trusted, since files in them would
// otherwise not be.
func MkdirAll(path string) error { return mkdirAllFor(self(), path, 0o700) }

// MkdirAllShared is MkdirAll for folders that all users read, with mode 0755.
func MkdirAllShared(path string) error { return mkdirAllFor(self(), path, 0o755) }

// self returns the user whose files are trusted besides root's: the effective user. In a
// process with rights that its caller does not have it returns root: the caller may have chosen
// the environment, and with it the path and the files there.
func self() int {
	if privileged() {
		return 0
	}
	if user := os.Geteuid(); !shared(user) {
		return user
	}
	return noUser
}

// noUser is no user's number.
const noUser = -1

// openFor is OpenTrusted for a user whose files are trusted besides root's.
func openFor(self int, path string) (*os.File, error) {
	w, err := newWalk(self, path)
	if err != nil {
		return nil, err
	}
	defer w.close()
	for w.more() {
		if err := w.next(); err != nil {
			return nil, err
		}
		if w.file >= 0 {
			return os.NewFile(uintptr(w.file), path), nil
		}
	}
	return nil, w.untrusted("is a folder") // the path ended at a folder
}

// mkdirAllFor is MkdirAll for a user whose files are trusted besides root's.
func mkdirAllFor(self int, path string, perm uint32) error {
	w, err := newWalk(self, path)
	if err != nil {
		return err
	}
	defer w.close()
	for w.more() {
		name := w.rest[0]
		err := w.next()
		if errors.Is(err, fs.ErrNotExist) && name != ".." {
			w.rest = append([]string{name}, w.rest...) // back onto the way, to be checked once it is made
			if err = w.mkdir(name, perm); err == nil {
				err = w.next()
			}
		}
		if err == nil && w.file >= 0 {
			unix.Close(w.file)
			err = w.failed("mkdir", unix.ENOTDIR)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// walk walks a path from the root folder to a file.
type walk struct {
	self  int      // user whose files are trusted besides root's
	dir   int      // descriptor of the folder that was reached; -1: none yet
	place string   // its name, or the name of the entry being checked, for errors
	rest  []string // parts of the path that are still to be walked
	links int      // symbolic links followed so far
	file  int      // descriptor of the regular file that was reached; -1: none
}

// newWalk begins a walk at the root folder. close must be called when it ends.
func newWalk(self int, path string) (*walk, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	w := &walk{self: self, dir: -1, file: -1}
	w.push(path)
	if err := w.root(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// close closes the folder; the file that was reached is the caller's.
func (w *walk) close() {
	if w.dir >= 0 {
		unix.Close(w.dir)
	}
}

// openat is openat(2), repeated if a signal interrupted it.
func openat(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// more reports whether parts of the path are left.
func (w *walk) more() bool { return len(w.rest) > 0 }

// push puts the parts of a path before the rest.
func (w *walk) push(path string) {
	var parts []string
	for _, p := range strings.Split(path, "/") {
		if p != "" && p != "." {
			parts = append(parts, p)
		}
	}
	w.rest = append(parts, w.rest...)
}

// root goes to the root folder, as an absolute link does.
func (w *walk) root() error {
	w.place = "/"
	return w.enter(unix.AT_FDCWD, "/")
}

// enter opens a folder, if it is trusted, in place of the one before.
func (w *walk) enter(dir int, name string) error {
	fd, err := openat(dir, name, openFolder|unix.O_DIRECTORY)
	if err != nil {
		return w.failed("open", err)
	}
	if w.dir >= 0 {
		unix.Close(w.dir)
	}
	w.dir = fd
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return w.failed("fstat", err)
	}
	return w.check(&st, st.Mode&unix.S_ISVTX != 0)
}

// next takes one part of the path.
func (w *walk) next() error {
	name := w.rest[0]
	w.rest = w.rest[1:]
	w.place = filepath.Join(w.place, name)
	var st unix.Stat_t
	if err := unix.Fstatat(w.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return w.failed("open", err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return w.follow(name, &st)
	case unix.S_IFDIR:
		return w.enter(w.dir, name)
	case unix.S_IFREG:
		if len(w.rest) > 0 {
			return w.failed("open", unix.ENOTDIR)
		}
		return w.open(name)
	}
	return w.untrusted("is no regular file")
}

// open opens the file at the end of the way.
func (w *walk) open(name string) error {
	// If it has become a FIFO or device since, the open does not block.
	fd, err := openat(w.dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return w.failed("open", err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err != nil {
		err = w.failed("fstat", err)
	} else if st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = w.untrusted("is no regular file")
	} else {
		err = w.check(&st, false)
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	w.file = fd
	return nil
}

// follow follows a symbolic link. Whoever may write to the link's folder may replace the
// link; in a sticky folder, only the link's owner may. Both have been checked.
func (w *walk) follow(name string, st *unix.Stat_t) error {
	if w.links++; w.links > maxLinks {
		return w.failed("open", unix.ELOOP)
	}
	if err := w.owner(st); err != nil {
		return err
	}
	to := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(w.dir, name, to)
	if err != nil {
		return w.failed("readlink", err)
	}
	if n == len(to) { // it may have been cut
		return w.failed("readlink", unix.ENAMETOOLONG)
	}
	// A relative link counts from its own folder, which is still open.
	w.push(string(to[:n]))
	if strings.HasPrefix(string(to[:n]), "/") {
		return w.root()
	}
	w.place = filepath.Dir(w.place)
	return nil
}

// check returns an error if others than root and the user may write to the file
// of st.
func (w *walk) check(st *unix.Stat_t, sticky bool) error {
	if err := w.owner(st); err != nil {
		return err
	}
	const othersWrite = 0o022 // the group counts, too: who is in it is not looked at
	if st.Mode&othersWrite != 0 && !sticky {
		return w.untrusted(fmt.Sprintf("others may write it, mode %04o", st.Mode&0o7777))
	}
	return nil
}

// owner returns an error if the file of st belongs neither to root nor to the trusted user.
func (w *walk) owner(st *unix.Stat_t) error {
	if uid := int(st.Uid); uid != 0 && uid != w.self {
		return w.untrusted(fmt.Sprintf("it belongs to user %d, this is user %d", uid, w.self))
	}
	return nil
}

// mkdir makes a folder in the one that was reached; next then checks it.
func (w *walk) mkdir(name string, perm uint32) error {
	w.place = filepath.Dir(w.place)
	err := unix.Mkdirat(w.dir, name, perm)
	if err == unix.EEXIST { // made by another process meanwhile: next checks it
		return nil
	}
	if err == nil {
		err = unix.Fchmodat(w.dir, name, perm, 0) // the umask may remove the user's own rights
	}
	if err != nil {
		w.place = filepath.Join(w.place, name)
		return w.failed("mkdir", err)
	}
	return nil
}

// untrusted returns an error that wraps ErrUntrusted, about the place that was reached.
func (w *walk) untrusted(why string) error {
	return fmt.Errorf("%s: %w: %s", w.place, ErrUntrusted, why)
}

// failed returns the error of a system call, about the place that was reached.
func (w *walk) failed(op string, err error) error {
	return &fs.PathError{Op: op, Path: w.place, Err: err}
}
