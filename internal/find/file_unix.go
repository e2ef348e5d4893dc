//go:build unix

package find

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// fileID is equal for two names of one file.
type fileID struct {
	dev, ino uint64
	name     string // of what is no file
}

func idOf(_ string, info fs.FileInfo) fileID {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{name: info.Name()}
	}
	return fileID{dev: uint64(st.Dev), ino: uint64(st.Ino)}
}

// openRegular opens a file that has just been seen to be regular. Should it
// have become a FIFO or device since, the open does not wait for it.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New(kind(info.Mode()))}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func isLinkLoop(err error) bool { return errors.Is(err, syscall.ELOOP) }

func inodeOf(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino)
	}
	return 0
}
