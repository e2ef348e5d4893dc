//go:build linux

// Package mapped finds the files that running processes have mapped, whatever lies at their names by now, and whichever
// mount namespace they are in.
package mapped

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/unwind"
)

// This file gives each file that was mapped one object, however many processes and containers map it: what is read of
// a library is kept once.

// Files holds what is known of the files that processes have mapped.
type Files struct {
	Objects  *unwind.Objects
	Known    map[Identity]*unwind.Object
	Open     map[*unwind.Object]*os.File // of objects that their names here do not lead to
	most     int                         // of Open
	contents map[version]elfFile
}

// NewFiles returns an empty Files, which keeps bound on their number open.
func NewFiles(objects *unwind.Objects, most int) *Files {
	return &Files{Objects: objects, Known: make(map[Identity]*unwind.Object), Open: make(map[*unwind.Object]*os.File),
		most:     most,
		contents: make(map[version]elfFile)}
}

// Close closes the files that were kept open. Objects that have no other file cannot be opened after it.
func (fs *Files) Close() {
	for _, f := range fs.Open {
		f.Close()
	}
}

// Identity tells the file of a mapping from others that have its name, or had it, and from what the file had before it
// was written to.
type Identity struct {
	name, buildID string
	file          version
}

// identity returns the identity of a mapping's file. Files with a build-id count as one in all containers and on all
// devices.
func (f *Found) identity(m *procfs.Mapping) Identity {
	id := Identity{m.Name, string(f.buildID), f.version}
	if len(f.buildID) > 0 {
		id.file = version{size: f.version.size, modified: f.version.modified}
	} else if f.version == (version{}) {
		id.file.inode = m.Inode
	}
	return id
}

// Reasons why an object has no file.
var (
	errNotFound  = errors.New("the file that was mapped is not to be found: it was removed, replaced or written to, or the process has ended")
	errManyFiles = errors.New("too many files that have other names here")
)

// Object returns the object of a mapping with this file.
func (fs *Files) Object(m *procfs.Mapping, f *Found) *unwind.Object {
	id := f.identity(m)
	o := fs.Known[id]
	if o == nil {
		o = fs.newObject(m, f)
		fs.Known[id] = o
	}
	return o
}

// Mapped returns the object of a mapping that /proc tells of. If its file is not to be found, another one with the
// build-id that memory has is as good; nil: that is not known.
func (fs *Files) Mapped(p *Process, m *procfs.Mapping, buildID []byte) *unwind.Object {
	f := fs.Find(p, m, time.Time{})
	if f.version == (version{}) {
		f.buildID = buildID
	}
	return fs.Object(m, &f)
}

// newObject makes the object of a file, which is kept open if its name here does not lead to it.
func (fs *Files) newObject(m *procfs.Mapping, f *Found) *unwind.Object {
	if len(f.buildID) > 0 && f.version == (version{}) {
		return fs.Objects.Object(m.Name, f.buildID)
	}
	if !f.isELF {
		if o := fs.Objects.Object(m.Name, nil); !o.IsFile() {
			return o
		}
		if f.version != (version{}) {
			return fs.Objects.At(m.Name, nil, f.way.root+f.way.path) // which says what it is
		}
		return fs.Objects.Without(m.Name, nil, errNotFound)
	}
	var st syscall.Stat_t
	if syscall.Stat(m.Name, &st) == nil && versionOf(&st) == f.version {
		if o := fs.at(m, f, m.Name); o != nil {
			return o
		}
	}
	err := errManyFiles
	if len(fs.Open) < fs.most {
		var file *os.File
		if file, err = f.way.open(); err == nil {
			if o := fs.at(m, f, fmt.Sprintf("/proc/self/fd/%d", file.Fd())); o != nil {
				fs.Open[o] = file
				return o
			}
			file.Close()
			err = errNotFound
		}
	}
	if len(f.buildID) > 0 {
		return fs.Objects.Object(m.Name, f.buildID) // it may be in a folder of debug files
	}
	return fs.Objects.Without(m.Name, nil, err)
}

// at returns the object of the file at a path; nil: that is another one, as the path may lead elsewhere since it was
// looked at.
func (fs *Files) at(m *procfs.Mapping, f *Found, path string) *unwind.Object {
	o := fs.Objects.At(m.Name, f.buildID, path)
	if info := o.Info(); info != nil && versionOf(info.Sys().(*syscall.Stat_t)) == f.version {
		return o
	}
	fs.Objects.Forget(func(other *unwind.Object) bool { return other != o }) // the next file may get this descriptor
	return nil
}
