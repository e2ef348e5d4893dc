package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

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
	d := &DebugFile{}
	d.buildID, _ = abi.BuildID(r)
	name, rest := NameAndRest(f.Section(".gnu_debuglink"))
	padding := -(len(name) + 1) & 3 // of the name, with its zero, to a multiple of 4
	// a name with a slash could lead out of the folders that are searched
	if name == "" || dir == "" || strings.ContainsRune(name, '/') || len(rest) < padding+4 {
		return d
	}
	d.crc = binary.LittleEndian.Uint32(rest[padding:])
	d.Linked = []string{filepath.Join(dir, name), filepath.Join(dir, ".debug", name)}
	for _, folder := range debugDirs {
		d.Linked = append(d.Linked, filepath.Join(folder, dir, name))
	}
	return d
}

// NameAndRest splits a section that begins with a string, such as .gnu_debuglink: the name, and what follows its zero.
// "" if there is no section, or one that is too large to hold a path (PATH_MAX, 4096).
func NameAndRest(s *elf.Section) (string, []byte) {
	const limit = 4096 // bytes: PATH_MAX
	if s == nil || s.Size > limit || s.Type == elf.SHT_NOBITS {
		return "", nil
	}
	b, err := s.Data()
	if err != nil {
		return "", nil
	}
	name, rest, _ := bytes.Cut(b, []byte{0})
	return string(name), rest
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
