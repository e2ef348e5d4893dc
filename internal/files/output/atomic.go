package output

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// This file writes files that are whole or absent: into a temporary file beside the target, which is renamed at the
// end. A reader never sees half a file, and a failure keeps the old one.

// Reasons why a target is not replaced.
var (
	ErrIsFolder   = errors.New("is a folder")
	ErrNotRegular = errors.New("exists and is not a regular file")
	ErrReplaced   = errors.New("was replaced by another file meanwhile")
)

// tempPrefix begins the names of temporary files.
const tempPrefix = ".ehasm-"

// IsTemporary reports whether a name is of a temporary file of this package. One stays behind if its writer is killed.
func IsTemporary(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, ".tmp")
}

// Modes of new files, which the umask narrows.
const (
	// PermText is for results of a verb.
	PermText fs.FileMode = 0o666
	// PermCode is for files that are loaded: loaders refuse files that a group may
	// write to.
	PermCode fs.FileMode = 0o644
)

// File is a file being written. Abort may be called from any goroutine; the other
// methods from one at a time.
type File struct {
	path string   // for messages
	f    *os.File // open for writing
	temp string   // "": the existing file is written in place
	dest string   // the path that temp is renamed to

	mu   sync.Mutex
	err  error // the first of Write
	done bool  // after Commit or Abort
}

// Create starts the file at path. It may replace a regular file or a symbolic
// link; anything else is an error. The errors of this package begin with path.
func Create(path string, perm fs.FileMode) (*File, error) { return create(path, path, perm) }

// create starts the file at dest, which messages call path. The temporary file is in the same folder, since a rename
// to another file system is impossible.
func create(path, dest string, perm fs.FileMode) (*File, error) {
	if err := checkTarget(dest); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f, err := createTemp(filepath.Dir(dest), perm)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot create a temporary file beside it: %w", path, bare(err))
	}
	return &File{path: path, f: f, temp: f.Name(), dest: dest}, nil
}

// CreateOutput starts the file that a user has named for the output: if path is a
// symbolic link, its target is replaced, and a device, a pipe, or an open file
// (/dev/stdout, /proc/self/fd/3) is written in place. Group and others get no
// right that they lack on the file that is replaced.
func CreateOutput(path string, perm fs.FileMode) (*File, error) {
	st, err := os.Stat(path)
	switch {
	case err == nil && st.IsDir():
		return nil, fmt.Errorf("%s: %w", path, ErrIsFolder)
	case err == nil && (!st.Mode().IsRegular() || isDescriptor(path)):
		flags := os.O_WRONLY
		if !isDescriptor(path) {
			// so that the kernel refuses another's FIFO in a sticky folder: protected_fifos in proc_sys_fs(5)
			flags |= os.O_CREATE
		}
		f, err := os.OpenFile(path, flags, 0o600)
		if err != nil {
			return nil, fmt.Errorf("%s: cannot open: %w", path, bare(err))
		}
		return &File{path: path, f: f}, nil
	}
	dest := path
	if err == nil { // a dangling link is replaced itself
		perm &= 0o700 | st.Mode().Perm() // keep a private file private
		if dest, err = follow(path, st); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return create(path, dest, perm)
}

// follow resolves the links at path, through which the kernel has reached the file st. The
// kernel does not follow another user's links in a sticky folder (protected_symlinks in
// proc_sys_fs(5)), but resolving by name does, and a link may have been put there since.
func follow(path string, st fs.FileInfo) (string, error) {
	dest, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", bare(err)
	}
	if found, err := os.Lstat(dest); err != nil || !os.SameFile(st, found) {
		return "", ErrReplaced
	}
	return dest, nil
}

// isDescriptor reports whether path, through links, names an open file.
func isDescriptor(path string) bool {
	for range 40 { // as many links as Linux follows
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return false
		}
		if dir == "/dev/fd" || strings.HasPrefix(dir, "/proc/") && filepath.Base(dir) == "fd" {
			return true
		}
		to, err := os.Readlink(filepath.Join(dir, filepath.Base(path)))
		if err != nil {
			return false
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		path = to
	}
	return false
}

// WriteFile writes the file at path as Create does.
func WriteFile(path string, b []byte, perm fs.FileMode) error {
	f, err := Create(path, perm)
	return f.finish(b, err)
}

