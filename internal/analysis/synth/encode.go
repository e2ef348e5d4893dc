package synth

import (
	"encoding/binary"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// This file encodes rows as .debug_frame. dwarfcfa reads the bytes back for eh_elfs and steps on demand, so rows from
// code go through the same reader and the same proof as a file's own.

// Constants of the encoding (DWARF 5 §6.4.1, §7.7.1, §7.24).
const (
	dataAlign  = -8
	frameAlign = 8 // entries are padded to it with DW_CFA_nop

	opDeref      = 0x06
	opPlusUconst = 0x23
	opConst4s    = 0x0d
	opPlus       = 0x22
	opBreg0      = 0x70
)

var le = binary.LittleEndian

// Section encodes functions as .debug_frame: one CIE, an FDE per function. The functions must have ranges; addresses
// are link-time ones of 8 bytes, and nothing is relocated.
func Section(list []Function) []byte {
	cie := []byte{
		0xff, 0xff, 0xff, 0xff, // CIE id
		3,                      // version: DWARF 3's, which all readers know
		0,                      // no augmentation
		1,                      // code alignment factor
		byte(dataAlign & 0x7f), // data alignment factor, SLEB128
		abi.RIP,                // return address register, ULEB128
		byte(dwarfcfa.CFADefCFA), abi.RSP, 8,
		byte(dwarfcfa.CFAOffset) | abi.RIP, 1, // at CFA-8
	}
	out := appendEntry(nil, cie)
	for i := range list {
		f := &list[i]
		body := le.AppendUint32(nil, 0) // the CIE is at offset 0
		body = le.AppendUint64(body, uint64(f.Start()))
		body = le.AppendUint64(body, uint64(f.End()-f.Start()))
		out = appendEntry(out, appendProgram(body, f))
	}
	return out
}

// appendEntry appends a CIE or FDE with its length. The length does not count its own four bytes, so a body of 4 modulo
// 8 makes the next entry aligned.
func appendEntry(b, body []byte) []byte {
	for len(body)%frameAlign != 4 {
		body = append(body, byte(dwarfcfa.CFANop))
	}
	return append(le.AppendUint32(b, uint32(len(body))), body...)
}

// appendProgram encodes the rows of a function. A row that ends the stack has only an undefined return address (DWARF 5
// §6.4.4).
func appendProgram(b []byte, f *Function) []byte {
	addr, row := f.Start(), Entry
	for i := range f.Ranges {
		r := &f.Ranges[i]
		b = appendAdvance(b, uint64(r.Start-addr))
		addr = r.Start
		if r.Row.Outermost { // all of the function
			return append(b, byte(dwarfcfa.CFAUndefinedReg), abi.RIP)
		}
		b = appendCFA(b, row.CFA, r.Row.CFA)
		for k, rule := range r.Row.Regs {
			if rule != row.Regs[k] {
				b = appendRule(b, Saved[k], rule)
			}
		}
		row = r.Row
	}
	return b
}

// appendAdvance appends the shortest DW_CFA_advance_loc of a distance in bytes; functions have less than 4 GB.
func appendAdvance(b []byte, delta uint64) []byte {
	switch {
	case delta == 0:
		return b
	case delta < 0x40:
		return append(b, byte(dwarfcfa.CFAAdvanceLoc)|byte(delta))
	case delta < 1<<8:
		return append(b, byte(dwarfcfa.CFAAdvanceLoc1), byte(delta))
	case delta < 1<<16:
		return le.AppendUint16(append(b, byte(dwarfcfa.CFAAdvanceLoc2)), uint16(delta))
	}
	return le.AppendUint32(append(b, byte(dwarfcfa.CFAAdvanceLoc4)), uint32(delta))
}

// appendCFA appends the shortest instruction that makes the CFA what it is (DWARF 5 §6.4.2.2). Only a register plus
// an offset can be changed in part: after an expression, both are said again.
func appendCFA(b []byte, was, is CFA) []byte {
	switch {
	case was == is:
		return b
	case !is.plain():
		return appendBlock(append(b, byte(dwarfcfa.CFADefCFAExpression)), is.expression())
	case was.plain() && was.Offset == is.Offset:
		return append(b, byte(dwarfcfa.CFADefCFARegister), is.Reg)
	case is.Offset < 0:
		return dwarfcfa.AppendSLEB(append(b, byte(dwarfcfa.CFADefCFASF), is.Reg), int64(is.Offset/dataAlign))
	case was.plain() && was.Reg == is.Reg:
		return binary.AppendUvarint(append(b, byte(dwarfcfa.CFADefCFAOffset)), uint64(is.Offset))
	}
	return binary.AppendUvarint(append(b, byte(dwarfcfa.CFADefCFA), is.Reg), uint64(is.Offset))
}

// plain reports whether a register and an offset can express the CFA: a negative offset is factored. DW_CFA_def_cfa's
// offset is unsigned; DW_CFA_def_cfa_sf has a signed one in units of the data alignment (DWARF 5 §6.4.2.2).
func (c CFA) plain() bool {
	return !c.Stored && (c.Offset >= 0 || c.Offset%dataAlign == 0)
}

// expression returns the CFA as a DWARF expression (DWARF 5 §2.5). DW_OP_plus_uconst adds no negative number, so one
// takes a constant and an addition.
func (c CFA) expression() []byte {
	e := []byte{opBreg0 + c.Reg}
	if !c.Stored {
		return dwarfcfa.AppendSLEB(e, int64(c.Offset))
	}
	e = append(dwarfcfa.AppendSLEB(e, int64(c.Slot)), opDeref)
	switch {
	case c.Offset > 0:
		return binary.AppendUvarint(append(e, opPlusUconst), uint64(c.Offset))
	case c.Offset < 0:
		return append(le.AppendUint32(append(e, opConst4s), uint32(c.Offset)), opPlus)
	}
	return e
}

// appendRule appends a register's rule (DWARF 5 §6.4.2.3). Offsets that are no multiple of the data alignment cannot
// be factored and take an expression.
func appendRule(b []byte, reg uint8, rule Rule) []byte {
	switch rule.Where {
	case Same:
		return append(b, byte(dwarfcfa.CFARestore)|reg) // the CIE has no rule
	case Unknown:
		return append(b, byte(dwarfcfa.CFAUndefinedReg), reg)
	case InReg:
		return append(b, byte(dwarfcfa.CFARegister), reg, rule.Reg)
	case AtReg:
		b = append(b, byte(dwarfcfa.CFAExpression), reg)
		return appendBlock(b, dwarfcfa.AppendSLEB([]byte{opBreg0 + rule.Reg}, int64(rule.Offset)))
	}
	switch {
	case rule.Offset%dataAlign != 0: // at CFA + offset; the CFA is on the expression's stack
		b = append(b, byte(dwarfcfa.CFAExpression), reg)
		return appendBlock(b, append(le.AppendUint32([]byte{opConst4s}, uint32(rule.Offset)), opPlus))
	case rule.Offset <= 0:
		return binary.AppendUvarint(append(b, byte(dwarfcfa.CFAOffset)|reg), uint64(rule.Offset/dataAlign))
	}
	return dwarfcfa.AppendSLEB(append(b, byte(dwarfcfa.CFAOffsetExtendedSF), reg), int64(rule.Offset/dataAlign))
}

// appendBlock appends an expression with its length.
func appendBlock(b, block []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(block))), block...)
}
