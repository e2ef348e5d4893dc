package synth

import (
	"cmp"
	"debug/elf"
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/x86"
	"github.com/ehasm/ehasm/internal/files/elffile"
	"github.com/ehasm/ehasm/internal/files/gotable"
)

// This file makes rows from .gopclntab, which every Go program carries, also a stripped one: it says how deep the stack
// is at each instruction (runtime.pcvalue with the pcsp table). RATIONALE's "Both sections" has the times.

// goProgram is what the table of a Go program says of its functions.
type goProgram struct {
	rows    []Function
	quiet   []codeflow.Function // those with rows that the compiler made: control leaves them by calls and returns alone
	written []codeflow.Function // those with rows that are written in assembly
	starts  []uint64            // of the functions that are left to the analysis
	ends    []dwarfcfa.Range    // where the outermost function's own rows do not say that it is that
}

// readGo reads the table for the functions that no FDE describes; nil: there is none.
func readGo(o *dwarfcfa.File, img *codeflow.Image, described []codeflow.Function) *goProgram {
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
// Functions that leave their stack, or whose code does not do what the table says, are left to the analysis of code,
// and those of described, which is sorted, keep their own.
func goRows(img *codeflow.Image, t *gotable.Table, described []codeflow.Function) *goProgram {
	p := &goProgram{}
	for _, f := range t.Functions() {
		next, _ := slices.BinarySearchFunc(described, f.Lo,
			func(d codeflow.Function, pc uint64) int { return cmp.Compare(d.Hi, pc+1) })
		if next < len(described) && described[next].Lo < f.Hi {
			if f.Name == outermost {
				p.rows = append(p.rows, goFunction(t, &f, img.Code(f.Lo))...)
				p.ends = append(p.ends, dwarfcfa.Range{Start: dwarfcfa.Addr(f.Lo), End: dwarfcfa.Addr(f.Hi)})
			}
			continue
		}
		list := goFunction(t, &f, img.Code(f.Lo))
		if list == nil {
			p.starts = append(p.starts, f.Lo)
			continue
		}
		fn := codeflow.Function{Lo: f.Lo, Hi: uint64(list[0].End())}
		if f.Assembly {
			p.written = append(p.written, fn)
		} else {
			p.quiet = append(p.quiet, fn)
		}
		p.rows = append(p.rows, list...)
	}
	return p
}

// goFunction makes the rows of a function, whose code begins with these bytes; nil: it is left to the analysis. The
// reasons are a table that cannot be read, a function that changes to another stack, and code that moves rsp in another
// way than the table says, as assembly does that was written without a frame size.
func goFunction(t *gotable.Table, f *gotable.Function, code []byte) (list []Function) {
	depths, ok := t.Depths(nil, f)
	if !ok || f.MovesStack {
		return nil
	}
	pushes, ok := entersAs(code, depths)
	if !ok {
		return nil
	}
	for _, d := range depths {
		list = Add(list, f.Name, false, dwarfcfa.Addr(d.Lo), dwarfcfa.Addr(d.Hi), goRow(f, d.Bytes, pushes))
	}
	return list
}

// GoRows makes rows of a Go program's own table where they are asked for.
type GoRows struct {
	object *dwarfcfa.File
	table  *gotable.Table
	loads  []*elf.Prog
}

// OpenGoRows returns nil for other programs. The object must stay open.
func OpenGoRows(o *dwarfcfa.File) *GoRows {
	f, err := elffile.Open(gotable.Paged(o.File()))
	if err != nil {
		return nil
	}
	t, err := gotable.Open(f)
	if err != nil {
		return nil
	}
	g := &GoRows{object: o, table: t}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			g.loads = append(g.loads, p)
		}
	}
	return g
}

// EstimatedRows estimates how many rows the whole program has. Compiled functions have a row each before and after the
// prologue, and a pair for each epilogue. package rows weighs by it whether steps one by one or an eh_elf of the whole
// are cheaper.
func (g *GoRows) EstimatedRows() int {
	const perFunction = 8
	return perFunction * g.table.Len()
}

// At returns rows for the function at pc and some around it, and the addresses that they are for: as Of makes them for
// Missing. The section is nil if there are none. Some 16 functions share a section: neighbours in the table are of one
// package, and often on one stack.
func (g *GoRows) At(pc dwarfcfa.Addr) (dwarfcfa.Range, *dwarfcfa.Section) {
	const together = 16
	i, ok := g.table.Index(uint64(pc))
	if !ok {
		return dwarfcfa.Range{Start: pc, End: pc + 1}, nil
	}
	var rows []Function
	var of dwarfcfa.Range
	for k := i - i%together; k < min(i-i%together+together, g.table.Len()); k++ {
		f, ok := g.table.Function(k)
		if !ok {
			continue
		}
		if of.End == 0 {
			of.Start = dwarfcfa.Addr(f.Lo)
		}
		of.End = dwarfcfa.Addr(f.Hi)
		rows = append(rows, goFunction(g.table, &f, g.code(f.Lo))...)
	}
	if pc < of.Start || pc >= of.End {
		return dwarfcfa.Range{Start: pc, End: pc + 1}, nil
	}
	if len(rows) == 0 {
		return of, nil
	}
	return of, dwarfcfa.NewSection(g.object.Name(), dwarfcfa.SourceDebugFrame, 0, Section(rows), dwarfcfa.Bases{})
}

// code returns the first bytes of a function. It is nil outside of the executable segments.
func (g *GoRows) code(addr uint64) []byte {
	const prologue = 128 // bytes up to the first change of the depth
	for _, p := range g.loads {
		if addr >= p.Vaddr && addr-p.Vaddr < p.Filesz {
			b := make([]byte, min(prologue, p.Filesz-(addr-p.Vaddr)))
			n, _ := p.ReadAt(b, int64(addr-p.Vaddr))
			return b[:n]
		}
	}
	return nil
}

// outermost is the function in which goroutines begin: nothing calls it, but its address lies where a return address
// does.
const outermost = "runtime.goexit"

// goRow returns the row at a depth. pushes says that the function's first push is rbp's. depth is in bytes, without the
// return address: the CFA is rsp+depth+8. Go's compiler saves rbp right below the return address, where frame pointers
// are followed; other pushes first mean assembly, of which nothing is known.
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
// much. pushes reports whether it is push %rbp. It is a check of the table by the code: hand-written functions may
// declare a wrong frame size, and rows made of that would lead walks astray.
func entersAs(code []byte, depths []gotable.Depth) (pushes, ok bool) {
	if depths[0].Bytes != 0 || len(code) == 0 {
		return false, false
	}
	if len(depths) == 1 {
		return false, true
	}
	var in x86.Inst
	for off, end := uint64(0), depths[0].Hi-depths[0].Lo; ; {
		if off >= uint64(len(code)) || x86.Decode(code[off:], &in) != nil {
			return false, false
		}
		if off += uint64(in.Len); off < end {
			continue
		}
		sp := in.Args[0].Kind == x86.KGPR && in.Args[0].Reg == 4
		by := depths[1].Bytes
		switch {
		case off > end:
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
