package inspect

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/debuginfo/prototypes"
	"github.com/ehasm/ehasm/internal/debuginfo/srcline"
	"github.com/ehasm/ehasm/internal/files/output"
)

// Prototype is the prototype of a function.
type Prototype struct {
	Source      string `json:"source"`            // DWARF or BTF
	Address     string `json:"address,omitempty"` // of DWARF's functions alone: hexadecimal, link-time
	Name        string `json:"name"`
	Parameters  string `json:"parameters,omitempty"` // types in brackets, as in (int, char *)
	Declaration string `json:"declaration,omitempty"`
	Error       string `json:"error,omitempty"` // why the other texts are missing
}

// errNoTypes says that there is no debug information of types.
var errNoTypes = errors.New("no debug information and no .BTF section with functions")

// types shows the prototypes of an object's functions: those of DWARF first, then those of BTF. The file may be raw
// BTF. Damage in one of the two does not hide the other: errors of both are joined, behind what could be shown.
func (d *Dump) types(path string, r io.ReaderAt, size int64, w io.Writer) error {
	var notes []error // what could not be read; the rest is shown nevertheless
	shown := 0
	lines, err := openLines(path, r, size)
	switch {
	case err == nil:
		defer lines.Close()
	// What is no x86-64 ELF file at all fails as in the other stages.
	case errors.Is(err, dwarfcfa.ErrTruncated) || errors.Is(err, dwarfcfa.ErrNotX86_64):
		return err
	case isELF(r) && !errors.Is(err, srcline.ErrNone):
		notes = append(notes, err)
	}
	table, err := prototypes.OfFile(r)
	// The same fault of the file is reported once.
	if err != nil && !errors.Is(err, prototypes.ErrNone) && (len(notes) == 0 || notes[0].Error() != err.Error()) {
		notes = append(notes, err)
	}
	// DWARF's functions have addresses, and come first; those of BTF only have names.
	each := func(yield func(Prototype) bool) {
		if lines != nil {
			for f := range lines.Functions() {
				if d.PC != nil && uint64(*d.PC) != f.Addr {
					continue
				}
				shown++
				if !yield(Prototype{"DWARF", fmt.Sprintf("%#x", f.Addr), f.Name, f.Parameters, f.Declaration, text(f.Err)}) {
					return
				}
			}
		}
		if table == nil || d.PC != nil { // BTF has no addresses
			return
		}
		for p, err := range table.All() {
			shown++
			if !yield(Prototype{"BTF", "", p.Name, p.Parameters, p.Declaration, text(err)}) {
				return
			}
		}
	}
	if d.JSON {
		err = output.JSONSeq(w, each)
	} else {
		err = nil
		for t := range each {
			if t.Error != "" {
				t.Declaration = t.Name + ": " + t.Error
			}
			if t.Address != "" {
				t.Source += " " + t.Address
			}
			if _, err = fmt.Fprintf(w, "%s %s\n", t.Source, dwarfcfa.PrintableName(t.Declaration)); err != nil {
				break
			}
		}
	}
	// Nothing shown and nothing noted is an error: of the address, or of the file.
	switch {
	case err != nil || shown > 0 || len(notes) > 0:
	case d.PC != nil:
		err = fmt.Errorf("%#x: no function with debug information begins there", uint64(*d.PC))
	default:
		err = errNoTypes
	}
	if lines != nil {
		notes = append(notes, lines.Err())
	}
	return errors.Join(append([]error{err}, notes...)...)
}

// text returns an error's text, "" for nil.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// isELF reports whether a file begins with ELF's magic bytes; the alternative is raw BTF.
func isELF(r io.ReaderAt) bool {
	magic := make([]byte, len(elf.ELFMAG))
	n, _ := r.ReadAt(magic, 0)
	return bytes.Equal(magic[:n], []byte(elf.ELFMAG))
}
