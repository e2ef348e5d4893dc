package prove

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/ehasm/ehasm/abi"
)

// This file reads the .eh_frame of the eh_elf's own code, and tells for each instruction what an unwinder would find
// there. exec compares that with the machine's state at every instruction that it runs.

// ownRange is a row of the unwind information of the code itself.
type ownRange struct {
	start, end uint64 // addresses of the file; half-open
	row        ownRow
}

// ownRow is a row of the code itself: the CFA is rsp plus cfa, and registers of the machine are
// saved at saved from the CFA, or unchanged if it is 0.
type ownRow struct {
	cfa   int64
	saved [16]int64 // by number in instructions (rAX...), not by DWARF number
}

// Call frame instructions (DWARF 5 section 7.24): those that the file's own entries may have.
const (
	cfaNop          = 0x00
	cfaAdvanceLoc1  = 0x02
	cfaAdvanceLoc2  = 0x03
	cfaAdvanceLoc4  = 0x04
	cfaDefCFAOffset = 0x0e
	cfaAdvanceLoc   = 0x40 // | delta
	cfaOffset       = 0x80 // | register
	cfaRestore      = 0xc0 // | register
	cfaOperand      = 0x3f
)

// ownRows is the unwind information of the file's code, as any unwinder reads the file's
// .eh_frame: each row as its program makes it. Package dwarfcfa, which reads objects, also
// says what the rows of compilers are meant to be, such as that a register which has been
// popped keeps its value; no unwinder that reads this file knows of that.
type ownRows struct {
	list []ownRange // by address
	last int        // where at found a row
}

// read reads the FDEs in order of their pcs.
func (o *ownRows) read(fdes []ownFDE) error {
	for _, f := range fdes {
		if err := o.readFDE(f); err != nil {
			return imageError("the rows of the file's code from %#x on: %v", f.start, err)
		}
	}
	if len(o.list) == 0 {
		return imageError("no unwind information for the file's code")
	}
	return nil
}

// program reads call frame instructions.
type program []byte

// operand reads an unsigned LEB128 number. Larger values than maxOffset are refused: no frame of this code needs them.
// The error names no place: readFDE's caller does.
func (b *program) operand() (v uint64, err error) {
	v, n := binary.Uvarint(*b)
	if n <= 0 || v > maxOffset {
		return 0, fmt.Errorf("an operand")
	}
	*b = (*b)[n:]
	return v, nil
}

// word reads a number of n bytes.
func (b *program) word(size int) (v uint64, err error) {
	if size > len(*b) {
		return 0, fmt.Errorf("an operand")
	}
	for i := range size {
		v |= uint64((*b)[i]) << (8 * i)
	}
	*b = (*b)[size:]
	return v, nil
}

// readFDE appends the rows of an FDE. A row begins at the FDE's start and at each advance; it must
// lie inside the FDE.
func (o *ownRows) readFDE(f ownFDE) error {
	row, pc := ownRow{cfa: 8}, f.start // what ownCIE says
	for b := program(f.program); len(b) > 0; {
		op := b[0]
		b = b[1:]
		if op == cfaNop {
			continue
		}
		delta, moves, err := b.advance(op)
		if err != nil {
			return err
		}
		if !moves {
			if err := row.change(op, &b); err != nil {
				return err
			}
			continue
		}
		if delta == 0 || delta >= f.end-pc {
			return fmt.Errorf("a row at %#x", pc+delta)
		}
		o.list = append(o.list, ownRange{pc, pc + delta, row})
		pc += delta
	}
	o.list = append(o.list, ownRange{pc, f.end, row})
	return nil
}

// advance returns by how much an instruction moves the location; moves is false for other instructions.
func (b *program) advance(op byte) (delta uint64, moves bool, err error) {
	size := 0
	switch {
	case op&^cfaOperand == cfaAdvanceLoc:
		return uint64(op & cfaOperand), true, nil
	case op == cfaAdvanceLoc1:
		size = 1
	case op == cfaAdvanceLoc2:
		size = 2
	case op == cfaAdvanceLoc4:
		size = 4
	default:
		return 0, false, nil
	}
	delta, err = b.word(size)
	return delta, true, err
}

// change applies an instruction that changes a rule.
func (row *ownRow) change(op byte, b *program) error {
	switch {
	case op == cfaDefCFAOffset:
		v, err := b.operand()
		row.cfa = int64(v)
		return err
	case op&^cfaOperand != cfaOffset && op&^cfaOperand != cfaRestore:
		return fmt.Errorf("an instruction %#x", op)
	}
	reg, saved := op&cfaOperand, uint64(0)
	if abi.CalleeSaved&(1<<reg) == 0 {
		return fmt.Errorf("a rule for register %d", reg)
	}
	if op&^cfaOperand == cfaOffset {
		var err error
		if saved, err = b.operand(); err != nil {
			return err
		}
		if saved == 0 {
			return fmt.Errorf("%s at the CFA", abi.RegName(int(reg)))
		}
	}
	row.saved[machineReg(int(reg))] = -8 * int64(saved) // ownCIE's data alignment factor is -8
	return nil
}

// machineReg returns the number in instructions of a callee-saved register.
func machineReg(dwarf int) uint8 {
	switch dwarf {
	case abi.RBX:
		return rBX
	case abi.RBP:
		return rBP
	}
	return uint8(dwarf)
}

// at returns the row for an instruction, nil if there is none. Code is run in order, so the row of
// the last call is tried first.
func (o *ownRows) at(pc uint64) *ownRow {
	if r := &o.list[o.last]; r.start <= pc && pc < r.end {
		return &r.row
	}
	i := sort.Search(len(o.list), func(i int) bool { return o.list[i].end > pc })
	if i == len(o.list) || o.list[i].start > pc {
		return nil
	}
	o.last = i
	return &o.list[i].row
}

// single checks that one row holds for the code of lookups from low to high, which is proven without running it on
// terms. Lookups are jumps, comparisons and loads, which leave rsp and the saved registers alone.
func (o *ownRows) single(low, high uint64) error {
	if low >= high {
		return nil
	}
	want := ownRow{cfa: -frameBase + 8} // rsp below the return address and rbp, see frameBase
	want.saved[rBP] = -16               // pushed directly below the return address
	for _, r := range o.list {
		if r.start <= low && high <= r.end && r.row == want {
			return nil
		}
	}
	return fmt.Errorf("%#x..%#x: no single row for the code of lookups", low, high)
}
