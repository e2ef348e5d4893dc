package dwarfcfa

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// This file finds the section that rows come from, and reads sections whole, compressed ones too.

// maxRead bounds the bytes read from a file in one piece: a sparse file of any size costs its author nothing.
// elffile.Open also bounds what compressed sections hold.
const maxRead = 1 << 30

// Section finds the object's unwind section; .sframe comes rewritten as CIEs and FDEs. With SourceAuto it is .eh_frame
// where that holds an FDE, else .debug_frame. The error wraps ErrNoUnwindInfo
// if there is none.
func (o *File) Section(src Source) (*Section, error) {
	s, err := o.locate(src)
	if err != nil {
		return nil, nameError(o.name, err)
	}
	return s, nil
}

// source is Section for code that makes tables. kind says which section it is. Tables are made from .sframe directly,
// other users get it as CIEs and FDEs. The error is Section's, or of .sframe.
func (o *File) source(src Source) (s tableSource, kind Source, err error) {
	// Rows of .sframe need no detour through CIEs and FDEs.
	if src == SourceSFrame {
		s, err := o.sframeSource()
		return s, src, err
	}
	section, err := o.Section(src)
	if err == nil {
		return newCFISource(section), section.Source(), nil
	}
	// Only where neither of the other two has an FDE.
	if src == SourceAuto && errors.Is(err, ErrNoUnwindInfo) {
		if s, err := o.sframeSource(); !errors.Is(err, ErrNoUnwindInfo) {
			return s, SourceSFrame, err
		}
	}
	return nil, src, err
}

// sframeSource returns .sframe as a source of rows.
func (o *File) sframeSource() (tableSource, error) {
	s, err := o.sframe()
	if err == nil && s == nil {
		err = fmt.Errorf("%w: no .sframe", ErrNoUnwindInfo)
	}
	if err != nil {
		return nil, nameError(o.name, err)
	}
	return &sframeSource{s, o.name}, nil
}

// Sections finds all sections that BuildTable reads: with SourceAuto .debug_frame
// follows .eh_frame if both hold FDEs. If the second cannot be read, the first is
// returned with the error.
func (o *File) Sections(src Source) ([]*Section, error) {
	s, err := o.Section(src)
	if err != nil {
		return nil, err
	}
	all := []*Section{s}
	// A section that the caller names is the only one.
	if src != SourceAuto || s.Source() != SourceEHFrame {
		return all, nil
	}
	more, err := o.debugFrame()
	if err != nil {
		return all, &DecodeError{File: o.name, Section: ".debug_frame", Err: err}
	}
	if more != nil && more.HasFDE() {
		all = append(all, more)
	}
	return all, nil
}

// locate returns the section that src names; SourceAuto is the first that has an FDE.
func (o *File) locate(src Source) (*Section, error) {
	switch src {
	case SourceSFrame:
		s, err := o.sframeCFI()
		if err == nil && s == nil {
			err = fmt.Errorf("%w: no .sframe", ErrNoUnwindInfo)
		}
		return s, err
	case SourceEHFrame:
		s, err := o.ehFrame()
		if err == nil && s == nil {
			err = fmt.Errorf("%w: no .eh_frame", ErrNoUnwindInfo)
		}
		return s, err
	case SourceDebugFrame:
		s, err := o.debugFrame()
		if err == nil && s == nil {
			err = fmt.Errorf("%w: no .debug_frame", ErrNoUnwindInfo)
		}
		return s, err
	}
	// An empty .eh_frame, as linkers leave it, does not count.
	for _, find := range []func() (*Section, error){o.ehFrame, o.debugFrame} {
		s, err := find()
		if err != nil {
			return nil, err
		}
		if s != nil && s.HasFDE() {
			return s, nil
		}
	}
	return nil, fmt.Errorf("%w: neither .eh_frame nor .debug_frame has an FDE", ErrNoUnwindInfo)
}

