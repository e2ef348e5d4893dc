package synth

import (
	"cmp"
	"slices"
	"sync"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file makes rows from the states that codeflow finds. A row is made only of a state that follows from the
// function's entry; a state that was assumed or guessed gives none, since a wrong row is worse than a gap.

// Options says for which code rows are made.
type Options struct {
	Mode Mode
	// Wrong returns where the rows of an object's FDEs are wrong, such as check.WrongRows: for Mode Wrong.
	Wrong func(d *codeflow.Described, workers int, progress func(more int)) []dwarfcfa.Range
	// Workers bounds the goroutines; 0 means one per processor.
	Workers int
	// Progress, if not nil, is called from time to time, also concurrently.
	Progress func(more int)
}

// Result holds the rows made for an object and what they cover.
type Result struct {
	Functions []Function       // ascending, disjoint
	Replace   []dwarfcfa.Range // where these replace the file's rows; ascending, disjoint
	// Bytes of code that need rows, without padding, and of those that got them.
	Wanted   uint64
	Answered uint64 // have a row
	Declined Declined

	all bool // Mode is All
}

// Declined counts instructions that were reached and got no row, by reason.
type Declined struct {
	Guessed int // the state depends on a choice that the code does not prove
	NoCFA   int // the paths do not agree on the CFA, or it is in no place that a row can name
	Popped  int // the return address is no longer on the stack, or not at CFA - 8
	Foreign int // the code keeps to no convention of the psABI: codeflow.Image.Foreign
}

// Make makes rows. described are the functions that have FDEs, sorted and disjoint: they give the bounds of functions;
// their rows are not used. opt.Mode is Missing, Wrong or All; Wrong makes rows for all code here, and keepWrong drops
// most. The result does not depend on the number of workers.
func Make(img *codeflow.Image, described []codeflow.Function, opt Options) *Result {
	return makeWith(img, described, &goProgram{}, opt)
}

// makeWith is Make without the functions of a Go program that have rows.
func makeWith(img *codeflow.Image, described []codeflow.Function, program *goProgram, opt Options) *Result {
	every := opt.Mode == All || opt.Mode == Wrong
	fns, fresh, plts := functions(img, described, program)
	if every {
		fns = described
	}
	isFresh := make(map[uint64]bool, len(fresh))
	for i := range fresh {
		isFresh[fresh[i].Lo] = true
	}
	fns = slices.Concat(fns, fresh)
	slices.SortFunc(fns, func(a, b codeflow.Function) int { return cmp.Compare(a.Lo, b.Lo) })

	made := make([][]Function, len(fns))
	declined := make([]Declined, len(fns))
	p := codeflow.New(img, fns, codeflow.Options{Workers: opt.Workers, Progress: opt.Progress})
	var mu sync.Mutex
	p.Run(func(i int, r *codeflow.Result) {
		if !every && !isFresh[fns[i].Lo] {
			return
		}
		list, d := rowsOf(r)
		if fns[i].Signal {
			d.Foreign = countCode(img, &fns[i])
		}
		if isFresh[fns[i].Lo] && fns[i].Lo == img.Entry() {
			for k := range list { // the kernel puts the arguments where a caller puts the return address
				list[k].Ranges = []Range{{list[k].Start(), list[k].End(), Row{Outermost: true, CFA: Entry.CFA}}}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		made[i], declined[i] = list, d
	})

	res := &Result{all: opt.Mode == All}
	for i := range fns {
		if opt.Mode == All || isFresh[fns[i].Lo] {
			res.Wanted += fns[i].Hi - fns[i].Lo
		}
		name := ""
		if s, ok := img.Symbol(fns[i].Lo); ok && s.Addr == fns[i].Lo {
			name = s.Name
		}
		for k := range made[i] {
			made[i][k].Name = name
		}
		res.Functions = append(res.Functions, made[i]...)
		d := &declined[i]
		res.Declined.Guessed += d.Guessed
		res.Declined.NoCFA += d.NoCFA
		res.Declined.Popped += d.Popped
		res.Declined.Foreign += d.Foreign
	}
	for _, g := range plts {
		res.Wanted += g.hi - g.lo
		res.Functions = append(res.Functions, pltRows(img, g)...)
	}
	slices.SortFunc(res.Functions, func(a, b Function) int { return cmp.Compare(a.Start(), b.Start()) })
	res.count()
	return res
}

// functions returns the functions with FDEs that determine the state in code that no FDE covers, the functions that
// begin in that code, and the PLTs.
func functions(img *codeflow.Image, described []codeflow.Function, program *goProgram) (contributors,
	fresh []codeflow.Function, plts []span) {
	code, plts := gaps(img, sorted(described, program.quiet))
	code = trimAll(img, code)
	starts := newStartSet(img, code)
	for _, pc := range program.starts {
		starts.call(pc)
	}
	contributors = starts.contributors(described)
	for _, g := range code {
		starts.sweep(g, false)
	}
	return contributors, starts.undescribed(code), plts
}

// Undescribed returns the functions that begin in code which no function of described covers, as Make finds them,
// without PLTs.
func Undescribed(img *codeflow.Image, described []codeflow.Function) []codeflow.Function {
	_, fresh, _ := functions(img, described, &goProgram{})
	return fresh
}

// Answers reports whether Make makes a row of a state with this basis.
func Answers(s *codeflow.State, basis codeflow.Basis) bool {
	if basis != codeflow.FromEntry {
		return false
	}
	row, ok := rowAt(s)
	return ok && s.ReturnKept() && (row.CFA.Reg != abi.RSP || row.CFA.Stored || row.CFA.Offset >= 8)
}

// count sets the Result's Answered.
func (r *Result) count() {
	r.Answered = 0
	for i := range r.Functions {
		f := &r.Functions[i]
		r.Answered += uint64(f.End() - f.Start())
	}
}

// rowsOf makes the rows of one function. An rsp above the return address, or none there, gives no row: what unwinding
// would read is no return address.
func rowsOf(r *codeflow.Result) (list []Function, d Declined) {
	r.Each(func(pc uint64, in *x86.Inst, s *codeflow.State, basis codeflow.Basis) {
		row, ok := rowAt(s)
		switch {
		case basis != codeflow.FromEntry:
			d.Guessed++
		case !ok:
			d.NoCFA++
		case !s.ReturnKept(), row.CFA.Reg == abi.RSP && !row.CFA.Stored && row.CFA.Offset < 8:
			d.Popped++
		default:
			start := dwarfcfa.Addr(pc)
			list = Add(list, "", false, start, start+dwarfcfa.Addr(in.Len), row)
		}
	})
	return list, d
}

// countCode counts the instructions of a function, without padding.
func countCode(img *codeflow.Image, fn *codeflow.Function) (n int) {
	code := img.Code(fn.Lo)
	code = code[:min(uint64(len(code)), fn.Hi-fn.Lo)]
	var in x86.Inst
	for len(code) > 0 {
		if x86.Decode(code, &in) != nil {
			code = code[1:]
			continue
		}
		if in.Op != x86.OpNOP && in.Op != x86.OpINT3 {
			n++
		}
		code = code[in.Len:]
	}
	return n
}

// rowAt returns the row of a state; ok is false if the state has no CFA.
func rowAt(s *codeflow.State) (row Row, ok bool) {
	if reg, off, ok := s.CFA(); ok {
		row.CFA = CFA{Reg: dwarfOf[reg], Offset: int32(off)}
	} else if reg, disp, off, ok := s.CFASlot(); ok {
		row.CFA = CFA{Reg: dwarfOf[reg], Stored: true, Slot: int32(disp), Offset: int32(off)}
	} else {
		return Row{}, false
	}
	for k, reg := range Saved {
		row.Regs[k] = ruleOf(s.Saved(hardware(reg)))
	}
	return row, true
}

// ruleOf returns the rule of a register that is where the analysis says. Not known is a rule as well, undefined: an
// unwinder that took the register as unchanged would give a wrong value to callers.
func ruleOf(w codeflow.Where) Rule {
	switch w.Kind {
	case codeflow.Same:
		return Rule{Where: Same}
	case codeflow.AtCFA:
		return Rule{Where: AtCFA, Offset: int32(w.Off)}
	case codeflow.AtReg:
		return Rule{Where: AtReg, Reg: dwarfOf[w.Reg], Offset: int32(w.Off)}
	case codeflow.InReg:
		return Rule{Where: InReg, Reg: dwarfOf[w.Reg]}
	}
	return Rule{Where: Unknown}
}

// hardware returns the processor's number of a callee-saved register.
func hardware(dwarf uint8) uint8 {
	return uint8(slices.Index(dwarfOf[:], dwarf))
}
