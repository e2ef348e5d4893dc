// Package synth makes unwind rows from code, for functions whose file has none or
// wrong ones. The rows come per function, as a .debug_frame section, as a table, as a
// separate debug file, and as .cfi directives.
package synth

import (
	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// Saved lists the registers, by DWARF number, whose caller's values a row can give:
// the callee-saved ones (x86-64 psABI figure 3.4).
var Saved = [...]uint8{abi.RBX, abi.RBP, abi.R12, abi.R13, abi.R14, abi.R15}

// CFA says where the canonical frame address is: Reg + Offset, or if it was stored in
// memory, the word at Reg + Slot, plus Offset.
type CFA struct {
	Reg    uint8 // DWARF number
	Stored bool
	Slot   int32
	Offset int32
}

// Where is the kind of place that holds the caller's value of a register.
type Where uint8

const (
	Same    Where = iota // in the register
	AtCFA                // in memory at CFA + Offset
	AtReg                // in memory at Reg + Offset
	InReg                // in register Reg
	Unknown              // not known: the row gives it up
)

// Rule says where the caller's value of a register is.
type Rule struct {
	Where  Where
	Reg    uint8 // AtReg, InReg: DWARF number
	Offset int32 // AtCFA, AtReg
}

// Row describes the frame from an instruction on. The return address is at CFA - 8. It is comparable. Rows are the
// psABI's: no rule names a register that calls may change.
type Row struct {
	Outermost bool // nothing called the function: there is no return address; other fields are ignored
	CFA       CFA
	Regs      [len(Saved)]Rule // in the order of Saved
}

// Entry is the row at a function's first instruction.
var Entry = Row{CFA: CFA{Reg: abi.RSP, Offset: 8}}

// Range is a part of a function with one row.
type Range struct {
	Start, End dwarfcfa.Addr // [Start, End)
	Row        Row
}

// Function is a run of ranges that follow each other, all of one function. Where a
// function has instructions without a row, it is several of them.
type Function struct {
	Name   string  // of its symbol, or "" if there is none
	Ranges []Range // ascending, touching, neighbours differ in Row
}

// Start returns the function's first address with a row.
func (f *Function) Start() dwarfcfa.Addr { return f.Ranges[0].Start }

// End returns the address past the function's last row.
func (f *Function) End() dwarfcfa.Addr { return f.Ranges[len(f.Ranges)-1].End }

// Add appends an instruction to functions: to the last one, if it follows it and is of
// the same function, else as a new one. Addresses must ascend.
func Add(list []Function, name string, first bool, start, end dwarfcfa.Addr, row Row) []Function {
	if n := len(list) - 1; n >= 0 && !first && list[n].End() == start {
		f := &list[n]
		if last := &f.Ranges[len(f.Ranges)-1]; last.Row == row {
			last.End = end
		} else {
			f.Ranges = append(f.Ranges, Range{start, end, row})
		}
		return list
	}
	return append(list, Function{Name: name, Ranges: []Range{{start, end, row}}})
}
