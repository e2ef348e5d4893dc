package symbols

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

// This file follows .gnu_debuglink, the older way from an object to its debug file: a name and a checksum of the whole
// file. Most files have a build-id, by which debug files are found first; a link is what is left for others.

// debugFile is what .gnu_debuglink says of the separate debug file.
type debugFile struct {
	paths   []string // where it may be
	crc     uint32   // of the whole file
	buildID []byte   // of the object; nil: it has none
}

// debugLink reads .gnu_debuglink of f, which r reads: gdb's manual, "Debugging Information in
// Separate Files". It returns nil if there is none.
func debugLink(f *elf.File, r io.ReaderAt, dir string, debugDirs []string) *debugFile {
	const limit, crcSize = 4096, 4 // bytes; the section holds one name, which NAME_MAX (255) bounds
	s := f.Section(".gnu_debuglink")
	if s == nil || dir == "" || s.Size > limit || s.Type == elf.SHT_NOBITS {
		return nil
	}
	b, err := s.Data()
	if err != nil {
		return nil
	}
	name, _, _ := bytes.Cut(b, []byte{0})
	end := (len(name) + crcSize) &^ (crcSize - 1) // the name is padded, with its zero
	// a name with a slash could lead out of the folders that are searched
	if len(name) == 0 || bytes.ContainsRune(name, '/') || len(b) < end+crcSize {
		return nil
	}
	d := &debugFile{crc: binary.LittleEndian.Uint32(b[end:])}
	d.buildID, _ = abi.BuildID(r)
	d.paths = []string{filepath.Join(dir, string(name)), filepath.Join(dir, ".debug", string(name))}
	for _, folder := range debugDirs {
		d.paths = append(d.paths, filepath.Join(folder, dir, string(name)))
	}
	return d
}

// mostSummed is the size in bytes up to which a debug file without a build-id is read to check it: summing takes some
// seconds per GB of a disk.
const mostSummed = 4 << 30

// is reports whether a file belongs to the object: it has the same build-id, or where one of them has none,
// the checksum.
func (d *debugFile) is(file *os.File) bool {
	if id, _ := abi.BuildID(file); id != nil && d.buildID != nil {
		return bytes.Equal(id, d.buildID)
	}
	st, err := file.Stat()
	if err != nil || st.Size() > mostSummed {
		return false
	}
	sum := crc32.NewIEEE()
	_, err = io.Copy(sum, io.NewSectionReader(file, 0, st.Size()))
	return err == nil && sum.Sum32() == d.crc
}
