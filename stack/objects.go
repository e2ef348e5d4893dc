package stack

import (
	"errors"
	"io"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/unwind"
)

// readerAt is an io.ReaderAt of a target's memory from an address on.
type readerAt struct {
	read memory
	from uint64
}

func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	n := max(0, r.read(p, r.from+uint64(off)))
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// buildIDs returns the build-ids of mapped files, by name, as they are in memory: a file may have been replaced
// since. Files whose first page is not in memory have none.
func buildIDs(list []procfs.Mapping, read memory) map[string][]byte {
	needed := make(map[string]bool)
	for _, m := range list {
		if m.Exec && strings.HasPrefix(m.Name, "/") {
			needed[m.Name] = true
		}
	}
	ids := make(map[string][]byte)
	for _, m := range list {
		if !needed[m.Name] || m.Offset != 0 || ids[m.Name] != nil {
			continue
		}
		// an error means that there is none
		ids[m.Name], _ = abi.BuildID(io.NewSectionReader(readerAt{read, m.Start}, 0, int64(min(m.End-m.Start, 1<<30)))) // 1 GB bounds what a header may claim
	}
	return ids
}

// errOther says that an object's file is another one.
var errOther = errors.New("the file has other bytes than the memory in the core")

// object returns the object of a mapping.
func (c *Core) object(objects *unwind.Objects, m *procfs.Mapping) *unwind.Object {
	if m.Name == c.replaced && c.path != "" {
		return objects.At(m.Name, c.ids[m.Name], c.path)
	}
	o := objects.Object(m.Name, c.ids[m.Name])
	if o.IsFile() && o.Path() != "" && c.compare(o) == procfs.Different {
		return objects.Without(m.Name, nil, errOther)
	}
	return o
}

// compare compares an object's file with the memory in the core, as far as that has the file's headers and code. A build-id
// that is known says it without.
func (c *Core) compare(o *unwind.Object) procfs.Comparison {
	if len(c.ids[o.Name]) > 0 {
		return procfs.Equal
	}
	result, known := c.compared[o]
	if known {
		return result
	}
	if file, _, err := o.Open(); err == nil {
		defer file.Close()
		for _, m := range c.unknown[o.Name] {
			result = max(result, m.Compare(file, func(addr uint64, b []byte) int { return c.read(b, addr) }))
		}
	}
	c.compared[o] = result
	return result
}

// withoutID returns the mappings of code and of headers by the names of files whose build-ids are not known.
func withoutID(list []procfs.Mapping, ids map[string][]byte) map[string][]procfs.Mapping {
	unknown := make(map[string][]procfs.Mapping)
	for _, m := range list {
		if len(ids[m.Name]) == 0 && (m.Exec || m.Offset == 0) {
			unknown[m.Name] = append(unknown[m.Name], m)
		}
	}
	return unknown
}