// WriteOutput writes the file at path as CreateOutput does.
func WriteOutput(path string, b []byte, perm fs.FileMode) error {
	f, err := CreateOutput(path, perm)
	return f.finish(b, err)
}

// finish writes all of b and commits; err is the error of Create, which it passes on.
func (f *File) finish(b []byte, err error) error {
	if err != nil {
		return err
	}
	f.Write(b) // Commit returns the error
	return f.Commit()
}

// InPlace reports whether the bytes go directly to a device, a pipe or an open
// file, so that Abort cannot undo them.
func (f *File) InPlace() bool { return f.temp == "" }

// Write writes to the file. After an error Commit fails.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.f.Write(p)
	if err != nil {
		err = f.cannot("write", err)
		f.mu.Lock()
		if f.err == nil {
			f.err = err
		}
		f.mu.Unlock()
	}
	return n, err
}

// Seek sets the offset of the next Write.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	n, err := f.f.Seek(offset, whence)
	if err != nil {
		err = f.cannot("seek", err)
	}
	return n, err
}

// Err returns the first error of Write, for callers whose own writer wraps the
// file.
func (f *File) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Commit renames the file to its name once all of it is on the disk. After an error,
// including an error of any Write, the previous file stays, and Commit returns the
// error. After Abort it does nothing and returns fs.ErrClosed.
func (f *File) Commit() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done {
		return fmt.Errorf("%s: %w", f.path, fs.ErrClosed)
	}
	f.done = true
	err := f.err
	if err == nil && f.temp != "" {
		if sync := f.f.Sync(); sync != nil { // else the rename could reach the disk before the bytes
			err = f.cannot("write", sync)
		}
	}
	if closed := f.f.Close(); closed != nil && err == nil {
		err = f.cannot("write", closed)
	}
	if f.temp == "" {
		return err
	}
	if err == nil {
		if err = os.Rename(f.temp, f.dest); err == nil {
			return nil
		}
		err = f.cannot("rename the finished file", err)
	}
	os.Remove(f.temp)
	return err
}

// Abort removes the temporary file; the previous file stays. After Commit it
// does nothing. A concurrent Write may still succeed.
func (f *File) Abort() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done {
		return
	}
	f.done = true
	if f.temp != "" {
		os.Remove(f.temp)
	}
	f.f.Close()
}

// cannot returns err with the file's name and what failed, without the name of the temporary file.
func (f *File) cannot(do string, err error) error {
	return fmt.Errorf("%s: cannot %s: %w", f.path, do, bare(err))
}

// Symlink makes name a symbolic link to target, and atomically replaces a file or
// link.
func Symlink(target, name string) error {
	if st, err := os.Lstat(name); err == nil && st.IsDir() {
		return fmt.Errorf("%s: %w", name, ErrIsFolder)
	}
	temp, err := os.MkdirTemp(filepath.Dir(name), tempPrefix+"*.tmp") // rename from inside it: a symlink cannot replace
	if err == nil {
		defer os.RemoveAll(temp)
		entry := filepath.Join(temp, "link")
		if err = os.Symlink(target, entry); err == nil {
			err = os.Rename(entry, name)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: cannot make a link: %w", name, bare(err))
	}
	return nil
}

// checkTarget returns an error for targets that a rename must not or cannot
// replace.
func checkTarget(path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return bare(err)
	case st.IsDir():
		return ErrIsFolder
	case !st.Mode().IsRegular() && st.Mode()&fs.ModeSymlink == 0:
		return ErrNotRegular
	}
	return nil
}

// createTemp creates a new file in dir. It does not use os.CreateTemp, which
// gives mode 0600: a later chmod would need the umask, which cannot be read
// without changing it. The name does not derive from the target's, which may
// have the maximum length.
func createTemp(dir string, perm fs.FileMode) (*os.File, error) {
	for tries := 0; ; tries++ {
		name := filepath.Join(dir, fmt.Sprintf("%s%016x.tmp", tempPrefix, rand.Uint64()))
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
		if !errors.Is(err, fs.ErrExist) || tries == 100 { // a name that another process has taken by chance
			return f, err
		}
	}
}

// bare removes operation and paths, which would name the temporary file, from
// an error of package os.
func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		return link.Err
	}
	return err
}
