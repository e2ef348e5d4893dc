package prove

import (
	"bytes"
	"fmt"
	"sort"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
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

// readOwnRows reads the file's own .eh_frame, as any unwinder would.
func (p *prover) readOwnRows() error {
	object, err := dwarfcfa.NewObject("own unwind information", bytes.NewReader(p.im.file), int64(len(p.im.file)))
	if err != nil {
		return imageError("%v", err)
	}
	t, _, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{Source: dwarfcfa.SourceEHFrame, Strict: true})
	if err != nil {
		return imageError("%v", err)
	}
	for _, r := range t.Ranges {
		own, err := ownRowOf(&t.Rows[r.Row])
		if err != nil {
			return imageError("the row of its own code at %#x: %v", uint64(r.Start), err)
		}
		p.rows = append(p.rows, ownRange{uint64(r.Start), uint64(r.End), own})
	}
	if len(p.rows) == 0 {
		return imageError("no unwind information of its own")
	}
	return nil
}

func ownRowOf(r *dwarfcfa.Row) (o ownRow, err error) {
	if r.Flags != 0 || r.CFA.Kind != dwarfcfa.CFARegOffset || r.CFA.Reg != abi.RSP {
		return o, fmt.Errorf("a CFA that is not on rsp")
	}
	o.cfa = r.CFA.Offset
	for i, rule := range r.Regs {
		saved := rule.Kind == dwarfcfa.RuleOffset && rule.Offset < 0
		switch {
		case i == abi.RIP:
			if !saved || rule.Offset != -8 {
				return o, fmt.Errorf("the return address")
			}
		case i == abi.RSP:
			if rule.Kind != dwarfcfa.RuleValOffset || rule.Offset != 0 {
				return o, fmt.Errorf("rsp")
			}
		case abi.CalleeSaved&(1<<i) == 0:
			if rule.Kind != dwarfcfa.RuleUndefined {
				return o, fmt.Errorf("%s", abi.RegName(i))
			}
		case saved:
			o.saved[machineReg(i)] = rule.Offset
		case rule.Kind != dwarfcfa.RuleSameValue:
			return o, fmt.Errorf("%s", abi.RegName(i))
		}
	}
	return o, nil
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
	return fmt.Errorf("%#x..%#x: no single row of its own for the code of lookups", p.fastLow, p.fastHigh)
}
