package prove

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/ehasm/ehasm/abi"
)

// ownRange is a row of the unwind information of the code itself.
type ownRange struct {
	start, end uint64
	row        ownRow
}

// ownRow is such a row: the CFA is rsp plus cfa, and registers of the machine are
// saved at saved from the CFA, or unchanged if it is 0.
type ownRow struct {
	cfa   int64
	saved [16]int64
}

// ownFDE is an entry of the file's .eh_frame. frames has checked all but its program.
type ownFDE struct {
	start, end uint64
	program    []byte
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

// readOwnRows reads the file's own .eh_frame as any unwinder would: each row as its program
// makes it. Package dwarfcfa, which reads objects, also says what the rows of compilers are
// meant to be, such as that a register which has been popped keeps its value; no
// unwinder that reads this file knows of that.
func (p *prover) readOwnRows() error {
	for _, f := range p.im.fdes {
		if err := p.readOwnFDE(f); err != nil {
			return imageError("the rows of the file's code from %#x on: %v", f.start, err)
		}
	}
	if len(p.rows) == 0 {
		return imageError("no unwind information for the file's code")
	}
	return nil
}

func (p *prover) readOwnFDE(f ownFDE) error {
	row, at := ownRow{cfa: 8}, f.start // what ownCIE says
	b := f.program
	operand := func() (v uint64, err error) {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > maxOffset {
			return 0, fmt.Errorf("an operand")
		}
		b = b[n:]
		return v, nil
	}
	for len(b) > 0 {
		op := b[0]
		b = b[1:]
		delta, size := uint64(0), 0
		switch {
		case op == cfaNop:
			continue
		case op == cfaDefCFAOffset:
			v, err := operand()
			if err != nil {
				return err
			}
			row.cfa = int64(v)
			continue
		case op&^cfaOperand == cfaOffset || op&^cfaOperand == cfaRestore:
			reg, saved := op&cfaOperand, uint64(0)
			if abi.CalleeSaved&(1<<reg) == 0 {
				return fmt.Errorf("a rule for register %d", reg)
			}
			if op&^cfaOperand == cfaOffset {
				var err error
				if saved, err = operand(); err != nil {
					return err
				}
				if saved == 0 {
					return fmt.Errorf("%s at the CFA", abi.RegName(int(reg)))
				}
			}
			row.saved[machineReg(int(reg))] = -8 * int64(saved)
			continue
		case op&^cfaOperand == cfaAdvanceLoc:
			delta = uint64(op & cfaOperand)
		case op == cfaAdvanceLoc1:
			size = 1
		case op == cfaAdvanceLoc2:
			size = 2
		case op == cfaAdvanceLoc4:
			size = 4
		default:
			return fmt.Errorf("an instruction %#x", op)
		}
		if size > len(b) {
			return fmt.Errorf("an operand")
		}
		for i := range size {
			delta |= uint64(b[i]) << (8 * i)
		}
		b = b[size:]
		if delta == 0 || delta >= f.end-at {
			return fmt.Errorf("a row at %#x", at+delta)
		}
		p.rows = append(p.rows, ownRange{at, at + delta, row})
		at += delta
	}
	p.rows = append(p.rows, ownRange{at, f.end, row})
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

// ownRow returns the row for an instruction, nil if there is none.
func (p *prover) ownRow(pc uint64) *ownRow {
	if r := &p.rows[p.lastRow]; r.start <= pc && pc < r.end {
		return &r.row
	}
	i := sort.Search(len(p.rows), func(i int) bool { return p.rows[i].end > pc })
	if i == len(p.rows) || p.rows[i].start > pc {
		return nil
	}
	p.lastRow = i
	return &p.rows[i].row
}

// checkOwnRow checks the row of the code itself at an instruction: it must lead to
// the caller of the function, with the caller's registers.
func (x *exec) checkOwnRow(s *state) error {
	if x.ownRows == nil {
		return nil
	}
	row := x.ownRows(s.pc)
	if row == nil {
		return fmt.Errorf("no unwind information for this instruction")
	}
	cfa := s.frame.ret + 8
	if s.reg[rSP] != x.spAt(cfa-row.cfa) {
		return fmt.Errorf("its own row says CFA = rsp%+d, rsp is %s", row.cfa, x.t.text(s.reg[rSP]))
	}
	for _, r := range calleeSaved {
		v := s.reg[r]
		if at := row.saved[r]; at != 0 {
			var found bool
			if v, found, _ = x.readCell(s.stack, cfa+at, 8); !found {
				v = noTerm
			}
		}
		if v != s.frame.keep[r] {
			return fmt.Errorf("its own row does not have the caller's register %d", r)
		}
	}
	return nil
}

// fastRows checks that one row holds for the code of pages, which the lookup's proof
// covers without running it on terms.
func (p *prover) fastRows() error {
	if p.fastLow >= p.fastHigh {
		return nil
	}
	want := ownRow{cfa: -frameBase + 8}
	want.saved[rBP] = -16
	for _, r := range p.rows {
		if r.start <= p.fastLow && p.fastHigh <= r.end && r.row == want {
			return nil
		}
	}
	return fmt.Errorf("%#x..%#x: no single row for the code of lookups", p.fastLow, p.fastHigh)
}
