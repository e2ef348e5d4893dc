package synth

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
)

// This file joins made rows with an object's own: which modes there are, which rows replace the file's, and how the
// result goes on to eh_elfs and tables.

// Mode says for which code rows are made.
type Mode uint8

// Modes. Each includes the one before.
const (
	Off     Mode = iota
	Missing      // code that no FDE covers
	Wrong        // and instructions in Options.Wrong
	All          // all code: the file's own rows do not count
)

var modeNames = []string{"off", "missing", "wrong", "all"}

func (m Mode) String() string { return modeNames[m] }

// ParseMode is the inverse of Mode.String. The error lists the modes.
func ParseMode(name string) (Mode, error) {
	i := slices.Index(modeNames, name)
	if i < 0 {
		return Off, fmt.Errorf("unknown mode %q: want off, missing, wrong or all", name)
	}
	return Mode(i), nil
}

// Of makes the rows of an object, which need not have unwind tables. With Off it makes none. opt.Wrong must be set for
// Mode Wrong. An error means that the file's sections or segments can't be read; code of which nothing is known only
// lowers Answered.
func Of(o *dwarfcfa.File, opt Options) (*Result, error) {
	if opt.Mode == Off {
		return &Result{}, nil
	}
	sections, err := o.Sections(dwarfcfa.SourceAuto)
	if err != nil && !errors.Is(err, dwarfcfa.ErrNoUnwindInfo) {
		return nil, err
	}
	d, err := codeflow.Describe(o, sections)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dwarfcfa.PrintableName(o.Name()), err)
	}
	r := makeRest(o, d.Image, d.Functions, opt)
	if opt.Mode == Wrong && len(d.FDEs) > 0 {
		r.keepWrong(d.Functions, opt.Wrong(d, opt.Workers, opt.Progress))
	}
	return r, nil
}

// makeRest is Make, but where only rows that are missing are wanted, Go's table gives those of a Go program's
// functions.
func makeRest(o *dwarfcfa.File, img *codeflow.Image, described []codeflow.Function, opt Options) *Result {
	var program *goProgram
	if opt.Mode == Missing {
		program = readGo(o, img, described)
	}
	if program == nil {
		return Make(img, described, opt)
	}
	r := makeWith(img, sorted(described, program.written), program, opt)
	r.Functions, r.Replace = append(r.Functions, program.rows...), program.ends
	slices.SortFunc(r.Functions, func(a, b Function) int { return cmp.Compare(a.Start(), b.Start()) })
	for i := range program.rows {
		r.Wanted += uint64(program.rows[i].End() - program.rows[i].Start())
	}
	r.count()
	return r
}

// sorted returns the functions of both lists.
func sorted(a, b []codeflow.Function) []codeflow.Function {
	if len(b) == 0 {
		return a
	}
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(a, b codeflow.Function) int { return cmp.Compare(a.Lo, b.Lo) })
	return all
}

// keepWrong keeps, of the rows for code that FDEs cover, those in ranges in which the file's are wrong.
func (r *Result) keepWrong(described []codeflow.Function, wrong []dwarfcfa.Range) {
	r.Replace = joined(wrong)
	for _, x := range r.Replace {
		r.Wanted += uint64(x.End - x.Start)
	}
	r.Declined = Declined{} // most of it in code that keeps its own rows
	var kept []Function
	var answered []dwarfcfa.Range
	for i := range r.Functions {
		f := &r.Functions[i]
		pos, _ := slices.BinarySearchFunc(described, uint64(f.Start()),
			func(d codeflow.Function, pc uint64) int { return cmp.Compare(d.Hi, pc+1) })
		if pos == len(described) || uint64(f.End()) <= described[pos].Lo { // of no FDE
			kept = append(kept, *f)
			continue
		}
		for _, part := range f.within(r.Replace) {
			kept = append(kept, part)
			answered = append(answered, dwarfcfa.Range{Start: part.Start(), End: part.End()})
		}
	}
	r.Functions, r.Replace = kept, answered
	r.count()
}

// joined sorts ranges and joins those that touch or overlap.
func joined(list []dwarfcfa.Range) []dwarfcfa.Range {
	slices.SortFunc(list, func(a, b dwarfcfa.Range) int { return cmp.Compare(a.Start, b.Start) })
	out := list[:0]
	for _, r := range list {
		if n := len(out); n > 0 && out[n-1].End >= r.Start {
			out[n-1].End = max(out[n-1].End, r.End)
			continue
		}
		out = append(out, r)
	}
	return out
}

// within cuts a function to the parts that lie in ranges.
func (f *Function) within(ranges []dwarfcfa.Range) (parts []Function) {
	first, _ := slices.BinarySearchFunc(ranges, f.Start()+1,
		func(r dwarfcfa.Range, pc dwarfcfa.Addr) int { return cmp.Compare(r.End, pc) })
	for _, cut := range ranges[first:] {
		if cut.Start >= f.End() {
			break
		}
		fresh := true
		for _, r := range f.Ranges {
			if lo, hi := max(r.Start, cut.Start), min(r.End, cut.End); lo < hi {
				parts = Add(parts, f.Name, fresh, lo, hi, r.Row)
				fresh = false
			}
		}
	}
	return parts
}

// Made returns the result for dwarfcfa.BuildTable. name is the object's, for
// errors.
func (r *Result) Made(name string) dwarfcfa.Made {
	return dwarfcfa.Made{Section: r.Section(name), Replace: r.Replace, All: r.all}
}

// Section returns the result as a section of package dwarfcfa, or nil if no row
// was made.
func (r *Result) Section(name string) *dwarfcfa.Section {
	if len(r.Functions) == 0 {
		return nil
	}
	return dwarfcfa.NewSection(name, dwarfcfa.SourceDebugFrame, 0, Section(r.Functions), dwarfcfa.Bases{})
}

// Rows returns the number of rows made.
func (r *Result) Rows() (n int) {
	for i := range r.Functions {
		n += len(r.Functions[i].Ranges)
	}
	return n
}
