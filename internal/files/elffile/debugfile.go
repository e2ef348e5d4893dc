package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/ehasm/ehasm/abi"
)

// DebugFile tells an object's separate debug file from others. Where it may be, gdb's manual says ("Debugging Information
// in Separate Files"): under its build-id in the folders of debug files, or, the older way, under the name that
// .gnu_debuglink has beside a checksum.
type DebugFile struct {
	Linked  []string // where the file that .gnu_debuglink names may be
	crc     uint32   // of that file, whole; only with Linked
	buildID []byte   // of the object; nil: it has none
}

// DebugFileOf returns how to know the debug file of f, which r reads. dir is the object's folder, debugDirs are those of
// debug files. Without dir, and with a section that is no link, there is no Linked.
func DebugFileOf(f *elf.File, r io.ReaderAt, dir string, debugDirs []string) *DebugFile {
	const limit, crcSize = 4096, 4 // bytes; the section holds one name, which NAME_MAX (255) bounds
	d := &DebugFile{}
	d.buildID, _ = abi.BuildID(r)
	s := f.Section(".gnu_debuglink")
	if s == nil || dir == "" || s.Size > limit || s.Type == elf.SHT_NOBITS {
		return d
	}
	b, err := s.Data()
	if err != nil {
		return d
	}
	name, _, _ := bytes.Cut(b, []byte{0})
	end := (len(name) + crcSize) &^ (crcSize - 1) // the name is padded, with its zero
	// a name with a slash could lead out of the folders that are searched
	if len(name) == 0 || bytes.ContainsRune(name, '/') || len(b) < end+crcSize {
		return d
	}
	d.crc = binary.LittleEndian.Uint32(b[end:])
	d.Linked = []string{filepath.Join(dir, string(name)), filepath.Join(dir, ".debug", string(name))}
	for _, folder := range debugDirs {
		d.Linked = append(d.Linked, filepath.Join(folder, dir, string(name)))
	}
	return d
}

// mostSummed is the size in bytes up to which a debug file without a build-id is read to check it: summing takes some
// seconds per GB of a disk.
const mostSummed = 4 << 30

// Is reports whether a file belongs to the object: it has the same build-id, or, where one of them has none and
// .gnu_debuglink led to it, the checksum.
func (d *DebugFile) Is(file *os.File, linked bool) bool {
	if id, _ := abi.BuildID(file); id != nil && d.buildID != nil {
		return bytes.Equal(id, d.buildID)
	}
	st, err := file.Stat()
	if !linked || err != nil || st.Size() > mostSummed {
		return false
	}
	sum := crc32.NewIEEE()
	_, err = io.Copy(sum, io.NewSectionReader(file, 0, st.Size()))
	return err == nil && sum.Sum32() == d.crc
}
