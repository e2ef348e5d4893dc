package dwarfcfa

import (
	"fmt"
)

// This file decodes call frame instructions, for the interpreter and for the dumps.

// Op is a call frame instruction: a DW_CFA_* encoding (DWARF 5 §7.24), with
// the operand bits of the first three cleared.
type Op uint8

// The first three have an operand in their low six bits; the others are whole bytes.
const (
	CFAAdvanceLoc Op = 0x40 // delta, in units of the code alignment
	CFAOffset     Op = 0x80 // register; then ULEB128, factored
	CFARestore    Op = 0xc0 // register

	CFANop              Op = 0x00 // padding
	CFASetLoc           Op = 0x01 // an encoded address
	CFAAdvanceLoc1      Op = 0x02 // 1 byte of delta
	CFAAdvanceLoc2      Op = 0x03 // 2 bytes
	CFAAdvanceLoc4      Op = 0x04 // 4 bytes
	CFAOffsetExtended   Op = 0x05 // register, ULEB128, factored
	CFARestoreExtended  Op = 0x06 // register
	CFAUndefinedReg     Op = 0x07 // register: its value is lost
	CFASameValue        Op = 0x08 // register: its value is unchanged
	CFARegister         Op = 0x09 // two registers: the first is in the second
	CFARememberState    Op = 0x0a // push the rules
	CFARestoreState     Op = 0x0b // pop them
	CFADefCFA           Op = 0x0c // register, ULEB128, not factored
	CFADefCFARegister   Op = 0x0d // register; the offset stays
	CFADefCFAOffset     Op = 0x0e // ULEB128, not factored
	CFADefCFAExpression Op = 0x0f // expression for the CFA
	CFAExpression       Op = 0x10 // register, expression for its address
	CFAOffsetExtendedSF Op = 0x11 // register, SLEB128, factored
	CFADefCFASF         Op = 0x12 // register, SLEB128, factored
	CFADefCFAOffsetSF   Op = 0x13 // SLEB128, factored
	CFAValOffset        Op = 0x14 // register, ULEB128, factored: the value is the CFA plus it
	CFAValOffsetSF      Op = 0x15 // the same with SLEB128
	CFAValExpression    Op = 0x16 // register, expression for its value

	CFAMIPSAdvanceLoc8           Op = 0x1d // GNU extension, used on 64-bit MIPS
	CFAGNUArgsSize               Op = 0x2e // size of arguments on the stack, for unwinders that enter landing pads
	CFAGNUNegativeOffsetExtended Op = 0x2f // obsolete: offset_extended with the sign changed
)

// String returns the name in DWARF's spelling.
func (op Op) String() string {
	switch op {
	case CFAAdvanceLoc:
		return "DW_CFA_advance_loc"
	case CFAOffset:
		return "DW_CFA_offset"
	case CFARestore:
		return "DW_CFA_restore"
	case CFAMIPSAdvanceLoc8:
		return "DW_CFA_MIPS_advance_loc8"
	case CFAGNUArgsSize:
		return "DW_CFA_GNU_args_size"
	case CFAGNUNegativeOffsetExtended:
		return "DW_CFA_GNU_negative_offset_extended"
	}
	// In the order of the encodings, from 0 on.
	names := [...]string{"nop", "set_loc", "advance_loc1", "advance_loc2", "advance_loc4", "offset_extended",
		"restore_extended", "undefined", "same_value", "register", "remember_state", "restore_state", "def_cfa",
		"def_cfa_register", "def_cfa_offset", "def_cfa_expression", "expression", "offset_extended_sf", "def_cfa_sf",
		"def_cfa_offset_sf", "val_offset", "val_offset_sf", "val_expression"}
	if int(op) < len(names) {
		return "DW_CFA_" + names[op]
	}
	return fmt.Sprintf("DW_CFA_%#02x", uint8(op))
}

// Inst is a decoded call frame instruction. Operands that Op does not have are
// zero; factored ones are already multiplied.
type Inst struct {
	Op     Op
	Reg    uint64 // the register the instruction is about
	Source uint64 // DW_CFA_register: where its value is
	Offset int64  // bytes
	Delta  uint64 // DW_CFA_advance_loc*: bytes
	Loc    Addr   // DW_CFA_set_loc
	Size   uint64 // DW_CFA_GNU_args_size: bytes
	Block  []byte // expressions
}

