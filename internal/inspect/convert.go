package inspect

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/convert"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/sframe"
)

// Converted describes unwind tables in another format.
type Converted struct {
	Object    string `json:"object"`
	Output    string `json:"output"`
	Format    string `json:"format"`
	Version   uint8  `json:"version"`       // of SFrame
	Functions int    `json:"functions"`     // entries in the table of functions
	Rows      int    `json:"rows"`          // rows in the new format
	Size      int    `json:"size"`          // bytes written
	TableSize int64  `json:"table_size"`    // of what was read
	Bytes     uint64 `json:"bytes_of_code"` // bytes of code whose rows are expressed
	// Bytes of code without a row in the new format, by reason.
	Left map[string]uint64 `json:"left_out"`
}

// Print writes the result for people.
func (r *Converted) Print(w io.Writer) {
	fmt.Fprintf(w, "%s: SFrame version %d, %d functions, %d rows, %d bytes for %d of %s\n", r.Output, r.Version,
		r.Functions, r.Rows, r.Size,
		r.TableSize, output.Name(r.Object))
	for _, reason := range slices.Sorted(maps.Keys(r.Left)) {
		fmt.Fprintf(w, "  %d of %d bytes of code are left out: %s\n", r.Left[reason], r.all(), reason)
	}
}

// all returns the number of bytes of code that the object has rows for.
func (r *Converted) all() uint64 {
	n := r.Bytes
	for _, left := range r.Left {
		n += left
	}
	return n
}

// ConvertOptions say what Convert writes.
type ConvertOptions struct {
	Version uint8  // of SFrame: 1, 2 or 3
	Address uint64 // of the section, link-time
	Attach  bool   // return a copy of the file that has the section in a segment
	Source  dwarfcfa.Source
}

// Convert returns the unwind tables of a file in another format, and what it can express of them. The error wraps
// dwarfcfa's where the file has no tables; what the format cannot express is no error, but counted in Left.
func Convert(path string, opt ConvertOptions) (b []byte, r *Converted, err error) {
	file, size, done, err := find.OpenFile(path)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	object, err := dwarfcfa.NewFile(path, file, size)
	if err != nil {
		return nil, nil, err
	}
	table, found, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{Source: opt.Source})
	if err != nil {
		return nil, nil, err
	}
	r = &Converted{Object: path, Format: "sframe", TableSize: found.SectionSize + found.HdrSize}
	switch {
	case opt.Attach:
		return attachSFrame(io.NewSectionReader(file, 0, size), object, table, opt, r)
	default:
		b, err = sframeSection(object, table, opt, r)
	}
	r.Size = len(b)
	return b, r, err
}

// ptGNUSFrame is PT_GNU_SFRAME, by which a kernel or a C library finds .sframe in memory (binutils'
// include/elf/common.h).
const ptGNUSFrame elf.ProgType = 0x6474e554

// attachSFrame returns a copy of a file with .sframe. It reads the section back and compares it with the file's table,
// since a loader would trust it. The section's offsets depend on where elfout puts it, so Contents is called with that
// address.
func attachSFrame(file io.Reader, object *dwarfcfa.File, table *dwarfcfa.Table, opt ConvertOptions,
	r *Converted) ([]byte, *Converted, error) {
	old, err := io.ReadAll(file)
	if err != nil {
		return nil, r, err
	}
	b, err := elfout.Attach(old, elfout.Attachment{Section: dwarfcfa.SFrameName, Segment: ptGNUSFrame,
		Contents: func(addr uint64) ([]byte, error) {
			opt.Address = addr
			section, err := sframeSection(object, table, opt, r)
			r.Size = len(section)
			return section, err
		}})
	if err != nil {
		return nil, r, err
	}
	again, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return nil, r, err
	}
	seg := again.Progs[len(again.Progs)-1]
	data := make([]byte, seg.Filesz)
	if _, err := seg.ReadAt(data, 0); err != nil {
		return nil, r, err
	}
	s, err := sframe.Parse(seg.Vaddr, data)
	if err == nil {
		err = convert.VerifySFrame(table, s)
	}
	return b, r, err
}

// take notes what a format can express.
func (r *Converted) take(rep convert.Report) {
	r.Functions, r.Rows, r.Bytes, r.Left = rep.Functions, rep.Rows, rep.Bytes, rep.Left
}

// sframeSection returns the contents of a .sframe section, and notes in r what it cannot express.
func sframeSection(object *dwarfcfa.File, table *dwarfcfa.Table, opt ConvertOptions, r *Converted) ([]byte, error) {
	// SFrame groups rows by function; the FDEs' first addresses say where one begins.
	starts, err := object.FunctionStarts(opt.Source)
	if err != nil && !errors.Is(err, dwarfcfa.ErrNoUnwindInfo) { // .sframe has none
		return nil, err
	}
	entries, rep := convert.ToSFrame(table, opt.Version, starts)
	r.Version = opt.Version
	r.take(rep)
	return sframe.Encode(sframe.Options{Version: opt.Version, Addr: opt.Address, PCRel: opt.Version == 3}, entries)
}
