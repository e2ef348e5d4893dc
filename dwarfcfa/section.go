package dwarfcfa

import "fmt"

// Source says which section unwind tables are read from.
type Source int

const (
	SourceAuto       Source = iota // .eh_frame, and .debug_frame for pcs it does not cover; .sframe if neither has an FDE
	SourceEHFrame                  // .eh_frame (LSB 5.0 §10.6)
	SourceDebugFrame               // .debug_frame (DWARF 5 §6.4.1)
	SourceSFrame                   // .sframe, see package sframe
)

func (s Source) String() string {
	switch s {
	case SourceAuto:
		return "auto"
	case SourceEHFrame:
		return "eh_frame"
	case SourceDebugFrame:
		return "debug_frame"
	case SourceSFrame:
		return "sframe"
	}
	return fmt.Sprintf("source %d", int(s))
}

// ParseSource is the inverse of Source.String.
func ParseSource(name string) (Source, error) {
	for _, s := range []Source{SourceAuto, SourceEHFrame, SourceDebugFrame, SourceSFrame} {
		if s.String() == name {
			return s, nil
		}
	}
	return SourceAuto, fmt.Errorf("unknown source %q: want auto, eh_frame, debug_frame or sframe", name)
}

// Section is a section of call frame information: a sequence of CIEs and FDEs.
// It does not change once made, and is safe for concurrent use.
type Section struct {
	Name string // ".eh_frame" or ".debug_frame"
	Addr Addr   // where the section lies in the object; 0 for .debug_frame
	Data []byte // its bytes, decompressed

	file       string // name of the object, for errors
	debugFrame bool
	// walked is the size of the part of Data in which entry follows entry; behind it are those that hdr names. The first
	// zero length ends that part if only its start is known. If section headers give its size, entries after a terminator
	// (left by linkers between the input sections) count too, as in readelf.
	walked   int
	hdr      *ehFrameHdr // nil: none
	bases    Bases
	moved    bool      // the object may be loaded at any load bias
	rewrites []rewrite // what a loader writes of Data
}

// NewSection makes a section from bytes. src is SourceEHFrame or
// SourceDebugFrame, file the object's name for error messages.
func NewSection(file string, src Source, addr Addr, data []byte, bases Bases) *Section {
	s := &Section{Name: ".eh_frame", Addr: addr, Data: data, walked: len(data), file: file, bases: bases}
	if src == SourceDebugFrame {
		s.Name, s.debugFrame = ".debug_frame", true
	}
	return s
}

// section makes a section of memory: of the file's bytes at addr, as a loader leaves them.
func (o *File) section(src Source, addr Addr, data []byte) (*Section, error) {
	rewrites, err := o.loaded(addr, data)
	if err != nil {
		return nil, err
	}
	s := NewSection(o.name, src, addr, data, o.bases())
	s.moved, s.rewrites = o.moved(), rewrites
	return s, nil
}

// cursor returns a cursor at an offset of the section, which reads up to end.
func (s *Section) cursor(pos, end int) cursor {
	return cursor{data: s.Data[:end], pos: pos, rewrites: s.rewrites}
}

// Source returns which kind of section s is.
func (s *Section) Source() Source {
	if s.debugFrame {
		return SourceDebugFrame
	}
	return SourceEHFrame
}

// Size returns the size of the section's contents in bytes.
func (s *Section) Size() int64 { return int64(len(s.Data)) }

// HdrSize returns the size of the object's .eh_frame_hdr in bytes, or 0 if it
// has none or the section is .debug_frame.
func (s *Section) HdrSize() int64 {
	if s.hdr == nil {
		return 0
	}
	return s.hdr.size
}

// HasFDE reports whether the section holds at least one FDE.
func (s *Section) HasFDE() bool {
	for e, err := range s.Entries() {
		if e.FDE != nil || err != nil && !e.IsCIE {
			return true
		}
	}
	return false
}

// errorAt says at which entry an error occurred; errorOf also names the pcs of its FDE.
func (s *Section) errorAt(offset int, err error) *DecodeError {
	return &DecodeError{File: s.file, Section: s.Name, Offset: uint64(offset), Err: err}
}

func (s *Section) errorOf(f *FDE, err error) *DecodeError {
	return &DecodeError{File: s.file, Section: s.Name, Offset: f.Offset, HasFDE: true, Start: f.Start, End: f.End,
		Err: err}
}
