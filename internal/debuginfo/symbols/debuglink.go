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

// debugFile is what .gnu_debuglink says of the separate debug file.
type debugFile struct {
	paths   []string // where it may be
	crc     uint32   // of the whole file
	buildID []byte   // of the object; nil: it has none
}

// debugLink reads .gnu_debuglink of f, which r reads: gdb's manual, "Debugging Information in
// Separate Files". It returns nil if there is none.
func debugLink(f *elf.File, r io.ReaderAt, dir string, debugDirs []string) *debugFile {
	const limit, crcSize = 4096, 4 // bytes
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

// mostSummed is the size in bytes up to which a debug file without a build-id is read to check it.
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