// debugFrame finds .debug_frame: plain, compressed (SHF_COMPRESSED), or in the
// older form .zdebug_frame. It returns nil if the object has none.
func (o *File) debugFrame() (*Section, error) {
	for _, sec := range o.file.Sections {
		if !hasBytes(sec) {
			continue
		}
		var data []byte
		var err error
		// One of the two, in the order of the section headers.
		switch sec.Name {
		case ".debug_frame":
			data, err = o.contents(sec)
		case ".zdebug_frame":
			data, err = o.contents(sec)
			if err == nil {
				data, err = inflateOld(data)
			}
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		return NewSection(o.name, SourceDebugFrame, Addr(sec.Addr), data, o.bases()), nil // no loader has read it
	}
	return nil, nil
}

// hasBytes reports whether a section has its contents in the file. Opening the
// file has checked that they lie within it.
func hasBytes(sec *elf.Section) bool {
	return sec.Type != elf.SHT_NOBITS && sec.Type != elf.SHT_NULL
}

// contents reads a section, and decompresses it if it is compressed.
func (o *File) contents(sec *elf.Section) ([]byte, error) {
	data, err := o.readSection(sec)
	// Errors of debug/elf become this package's, for errors.Is.
	if err != nil {
		kind := ErrBadEncoding
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			kind = ErrTruncated
		}
		if errors.Is(err, ErrUnsupported) {
			kind = ErrUnsupported
		}
		return nil, cause(kind, "section %s: %v", sec.Name, err)
	}
	return data, nil
}

// readSection returns the bytes of a section, decompressed.
func (o *File) readSection(sec *elf.Section) (data []byte, err error) {
	if sec.Flags&elf.SHF_COMPRESSED != 0 {
		defer func() {
			if p := recover(); p != nil { // a decompressor of debug/elf
				data, err = nil, fmt.Errorf("debug/elf: %v", p)
			}
		}()
		return readLimited(sec.Open(), sec.Size)
	}
	// Not sec.Data: for .zdebug sections that changes sec.
	return o.read(sec.Offset, sec.FileSize)
}

// read reads bytes of the file that it has.
func (o *File) read(off, size uint64) ([]byte, error) {
	// A header may claim any size.
	if size > maxRead {
		return nil, cause(ErrUnsupported, "%#x bytes in one piece", size)
	}
	data := make([]byte, size)
	if n, err := o.r.ReadAt(data, int64(off)); n < len(data) {
		return nil, err
	}
	return data, nil
}

// inflateOld undoes the compression of .zdebug_* sections: "ZLIB", the size as
// a big-endian word, a zlib stream.
func inflateOld(data []byte) ([]byte, error) {
	// Magic, size, and something to inflate.
	if len(data) < 12 || string(data[:4]) != "ZLIB" {
		return nil, cause(ErrBadEncoding, "section .zdebug_frame: no ZLIB header")
	}
	z, err := zlib.NewReader(bytes.NewReader(data[12:]))
	if err != nil {
		return nil, cause(ErrBadEncoding, "section .zdebug_frame: %v", err)
	}
	out, err := readLimited(z, binary.BigEndian.Uint64(data[4:]))
	if err != nil {
		return nil, cause(ErrBadEncoding, "section .zdebug_frame: %v", err)
	}
	return out, nil
}

// readLimited reads exactly size bytes, but not more than maxRead, growing its
// buffer as the bytes come.
func readLimited(r io.Reader, size uint64) ([]byte, error) {
	if size > maxRead {
		return nil, fmt.Errorf("a decompressed size of %#x bytes is absurd", size)
	}
	// Memory grows with what comes, not with what is claimed.
	var buf bytes.Buffer
	n, err := io.Copy(&buf, io.LimitReader(r, int64(size)))
	if err != nil {
		return nil, err
	}
	// Fewer bytes than claimed are an error; more are not read.
	if uint64(n) < size {
		return nil, io.ErrUnexpectedEOF
	}
	return bytes.Clone(buf.Bytes()), nil // buf may be twice as large
}
