package dwarfcfa

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/elffile"
	"github.com/ehasm/ehasm/internal/files/input"
)

// This file opens objects. It refuses early and in words what is no x86-64 executable or shared object, since most
// paths that people give are of other kinds. debug/elf reads the headers; its errors alone would not tell a cut-off
// file from a malformed one.

// File is an x86-64 executable or shared object, opened for its unwind
// tables. It is safe for concurrent use.
type File struct {
	name    string
	r       io.ReaderAt // all reads go here
	size    int64       // of the file in bytes
	closer  io.Closer   // nil: NewFile's caller closes the file
	file    *elf.File   // headers only
	code    []segment   // file-backed parts of executable segments, ascending, disjoint
	buildID []byte      // nil: none

	dynamic map[elf.DynTag]uint64 // entries of the dynamic section
	relocs  relocs
}

// Open opens the ELF file at path. The file stays open until Close. Errors
// begin with the path.
func Open(path string) (*File, error) {
	f, err := input.Open(path)
	switch {
	case errors.Is(err, input.ErrEmpty):
		return nil, nameError(path, ErrNotELF)
	case errors.Is(err, input.ErrNotRegular):
		return nil, nameError(path, cause(ErrNotELF, "%v", input.ErrNotRegular))
	case errors.Is(err, input.ErrSparse):
		return nil, nameError(path, cause(ErrUnsupported, "%v", input.ErrSparse))
	case err != nil:
		return nil, nameError(path, err)
	}
	var o *File
	fi, err := f.Stat()
	if err == nil {
		o, err = NewFile(path, f, fi.Size())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	o.closer = f
	return o, nil
}

// nameError puts the name of a file before an error, once.
func nameError(name string, err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Errorf("%s: %w", PrintableName(name), err)
}

// NewFile reads the headers of an ELF image of size bytes. name is used in
// error messages, all of which begin with it.
func NewFile(name string, r io.ReaderAt, size int64) (*File, error) {
	o := &File{name: name, r: r, size: size}
	if err := o.readHeaders(); err != nil {
		return nil, nameError(name, err)
	}
	return o, nil
}

// readHeaders reads the ELF headers and checks that the file holds all segments and sections that they name. Files that
// were cut off are ErrTruncated here, not at some later read.
func (o *File) readHeaders() error {
	if err := checkHeader(o.r, o.size); err != nil {
		return err
	}
	f, err := elffile.Open(o.r)
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return cause(ErrTruncated, "truncated: the section headers lead past the end of the file")
		}
		return cause(ErrBadEncoding, "malformed ELF headers: %v", err)
	}
	o.file = f
	for i, p := range f.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		if !o.holds(p.Off, p.Filesz) {
			return cause(ErrTruncated, "truncated: segment %d ends at %#x, the file at %#x", i, p.Off+p.Filesz, o.size)
		}
		if p.Filesz > p.Memsz || p.Vaddr+p.Filesz < p.Vaddr {
			return cause(ErrBadEncoding, "malformed ELF headers: segment %d has an absurd size", i)
		}
	}
	for _, s := range f.Sections {
		if hasBytes(s) && !o.holds(s.Offset, s.FileSize) {
			return cause(ErrTruncated, "truncated: section %s ends at %#x, the file at %#x",
				PrintableName(s.Name), s.Offset+s.FileSize, o.size)
		}
	}
	if o.dynamic, err = elffile.Dynamic(f); err != nil {
		return fmt.Errorf("reading the dynamic section: %w", err)
	}
	o.code = codeSegments(f, inFile)
	o.buildID, _ = abi.BuildID(o.r) // without one, an object is identified by its content
	return nil
}

// holds reports whether [off, off+n) lies in the file.
func (o *File) holds(off, n uint64) bool {
	return off <= uint64(o.size) && n <= uint64(o.size)-off
}

