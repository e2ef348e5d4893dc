package srcline

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"

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
		dir := ""
		if opt.Path != "" {
			dir = filepath.Dir(opt.Path)
		}
		known := elffile.DebugFileOf(f, file, dir, opt.DebugDirs)
		for i, p := range slices.Concat(opt.DebugPaths, known.Linked) {
			if d := o.tryDebugFile(p, known, i >= len(opt.DebugPaths)); d != nil {
				f, path = d, p
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

// tryDebugFile takes the file if it is the one that is known, and has debug information; otherwise it returns nil. For
// linked see Is.
func (o *Info) tryDebugFile(path string, known *elffile.DebugFile, linked bool) *elf.File {
	file, f, err := openELF(path)
	if err != nil {
		return nil
	}
	if known.Is(file, linked) {
		if s, err := loadSections(f, file, ""); err == nil && s != nil {
			o.sec, o.files = s, append(o.files, file)
			return f
		}
	}
	file.Close()
	return nil
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
	name, id := elffile.NameAndRest(f.Section(".gnu_debugaltlink"))
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
