package stack

import (
	"errors"
	"io"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/mapped"
	"github.com/ehasm/ehasm/unwind"
)

// This file decides which file the code at an address is from, for processes and cores: a file of the same name may be
// another one by now. Wrong unwind tables would give stacks that look right.

// readerAt is an io.ReaderAt of a target's memory from an address on.
type readerAt struct {
	read memory
	from uint64
}

// ReadAt reads as much as is mapped; what follows is io.EOF, as at the end of a file.
func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	n := max(0, r.read(p, r.from+uint64(off)))
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// placeAll maps the code of a process. list has all mappings, ascending. Anonymous memory with code may be a file's
// that was moved there (mapped.Moved), as programs do that remap themselves to huge pages.
func placeAll(list []procfs.Mapping, object func(*procfs.Mapping) *unwind.Object,
	read func(addr uint64, b []byte) int) *unwind.Maps {
	var space unwind.Space
	for i, m := range list {
		if !m.Exec {
			continue
		}
		o, offset := object(&m), m.Offset
		if o.IsAnonymous() {
			if file, fileOff := mapped.Moved(list, i, object, read); file != nil {
				o, offset = file, fileOff
			}
		}
		space.Map(m.Start, m.End-m.Start, offset, o)
	}
	return space.Maps()
}

// fileID tells mapped files apart that have one name: memfds, and files that were removed.
type fileID struct {
	name  string
	inode uint64 // in a core, see countFiles
}

func fileOf(m *procfs.Mapping) fileID { return fileID{m.Name, m.Inode} }

// countFiles numbers the files of each name, since a core has no inodes. list ascends. The parts of a file are mapped
// at ascending offsets, so where these go down another file begins, or the same again.
func countFiles(list []procfs.Mapping) {
	last := make(map[string]*procfs.Mapping)
	for i := range list {
		m := &list[i]
		if before := last[m.Name]; before != nil {
			m.Inode = before.Inode
			if m.Offset < before.Offset {
				m.Inode++
			}
		}
		last[m.Name] = m
	}
}

// buildIDs returns the build-ids of mapped files as they are in memory: a file may have been replaced since. Files
// whose first page is not in memory have none. Only files with code are asked for: of others, no stack needs anything.
func buildIDs(list []procfs.Mapping, read memory) map[fileID][]byte {
	needed := make(map[fileID]bool)
	for _, m := range list {
		if m.Exec && strings.HasPrefix(m.Name, "/") {
			needed[fileOf(&m)] = true
		}
	}
	ids := make(map[fileID][]byte)
	for _, m := range list {
		of := fileOf(&m)
		if !needed[of] || m.Offset != 0 || ids[of] != nil {
			continue
		}
		// an error means that there is none
		// 1 GB bounds what a header may claim
		ids[of], _ = abi.BuildID(io.NewSectionReader(readerAt{read, m.Start}, 0, int64(min(m.End-m.Start, 1<<30))))
	}
	return ids
}

// errOther says that an object's file is another one.
var errOther = errors.New("the file has other bytes than the memory in the core")

// object returns the object of a mapping: the file that was named for it, else the file of this name with the build-id
// that the core has, else what the core itself has of the file.
func (c *Core) object(objects *unwind.Objects, m *procfs.Mapping) *unwind.Object {
	of := fileOf(m)
	if of == c.replaced && c.path != "" {
		return objects.At(m.Name, c.ids[of], c.path)
	}
	if o := c.images[of]; o != nil {
		return o
	}
	o := objects.Object(m.Name, c.ids[of])
	if o.IsFile() && o.Path() != "" && c.compare(o, of) == procfs.Different {
		o = objects.Without(m.Name, nil, errOther)
	}
	if o.Path() == "" && c.file(m.Start) != nil {
		if b := c.bytesOf(of); b != nil {
			if whole := objects.InMemory(m.Name, b); whole.Err() == nil {
				c.images[of] = whole
				return whole
			}
		}
	}
	return o
}

// bytesOf returns the mapped parts of a file at their offsets, if the core has them whole; nil: it has not. Files in
// memory, and files that are not to be found, have no others.
func (c *Core) bytesOf(of fileID) (file []byte) {
	for _, m := range c.parts[of] {
		end := m.Offset + (m.End - m.Start)
		more := max(uint64(len(file)), end) - uint64(len(file))
		if end < m.Offset || more > c.room {
			return nil
		}
		c.room -= more
		file = append(file, make([]byte, more)...)
		if part := file[m.Offset:end]; c.image.read(part, m.Start) < len(part) {
			return nil
		}
	}
	const sections, counts = 40, 60 // e_shoff; e_shnum and e_shstrndx
	if len(file) >= ehdrSize {
		clear(file[sections : sections+8]) // section headers are not mapped
		clear(file[counts:ehdrSize])
	}
	return file
}

// compared is a file here, and one that was mapped.
type compared struct {
	object *unwind.Object
	with   fileID
}

// compare compares an object's file with the memory in the core, as far as that has the file's headers and code. Where
// the build-id is known, the file was found by it, and no bytes are compared. The result is remembered: each mapping of
// a file asks.
func (c *Core) compare(o *unwind.Object, with fileID) procfs.Comparison {
	if len(c.ids[with]) > 0 {
		return procfs.Equal
	}
	pair := compared{o, with}
	result, known := c.compared[pair]
	if known {
		return result
	}
	if file, _, err := o.Open(); err == nil {
		defer file.Close()
		for _, m := range c.unknown[with] {
			result = max(result, m.Compare(file, func(addr uint64, b []byte) int { return c.image.read(b, addr) }))
		}
	}
	c.compared[pair] = result
	return result
}

// byFile returns the mappings that keep chooses, by their files.
func byFile(list []procfs.Mapping, keep func(fileID, *procfs.Mapping) bool) map[fileID][]*procfs.Mapping {
	files := make(map[fileID][]*procfs.Mapping)
	for i := range list {
		if of := fileOf(&list[i]); keep(of, &list[i]) {
			files[of] = append(files[of], &list[i])
		}
	}
	return files
}
