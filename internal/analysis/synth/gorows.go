package synth

import (
	"cmp"
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/x86"
	"github.com/ehasm/ehasm/internal/files/elffile"
	"github.com/ehasm/ehasm/internal/files/gotable"
)

// goProgram is what the table of a Go program says of its functions.
type goProgram struct {
	rows    []Function
	quiet   []codeflow.Function // those with rows that the compiler made: control leaves them by calls and returns alone
	written []codeflow.Function // those with rows that are written in assembly
	starts  []uint64            // of the functions that are left to the analysis
}

// readGo reads the table for the functions that no FDE describes; nil: there is none.
func readGo(o *dwarfcfa.Object, img *codeflow.Image, described []codeflow.Function) *goProgram {
	f, err := elffile.Open(o.File())
	if err != nil {
		return nil
	}
	t, err := gotable.Open(f)
	if err != nil {
		return nil
	}
	return goRows(img, t, described)
}

// goRows makes the rows of functions: where the return address is, and rbp. Go keeps no other register for its callers.
// Functions that leave their stack, or whose code does not do what the table says, are left to the analysis of code, and
// those of described, which is sorted, keep their own.
func goRows(img *codeflow.Image, t *gotable.Table, described []codeflow.Function) *goProgram {
	p := &goProgram{}
	var depths []gotable.Depth
	for _, f := range t.Functions() {
		next, _ := slices.BinarySearchFunc(described, f.Lo, func(d codeflow.Function, pc uint64) int { return cmp.Compare(d.Hi, pc+1) })
		if next < len(described) && described[next].Lo < f.Hi {
			continue
		}
		var ok, pushes bool
		if depths, ok = t.Depths(depths[:0], &f); ok && !f.MovesStack {
			pushes, ok = entersAs(img.Code(f.Lo), depths)
		}
		if !ok || f.MovesStack {
			p.starts = append(p.starts, f.Lo)
			continue
		}
		fn := codeflow.Function{Lo: f.Lo, Hi: depths[len(depths)-1].Hi}
		if f.Assembly {
			p.written = append(p.written, fn)
		} else {
			p.quiet = append(p.quiet, fn)
		}
		list := []Function(nil)
		for _, d := range depths {
			list = Add(list, f.Name, false, dwarfcfa.Addr(d.Lo), dwarfcfa.Addr(d.Hi), goRow(&f, d.Bytes, pushes))
		}
		p.rows = append(p.rows, list...)
	}
	return p
}

// outermost is the function in which goroutines begin: nothing calls it, but its address lies where a return address does.
const outermost = "runtime.goexit"

// goRow returns the row at a depth. pushes says that the function's first push is rbp's.
func goRow(f *gotable.Function, depth int32, pushes bool) Row {
	if f.Name == outermost {
		return Row{Outermost: true, CFA: Entry.CFA}
	}
	row := Row{CFA: CFA{Reg: abi.RSP, Offset: depth + 8}}
	for k, reg := range Saved {
		switch {
		case reg != abi.RBP || depth > 0 && !pushes:
			row.Regs[k].Where = Unknown
		case depth > 0:
			row.Regs[k] = Rule{Where: AtCFA, Offset: -16}
		}
	}
	return row
}

// entersAs compares the instructions up to the first one that changes the depth with the table: it must move rsp by as
// much. pushes reports whether it is push %rbp.
func entersAs(code []byte, depths []gotable.Depth) (pushes, ok bool) {
	if depths[0].Bytes != 0 || len(code) == 0 {
		return false, false
	}
	if len(depths) == 1 {
		return false, true
	}
	var in x86.Inst
	for at, end := uint64(0), depths[0].Hi-depths[0].Lo; ; {
		if at >= uint64(len(code)) || x86.Decode(code[at:], &in) != nil {
			return false, false
		}
		if at += uint64(in.Len); at < end {
			continue
		}
		sp := in.Args[0].Kind == x86.KGPR && in.Args[0].Reg == 4
		by := depths[1].Bytes
		switch {
		case at > end:
			return false, false
		case in.Op == x86.OpPUSH || in.Op == x86.OpPUSHF:
			return in.Op == x86.OpPUSH && in.Args[0].Kind == x86.KGPR && in.Args[0].Reg == 5, by == 8
		case in.Op == x86.OpSUB && sp:
			return false, in.Imm == int64(by)
		case in.Op == x86.OpADD && sp:
			return false, in.Imm == -int64(by)
		case in.Op == x86.OpLEA && sp:
			return false, int64(in.Mem.Disp) == -int64(by)
		}
		return false, false
	}
}
