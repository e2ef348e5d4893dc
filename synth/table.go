package synth

import (
	"github.com/ehasm/ehasm/codeflow"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// Of makes the rows of an object.
func Of(o *dwarfcfa.Object, opt Options) (*Result, error) {
	img, err := codeflow.NewImage(o.File())
	if err != nil {
		return nil, err
	}
	return Make(img, Described(o), opt), nil
}

// Section is the result as a section of package dwarfcfa; nil where no row was made.
func (r *Result) Section(name string) *dwarfcfa.Section {
	if len(r.Functions) == 0 {
		return nil
	}
	return dwarfcfa.NewSection(name, dwarfcfa.SourceDebugFrame, 0, Section(r.Functions), dwarfcfa.Bases{})
}

// Rows is the number of rows made.
func (r *Result) Rows() (n int) {
	for i := range r.Functions {
		n += len(r.Functions[i].Ranges)
	}
	return n
}