// checkHeader returns distinct errors for files of other kinds and for files
// cut off within their headers (gABI chapter 4, "ELF Header").
func checkHeader(r io.ReaderAt, size int64) error {
	const (
		headerSize = 64
		minimum    = 20 // up to e_machine
	)
	var h [headerSize]byte
	n := int(min(size, headerSize))
	if n < 0 {
		n = 0
	}
	if m, err := r.ReadAt(h[:n], 0); m < n && err != nil {
		if !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading the ELF header: %w", err)
		}
		n = m
	}
	if n >= 8 && (string(h[:8]) == "!<arch>\n" || string(h[:8]) == "!<thin>\n") { // ar(5)
		return fmt.Errorf("%w: a static archive", ErrNotELF)
	}
	if n < 4 || string(h[:4]) != elf.ELFMAG {
		return ErrNotELF
	}
	if n < minimum {
		return cause(ErrTruncated, "truncated: the file ends in the ELF header")
	}
	if err := checkKind(h[:]); err != nil {
		return err
	}
	if n < headerSize {
		return cause(ErrTruncated, "truncated: the file ends in the ELF header")
	}
	tables := []struct {
		what         string
		off          uint64
		count, entry uint16
	}{
		{"program headers", binary.LittleEndian.Uint64(h[32:]), binary.LittleEndian.Uint16(h[56:]),
			binary.LittleEndian.Uint16(h[54:])},
		{"section headers", binary.LittleEndian.Uint64(h[40:]), binary.LittleEndian.Uint16(h[60:]),
			binary.LittleEndian.Uint16(h[58:])},
	}
	for _, t := range tables {
		n := uint64(t.count) * uint64(t.entry)
		if t.count > 0 && (t.off > uint64(size) || n > uint64(size)-t.off) {
			return cause(ErrTruncated, "truncated: the %s at %#x lead past the end of the file at %#x", t.what, t.off, size)
		}
	}
	return nil
}

// checkKind checks class, byte order, machine and type in an ELF header.
func checkKind(h []byte) error {
	if elf.Data(h[elf.EI_DATA]) == elf.ELFDATA2MSB {
		machine := elf.Machine(binary.BigEndian.Uint16(h[18:]))
		return fmt.Errorf("%w: big-endian, for %s", ErrNotX86_64, machineText(machine))
	}
	machine := elf.Machine(binary.LittleEndian.Uint16(h[18:]))
	switch {
	case elf.Class(h[elf.EI_CLASS]) == elf.ELFCLASS32:
		return fmt.Errorf("%w: ELF32, for %s", ErrNotX86_64, machineText(machine))
	case elf.Class(h[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(h[elf.EI_DATA]) != elf.ELFDATA2LSB:
		return cause(ErrBadEncoding, "malformed ELF header: unknown class or byte order")
	case machine != elf.EM_X86_64:
		return fmt.Errorf("%w: for %s", ErrNotX86_64, machineText(machine))
	}
	switch t := elf.Type(binary.LittleEndian.Uint16(h[16:])); t {
	case elf.ET_EXEC, elf.ET_DYN:
	case elf.ET_REL:
		return fmt.Errorf("%w: a relocatable object", ErrNotLoadable)
	case elf.ET_CORE:
		return fmt.Errorf("%w: a core file", ErrNotLoadable)
	default:
		return fmt.Errorf("%w: ELF type %v", ErrNotLoadable, t)
	}
	return nil
}

// Name returns the name the object was opened with.
func (o *File) Name() string { return o.name }

// BuildID returns the desc of the object's NT_GNU_BUILD_ID note, or nil if it
// has none. The caller must not change it.
func (o *File) BuildID() []byte { return o.buildID }

// FileSize returns the size of the file in bytes.
func (o *File) FileSize() int64 { return o.size }

// File returns a reader of the object's file, valid for as long as the object is
// open.
func (o *File) File() io.ReaderAt { return o.r }

// Close closes the file that Open opened.
func (o *File) Close() error {
	if o.closer == nil {
		return nil
	}
	return o.closer.Close()
}

// machineText names a machine as <elf.h> does, or by number if <elf.h> has no
// name.
func machineText(m elf.Machine) string {
	if name := m.String(); strings.HasPrefix(name, "EM_") && !strings.Contains(name, "+") {
		return "machine " + name
	}
	return fmt.Sprintf("machine %#x", uint16(m))
}

// FunctionStarts returns the start addresses of the FDEs of an object, ascending.
func (o *File) FunctionStarts(src Source) ([]Addr, error) {
	sections, err := o.Sections(src)
	if len(sections) == 0 {
		return nil, err
	}
	var starts []Addr
	for _, s := range sections {
		// Both sections count, if there are two.
		for e := range s.Entries() {
			if e.FDE != nil && e.FDE.Start < e.FDE.End {
				starts = append(starts, e.FDE.Start)
			}
		}
	}
	slices.Sort(starts)
	return slices.Compact(starts), nil
}
