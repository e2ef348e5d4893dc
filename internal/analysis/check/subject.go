package check

import (
	"bytes"
	"fmt"
	"io"
	"sort"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/relocatable"
)

// Subject is an object to check: its FDEs and its code.
type Subject struct{ *codeflow.Described }

// Open reads an executable, a shared object or a relocatable file; name is for errors. Rows come from the sections that
// SourceAuto chooses, as for an eh_elf. The error is dwarfcfa.ErrNoUnwindInfo if no FDE covers code of the file. r is
// read until the last Run has ended.
func Open(name string, r io.ReaderAt, size int64) (*Subject, error) {
	return OpenSource(name, r, size, dwarfcfa.SourceAuto)
}

// OpenSource is Open for the rows of one source. A relocatable file is laid out first as if linked alone, since its
// FDEs are relocated against sections without addresses.
func OpenSource(name string, r io.ReaderAt, size int64, source dwarfcfa.Source) (*Subject, error) {
	if relocatable.IsRelocatable(r) {
		linked, err := relocatable.Link(r, size)
		if err != nil {
			return nil, err
		}
		r, size = bytes.NewReader(linked), int64(len(linked))
	}
	object, err := dwarfcfa.NewFile(name, r, size)
	if err != nil {
		return nil, err
	}
	sections, err := object.Sections(source)
	if err != nil {
		return nil, err
	}
	s, err := codeflow.Describe(object, sections)
	if err != nil {
		return nil, err
	}
	if len(s.FDEs) == 0 {
		return nil, fmt.Errorf("%w: no FDE covers code of the file", dwarfcfa.ErrNoUnwindInfo)
	}
	return &Subject{s}, nil
}

// first reports whether function i is the first with its FDE: symbols inside one may have split it in several.
func (s *Subject) first(i int) bool { return i == 0 || s.FDEs[i] != s.FDEs[i-1] }

// rows holds the rows of the function that a worker looks at.
type rows struct {
	s      *Subject
	interp *dwarfcfa.Interp
	i      int // function, -1 none
	rows   []dwarfcfa.RawRow
	buf    []dwarfcfa.RawRow // of rows, used again
	err    error
	// instead, if not nil, are the rows of function insteadOf, whatever its FDE says
	instead   []dwarfcfa.RawRow
	insteadOf int

	compared function // used again
}

func (s *Subject) newRows() *rows { return &rows{s: s, interp: dwarfcfa.NewInterp(), i: -1} }

// load interprets the FDE of function i, unless it is the one at hand. The memory of rows is used again.
func (r *rows) load(i int) {
	if r.i != i {
		r.i = i
		if r.instead != nil && r.insteadOf == i {
			r.rows, r.err = r.instead, nil
			return
		}
		if r.rows, r.err = r.interp.AppendRows(r.buf[:0], r.s.FDEs[i]); r.err == nil {
			r.buf = r.rows
		}
	}
}

// at returns the row at pc, or nil if there is none.
func (r *rows) at(pc uint64) *dwarfcfa.RawRow {
	if k := r.find(pc); k >= 0 {
		return &r.rows[k]
	}
	return nil
}

// find returns the index of the row at pc, or -1 if there is none.
func (r *rows) find(pc uint64) int {
	k := sort.Search(len(r.rows), func(k int) bool { return uint64(r.rows[k].End) > pc })
	if k < len(r.rows) && uint64(r.rows[k].Start) <= pc {
		return k
	}
	return -1
}

// Begin returns the state that the table describes at pc; it is the codeflow.Beginner of this package. ok is false if
// no row covers pc, or its CFA is none that a state can hold.
func (r *rows) Begin(pc uint64) (codeflow.State, bool) {
	fns := r.s.Functions
	i := sort.Search(len(fns), func(i int) bool { return fns[i].Hi > pc })
	if i == len(fns) || fns[i].Lo > pc {
		return codeflow.State{}, false
	}
	r.load(i)
	row := r.at(pc)
	if row == nil {
		return codeflow.State{}, false
	}
	return stateOf(&row.Row)
}

// hardware maps DWARF's register numbers to the processor's (x86-64 psABI figure 3.36).
var hardware = [16]uint8{0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15}

// stateOf returns the state that a row describes; ok is false if its CFA is not a
// register plus offset.
func stateOf(row *dwarfcfa.Row) (codeflow.State, bool) {
	var s codeflow.State
	if row.CFA.Kind != dwarfcfa.CFARegOffset || row.CFA.Reg > 15 || row.CFA.Offset != int64(int32(row.CFA.Offset)) {
		return s, false
	}
	for d := range 17 {
		rule := row.Regs[d]
		h := uint8(codeflow.RA)
		if d < 16 {
			h = hardware[d]
		}
		// Other rules leave the register unknown, which no row contradicts.
		switch rule.Kind {
		case dwarfcfa.RuleSameValue, dwarfcfa.RuleUnspecified:
			if d < 16 && (codeflow.CalleeSaved>>h&1 != 0 || keepsValue(row, d)) {
				s.Regs[h] = codeflow.Value{Kind: codeflow.Entry, Reg: h}
			}
		case dwarfcfa.RuleOffset:
			s.Put(0, int32(rule.Offset), codeflow.Value{Kind: codeflow.Entry, Reg: h})
		}
	}
	s.Regs[hardware[row.CFA.Reg]] = codeflow.Value{Kind: codeflow.Base, Off: int32(-row.CFA.Offset)}
	return s, true
}
