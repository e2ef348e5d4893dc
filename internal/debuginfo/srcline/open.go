package srcline

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/elffile"
	"github.com/ehasm/ehasm/internal/files/input"
)

// This file finds an object's debug information: in the object, in a separate debug file, and in a supplementary file,
// by the rules of gdb. A file that is not proven to belong, by build-id or checksum, is not used.

// ErrNone is wrapped if an object has no debug information.
var ErrNone = errors.New("no debug information")

// Options says where the parts of an object's debug information may be.
type Options struct {
	// Path is where the object was found; "" if it is in no folder.
	// .gnu_debuglink is looked up beside it.
	Path string
	// DebugPaths are files that may be the object's separate debug file.
	DebugPaths []string
	// DebugDirs are folders like /usr/lib/debug.
	DebugDirs []string
	// Limit is how many bytes of tables are kept; 0: 128 MiB.
	Limit int64
}

// Open reads the index of an object. The file must stay open until Close. The
// error wraps ErrNone if there is no debug information; any other error means
// that it cannot be used at all. For partial failures see Info.Err.
func Open(file io.ReaderAt, opt Options) (*Info, error) {
	o := &Info{limit: opt.Limit}
	if o.limit == 0 {
		o.limit = defaultLimit
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	if err := try(func() error { return o.open(file, &opt) }); err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// open finds the sections: in the file, or in a separate debug file, and the supplementary file of
// either. A missing supplementary file is only noted, as it costs names alone.
func (o *Info) open(file io.ReaderAt, opt *Options) error {
	f, err := elffile.Open(file)
	if err != nil {
		return fmt.Errorf("headers of the file: %w", err)
	}
	if f.Machine != elf.EM_X86_64 || f.Class != elf.ELFCLASS64 {
		return fmt.Errorf("for machine %v", f.Machine)
	}
	path, main := opt.Path, f
	if o.sec, err = loadSections(f, file, ""); err != nil {
		return err
	}
	if o.sec == nil {
		for _, c := range candidates(f, opt) {
			if d, err := o.tryDebugFile(file, c); err == nil {
				f, path = d, c.path
				break
			}
		}
	}
	if o.sec == nil {
		return ErrNone
	}
	if err := o.openAlt(f, path, opt); err != nil {
		o.note(err)
	}
	o.dir = filepath.Dir(path)
	// With a compressed .debug_info, one address needs only its unit: see quick.
	if o.sec.packed.info != nil {
		o.quick = newQuick(o.sec, linkageTables(main))
	}
	if o.quick == nil {
		o.whole()
	}
	return nil
}

// candidate is where a separate debug file may be.
type candidate struct {
	path string
	crc  *uint32 // of the whole file, for one named by .gnu_debuglink
}

// candidates gives the paths of gdb's manual, "Debugging Information in Separate Files": by build-id first, then by
// .gnu_debuglink.
func candidates(f *elf.File, opt *Options) []candidate {
	var list []candidate
	for _, p := range opt.DebugPaths {
		list = append(list, candidate{path: p})
	}
	name, rest := nameAndRest(f.Section(".gnu_debuglink"))
	// The name is padded to a multiple of 4, with its zero.
	if pad := (len(name) + 4) &^ 3; name != "" && filepath.Base(name) == name && opt.Path != "" && len(rest) >= 4 {
		rest = rest[min(pad-len(name)-1, len(rest)):]
		if len(rest) < 4 {
			return list
		}
		crc := binary.LittleEndian.Uint32(rest)
		dir := filepath.Dir(opt.Path)
		paths := []string{filepath.Join(dir, name), filepath.Join(dir, ".debug", name)}
		for _, d := range opt.DebugDirs {
			paths = append(paths, filepath.Join(d, dir, name))
		}
		for _, p := range paths {
			list = append(list, candidate{p, &crc})
		}
	}
	return list
}

// nameAndRest splits a section that begins with a string, such as .gnu_debuglink: the name, and what follows its zero.
// "" if there is no section, or one that is too large to hold a path (PATH_MAX, 4096).
func nameAndRest(s *elf.Section) (string, []byte) {
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

// tryDebugFile takes the file if it belongs to the object that main reads: its build-id
// is the same, or where one of them has none, its checksum is the link's.
func (o *Info) tryDebugFile(main io.ReaderAt, c candidate) (*elf.File, error) {
	file, f, err := openELF(c.path)
	if err != nil {
		return nil, err
	}
	want, _ := abi.BuildID(main)
	got, _ := abi.BuildID(file)
	switch {
	case want != nil && got != nil:
		if !bytes.Equal(want, got) {
			err = fmt.Errorf("%s: another build-id", c.path)
		}
	case c.crc != nil:
		sum := crc32.NewIEEE()
		if _, err = io.Copy(sum, file); err == nil && sum.Sum32() != *c.crc {
			err = fmt.Errorf("%s: another checksum", c.path)
		}
	default:
		err = fmt.Errorf("%s: no build-id", c.path)
	}
	var s *sections
	if err == nil {
		// Only a file with debug information is taken.
		if s, err = loadSections(f, file, ""); err == nil && s == nil {
			err = ErrNone
		}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	o.sec, o.files = s, append(o.files, file)
	return f, nil
}

// openELF opens a regular file and reads its headers.
func openELF(path string) (*os.File, *elf.File, error) {
	file, err := input.Open(path)
	if err != nil {
		return nil, nil, err
	}
	f, err := elffile.Open(file)
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, f, nil
}

// supplement reads .debug_sup: DWARF 5, 7.3.6. Both files have it, with the same checksum; the supplementary one names
// no file.
func supplement(f *elf.File) (name string, checksum []byte) {
	s := f.Section(".debug_sup")
	if s == nil || s.Type == elf.SHT_NOBITS {
		return "", nil
	}
	b, err := s.Data()
	if err != nil {
		return "", nil
	}
	c := cursor{b: b, off: min(3, uint64(len(b)))} // version (2 bytes) and flag
	name = string(c.cstr())
	return name, c.take(c.uleb())
}

// openAlt opens the supplementary file that f, at path, names: .gnu_debugaltlink has a
// name and a build-id, .debug_sup (DWARF 5, 7.3.6) a version, a flag, and the
// same with the length of the build-id.
func (o *Info) openAlt(f *elf.File, path string, opt *Options) error {
	name, id := nameAndRest(f.Section(".gnu_debugaltlink"))
	if name == "" {
		name, id = supplement(f)
	}
	if name == "" {
		return nil
	}
	// gdb looks in the same places.
	paths := []string{name}
	if !filepath.IsAbs(name) {
		paths = []string{filepath.Join(filepath.Dir(path), name)}
	}
	for _, d := range opt.DebugDirs {
		if hexID := hex.EncodeToString(id); len(hexID) > 2 {
			paths = append(paths, filepath.Join(d, ".build-id", hexID[:2], hexID[2:]+".debug"))
		}
		paths = append(paths, filepath.Join(d, ".dwz", filepath.Base(name)))
	}
	for _, p := range paths {
		file, alt, err := openELF(p)
		if err != nil {
			continue
		}
		var s *sections
		got, _ := abi.BuildID(file)
		if _, sum := supplement(alt); got == nil {
			got = sum
		}
		if bytes.Equal(got, id) {
			s, err = loadSections(alt, file, "")
		}
		if err != nil || s == nil {
			file.Close()
			continue
		}
		o.files = append(o.files, file)
		o.sec.alt = s
		err = s.parseUnits(toEnd)
		for _, u := range s.index.units {
			if _, e := u.open(); err == nil {
				err = e
			}
		}
		return err
	}
	return fmt.Errorf("supplementary debug file %s not found: names are missing", name)
}
