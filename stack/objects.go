package stack

import (
	"io"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/procfs"
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
