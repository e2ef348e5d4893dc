// Package ehcache lists and prunes caches of eh_elfs. A cache is a folder .build-id with a
// subfolder for each first byte of a build-id. A subfolder has a file BUILD-ID.eh_elf.so for each
// object, and perhaps one of tables for the kernel.
//
//	Open --> Folder --Files--> []File --Beyond--> those to remove --Remove--> those removed
package ehcache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/files/output"
)

// leftover is the age from which a temporary file counts as left by a killed writer.
const leftover = 24 * time.Hour

// File is an eh_elf or a file of tables of a cache, or a temporary file that its writer left behind.
type File struct {
	Name  string    // below the cache's folder, such as 93/ac61ec5a.eh_elf.so
	Size  int64     // in bytes
	Used  time.Time // last read or write; see used
	Stale bool      // a temporary file, older than a day
}

// Folder is an open cache.
type Folder struct {
	root *os.Root // open on the cache's folder, so that names cannot lead out of it
	// NoTimes says that the file system does not record when files are read. Then File.Used is the time of the last write.
	NoTimes bool
}

// Open opens the cache at an absolute path. The error wraps fs.ErrNotExist if there is no cache, and input.ErrUntrusted
// if another user can write to it.
func Open(folder string) (*Folder, error) {
	if _, err := os.Stat(folder); err != nil {
		return nil, err
	}
	if err := input.MkdirAll(folder); err != nil { // it exists: this checks who can write there
		return nil, err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	return &Folder{root: root, NoTimes: noTimes(folder)}, nil
}

// Close closes the folder.
func (f *Folder) Close() error { return f.root.Close() }

// Files returns the files of the cache, the least recently used first. It leaves out files that are not the cache's.
func (f *Folder) Files(now time.Time) ([]File, error) {
	folders, err := fs.ReadDir(f.root.FS(), ".")
	if err != nil {
		return nil, err
	}
	var files []File
	for _, folder := range folders {
		if !folder.IsDir() || len(folder.Name()) != 2 { // two hexadecimal digits of the build-id
			continue
		}
		entries, err := fs.ReadDir(f.root.FS(), folder.Name())
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if file, ok := fileOf(folder.Name(), e, now); ok {
				files = append(files, file)
			}
		}
	}
	slices.SortStableFunc(files, func(a, b File) int { return a.Used.Compare(b.Used) })
	return files, nil
}

// fileOf describes an entry of a subfolder. ok is false if the file is not the cache's, or does not exist any more.
func fileOf(folder string, e fs.DirEntry, now time.Time) (file File, ok bool) {
	temporary := output.IsTemporary(e.Name())
	if !e.Type().IsRegular() || !temporary && !strings.HasSuffix(e.Name(), abi.Suffix) &&
		!strings.HasSuffix(e.Name(), abi.TablesSuffix) {
		return File{}, false
	}
	info, err := e.Info()
	if err != nil || temporary && now.Sub(info.ModTime()) < leftover {
		return File{}, false
	}
	return File{Name: path.Join(folder, e.Name()), Size: info.Size(), Used: used(info), Stale: temporary}, true
}

// Limits say which files a cache keeps. A limit of 0 does not limit.
type Limits struct {
	Unused time.Duration   // since the last use
	Bytes  int64           // of all files
	Only   map[string]bool // names of files that may stay; nil: all
}

// Beyond returns the files to remove: leftovers, files unused for too long, and those not in Only. Of the rest it adds
// the least recently used files until the limit of bytes holds. files is the result of Folder.Files.
func (l Limits) Beyond(files []File, now time.Time) []File {
	var total int64
	for _, f := range files {
		total += f.Size
	}
	var remove []File
	for _, f := range files {
		if f.Stale || l.Only != nil && !l.Only[f.Name] || l.Unused > 0 && now.Sub(f.Used) > l.Unused || l.Bytes > 0 &&
			total > l.Bytes {
			remove = append(remove, f)
			total -= f.Size
		}
	}
	return remove
}

// Remove removes files, and then subfolders that are empty. Programs that have a file mapped keep it. Remove returns
// the files removed; the error counts those that it could not remove, and has the reason of the first.
func (f *Folder) Remove(files []File) (removed []File, err error) {
	failed := 0
	for _, file := range files {
		switch e := f.root.Remove(file.Name); {
		case e == nil:
			removed = append(removed, file)
		case !errors.Is(e, fs.ErrNotExist):
			if failed++; failed == 1 {
				err = fmt.Errorf("%s: %w", file.Name, errors.Unwrap(e))
			}
		}
		f.root.Remove(path.Dir(file.Name)) // fails unless it is empty
	}
	if failed > 1 {
		err = fmt.Errorf("%d files could not be removed, first %w", failed, err)
	}
	return removed, err
}
