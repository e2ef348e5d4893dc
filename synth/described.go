package synth

import (
	"cmp"
	"slices"

	"github.com/ehasm/ehasm/codeflow"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/lsda"
)

// Described are the functions that an object's unwind sections describe, with the landing
// pads of their exceptions: sorted, disjoint, none empty. Where there is no section, there
// are none. Of the rows nothing is taken.
func Described(o *dwarfcfa.Object) []codeflow.Function {
	sections, err := o.Sections(dwarfcfa.SourceAuto)
	if err != nil && len(sections) == 0 {
		return nil
	}
	var fns []codeflow.Function
	reader := lsda.NewReader(o)
	for _, s := range sections {
		for e, err := range s.Entries() {
			if err != nil || e.FDE == nil || e.FDE.End <= e.FDE.Start {
				continue // what is wrong with the section is for others to tell
			}
			f := codeflow.Function{Lo: uint64(e.FDE.Start), Hi: uint64(e.FDE.End), Signal: e.FDE.CIE.Signal}
			if t, err := reader.Table(e.FDE); err == nil && t != nil {
				for _, c := range t.Sites {
					if c.Pad != 0 {
						f.Sites = append(f.Sites, codeflow.Site{Lo: uint64(c.Start), Hi: uint64(c.End), Pad: uint64(c.Pad)})
					}
				}
			}
			fns = append(fns, f)
		}
	}
	slices.SortStableFunc(fns, func(a, b codeflow.Function) int { return cmp.Compare(a.Lo, b.Lo) })
	fns = slices.CompactFunc(fns, func(a, b codeflow.Function) bool { return a.Lo == b.Lo })
	for i := 1; i < len(fns); i++ {
		fns[i-1].Hi = min(fns[i-1].Hi, fns[i].Lo)
	}
	return fns
}
