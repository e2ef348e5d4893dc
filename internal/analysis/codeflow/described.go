package codeflow

import (
	"slices"
	"sort"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/lsda"
)

// This file turns FDEs into functions: it drops those without code, cuts overlaps, and takes from LSDAs and
// DW_CFA_GNU_args_size what the flow needs of exceptions.

// Described is an object's code and the functions that its FDEs describe.
type Described struct {
	Image *Image
	// Functions are the FDEs' ranges, ascending and disjoint. If two overlap, the later one counts, as in a lookup.
	Functions []Function
	FDEs      []*dwarfcfa.FDE   // of Functions, by the same index
	Frame     *dwarfcfa.Section // .eh_frame; nil: none
	Behind    uint64            // offset of Frame's first terminator that FDEs follow; 0: there is none
	LSDAs     []BadLSDA
	Unread    int // FDEs that cannot be read
	Outside   int // FDEs outside the code, or larger than maxDescribed
}

// BadLSDA is a language-specific data area that can't be read.
type BadLSDA struct {
	FDE *dwarfcfa.FDE
	Err error
}

// maxDescribed bounds an FDE's range in bytes, 64 MB; a larger one is no function.
const maxDescribed = 1 << 26

// manyEntries is how many functions begin inside an FDE that describes no code of a compiler, such as one of a whole
// section.
const manyEntries = 5

// Describe reads the code of a linked object and the FDEs of sections of it. sections are in the order in which they
// count; the error is about the image, since bad FDEs are only counted.
func Describe(o *dwarfcfa.File, sections []*dwarfcfa.Section) (*Described, error) {
	img, err := NewImage(o.File())
	if err != nil {
		return nil, err
	}
	d := &Described{Image: img}
	areas := lsda.NewReader(o)
	for _, sec := range sections {
		d.collect(sec, areas)
	}
	d.arrange()
	return d, nil
}

// entrySize is about how many bytes of a section an FDE takes, rather less than more: it sizes slices, and a wrong
// guess costs a copy.
const entrySize = 40

// collect takes the FDEs of a section, with call sites from their LSDAs. FDEs behind a terminator are taken, too:
// unwinders that search .eh_frame_hdr find them, and Behind notes where they begin. FDEs that cannot be read, or have
// no code, are counted only: one bad entry must not hide the others.
func (d *Described) collect(sec *dwarfcfa.Section, areas *lsda.Reader) {
	if sec.Source() == dwarfcfa.SourceEHFrame {
		d.Frame = sec
	}
	end := uint64(0) // of the entries before a terminator
	n := int(sec.Size() / entrySize)
	d.Functions, d.FDEs = slices.Grow(d.Functions, n), slices.Grow(d.FDEs, n)
	for e, err := range sec.Entries() {
		if e.IsCIE {
			continue
		}
		if err != nil {
			d.Unread++
			continue
		}
		if e.FDE == nil && end == 0 {
			end = e.Offset
		}
		if e.FDE == nil || e.FDE.End <= e.FDE.Start {
			continue
		}
		f := e.FDE
		if end > 0 && d.Behind == 0 {
			d.Behind = end
		}
		// Of a debug file without code, or hostile.
		if d.Image.Code(uint64(f.Start)) == nil || f.End-f.Start > maxDescribed {
			d.Outside++
			continue
		}
		fn := Function{Lo: uint64(f.Start), Hi: uint64(f.End), Signal: f.CIE.Signal}
		if t, err := areas.Table(f); err != nil {
			d.LSDAs = append(d.LSDAs, BadLSDA{f, err})
		} else if t != nil {
			for _, c := range t.Effective() {
				if c.Pad != 0 {
					fn.Sites = append(fn.Sites, Site{Lo: uint64(c.Start), Hi: uint64(c.End), Pad: uint64(c.Pad)})
				}
			}
		}
		if sizes, err := f.ArgsSizes(); err == nil {
			for _, a := range sizes {
				fn.ArgSizes = append(fn.ArgSizes, ArgSize{PC: uint64(a.Start), Bytes: int32(min(a.Size, 1<<30))})
			}
		}
		d.Functions = append(d.Functions, fn)
		d.FDEs = append(d.FDEs, f)
	}
}

// arrange sorts the functions; if one starts inside another, the other ends there. So does one in which a symbol for
// other files says that a second one begins.
func (d *Described) arrange() {
	order := make([]int, len(d.FDEs))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return d.Functions[order[a]].Lo < d.Functions[order[b]].Lo })
	fns, fdes := make([]Function, 0, len(order)), make([]*dwarfcfa.FDE, 0, len(order))
	for _, i := range order {
		f := d.Functions[i]
		if n := len(fns); n > 0 {
			if fns[n-1].Lo == f.Lo { // of equal starts one counts, as for rows
				if d.finds(d.FDEs[i]) && !d.finds(fdes[n-1]) {
					fns[n-1], fdes[n-1] = f, d.FDEs[i]
				}
				continue
			}
			fns[n-1].Hi = min(fns[n-1].Hi, f.Lo)
		}
		inner := d.Image.StartsWithin(f.Lo, f.Hi)
		if f.Signal = f.Signal || len(inner) > manyEntries; f.Signal {
			inner = nil
		}
		fns, fdes = append(fns, f), append(fdes, d.FDEs[i])
		for _, start := range inner {
			if d.Image.Exported(start) { // a local symbol may name what is jumped to
				fns[len(fns)-1].Hi = start
				f.Lo, f.Entry = start, true
				fns, fdes = append(fns, f), append(fdes, d.FDEs[i])
			}
		}
	}
	d.Functions, d.FDEs = fns, fdes
}

// finds reports whether the table of .eh_frame_hdr names the FDE for its start.
func (d *Described) finds(f *dwarfcfa.FDE) bool {
	offset, ok := f.Section().Named(f.Start)
	return ok && offset == f.Offset
}
