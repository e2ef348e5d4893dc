//go:build !unix

package find

import (
	"io/fs"
	"os"
	"path/filepath"
)

// fileID is equal for two names of one file, hard links aside.
type fileID struct {
	dev, ino uint64
	name     string
}

// idOf returns the path without links: hosts that are not Unix have no inode numbers.
func idOf(path string, _ fs.FileInfo) fileID {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return fileID{name: path}
}

// openRegular opens the file.
func openRegular(path string) (*os.File, error) { return os.Open(path) }

// isLinkLoop, inodeOf, isNotFolder, mayExecute and isPrivileged are questions that only Unix answers: here a file is
// plain.
func isLinkLoop(error) bool { return false }

func inodeOf(fs.FileInfo) uint64 { return 0 }

func isNotFolder(error) bool { return false }

func mayExecute(string) bool { return true }

func isPrivileged(string, fs.FileInfo) bool { return false }