// read decodes the instruction at c. function is the FDE's first pc. A failure stays in c; an unknown instruction is
// one, since its length is not known. Products of factored operands wrap.
func (i *Inst) read(c *cursor, cie *CIE, function Addr) {
	// The first two bits tell three instructions with an operand from the rest.
	b := c.u8()
	*i = Inst{}
	switch Op(b & 0xc0) {
	case CFAAdvanceLoc:
		// code_alignment_factor is 1 on x86-64.
		i.Op, i.Delta = CFAAdvanceLoc, uint64(b&0x3f)*cie.CodeAlign
		return
	case CFAOffset:
		i.Op, i.Reg = CFAOffset, uint64(b&0x3f)
		i.Offset = int64(c.uleb()) * cie.DataAlign
		return
	case CFARestore:
		i.Op, i.Reg = CFARestore, uint64(b&0x3f)
		return
	}
	i.Op = Op(b)
	switch i.Op {
	// These have no operand.
	case CFANop, CFARememberState, CFARestoreState:
	case CFASetLoc:
		i.Loc = c.pointer(cie.FDEEncoding, cie.section, function)
	case CFAAdvanceLoc1:
		i.Delta = uint64(c.u8()) * cie.CodeAlign
	case CFAAdvanceLoc2:
		i.Delta = uint64(c.u16()) * cie.CodeAlign
	case CFAAdvanceLoc4:
		i.Delta = uint64(c.u32()) * cie.CodeAlign
	case CFAMIPSAdvanceLoc8:
		i.Delta = c.u64() * cie.CodeAlign
	// Unsigned, factored by data_alignment_factor, which is -8 as a rule.
	case CFAOffsetExtended, CFAValOffset:
		i.Reg = c.uleb()
		i.Offset = int64(c.uleb()) * cie.DataAlign
	case CFAOffsetExtendedSF, CFAValOffsetSF:
		i.Reg = c.uleb()
		i.Offset = c.sleb() * cie.DataAlign
	case CFAGNUNegativeOffsetExtended:
		i.Reg = c.uleb()
		i.Offset = -(int64(c.uleb()) * cie.DataAlign)
	case CFARestoreExtended, CFAUndefinedReg, CFASameValue, CFADefCFARegister:
		i.Reg = c.uleb()
	case CFARegister:
		i.Reg = c.uleb()
		i.Source = c.uleb()
	// The offset of def_cfa is not factored, other than with sf.
	case CFADefCFA:
		i.Reg = c.uleb()
		i.Offset = int64(c.uleb())
	case CFADefCFASF:
		i.Reg = c.uleb()
		i.Offset = c.sleb() * cie.DataAlign
	case CFADefCFAOffset:
		i.Offset = int64(c.uleb())
	case CFADefCFAOffsetSF:
		i.Offset = c.sleb() * cie.DataAlign
	case CFADefCFAExpression:
		i.Block = c.number(c.uleb())
	case CFAExpression, CFAValExpression:
		i.Reg = c.uleb()
		i.Block = c.number(c.uleb())
	case CFAGNUArgsSize:
		i.Size = c.uleb()
	default:
		c.fail(cause(ErrUnsupported, "unknown call frame instruction %#02x", b))
	}
}

// Text renders the instruction in readelf's notation. loc is the location
// after it, which the advancing ones print.
func (i *Inst) Text(loc Addr) string {
	switch i.Op {
	case CFASetLoc:
		return fmt.Sprintf("%v: %016x", i.Op, uint64(i.Loc))
	case CFAAdvanceLoc, CFAAdvanceLoc1, CFAAdvanceLoc2, CFAAdvanceLoc4, CFAMIPSAdvanceLoc8:
		return fmt.Sprintf("%v: %d to %016x", i.Op, i.Delta, uint64(loc))
	case CFAOffset, CFAOffsetExtended, CFAOffsetExtendedSF, CFAGNUNegativeOffsetExtended:
		return fmt.Sprintf("%v: %s at cfa%+d", i.Op, regText(i.Reg), i.Offset)
	case CFAValOffset, CFAValOffsetSF:
		return fmt.Sprintf("%v: %s is cfa%+d", i.Op, regText(i.Reg), i.Offset)
	case CFARestore, CFARestoreExtended, CFAUndefinedReg, CFASameValue, CFADefCFARegister:
		return fmt.Sprintf("%v: %s", i.Op, regText(i.Reg))
	case CFARegister:
		return fmt.Sprintf("%v: %s in %s", i.Op, regText(i.Reg), regText(i.Source))
	case CFADefCFA, CFADefCFASF:
		return fmt.Sprintf("%v: %s ofs %d", i.Op, regText(i.Reg), i.Offset)
	case CFADefCFAOffset, CFADefCFAOffsetSF:
		return fmt.Sprintf("%v: %d", i.Op, i.Offset)
	case CFADefCFAExpression:
		return fmt.Sprintf("%v (%s)", i.Op, ExprText(i.Block))
	case CFAExpression, CFAValExpression:
		return fmt.Sprintf("%v: %s (%s)", i.Op, regText(i.Reg), ExprText(i.Block))
	case CFAGNUArgsSize:
		return fmt.Sprintf("%v: %d", i.Op, i.Size)
	}
	return i.Op.String()
}
