package prove

import (
	"fmt"

	"github.com/ehasm/ehasm/abi"
)

// segmentOf returns how many steps the next segment takes, of those left, where the caller wants
// no pcs and they go to the own frame: at most segment.
func (p *proof) segmentOf(left term) term {
	n := p.t.con(segment)
	return p.t.ite(p.t.ult(left, n), left, n)
}

// ownPCs returns the end of the pcs of a segment in the own frame. The cursor counts up to 0, so
// pcs are addressed from the end.
func (p *proof) ownPCs(steps term) term {
	return p.t.scaled(p.t.plus(p.x.sp, frameBase+slotNew), steps, 8)
}

// atLoad checks what the set-up of the registers relies on, and that the cursor is
// not 0: a step is to be taken.
func (p *proof) atLoad(e *ending, l *loop) error {
	if e.kind != endStop {
		return fmt.Errorf("%#x: a jump to %s", e.pc, p.t.text(e.target))
	}
	p.owed.loads.add(e.pc)
	if err := p.matches(e.state, l); err != nil {
		return err
	}
	if none, err := p.holds(e.state, p.t.eq(l.cursor, p.t.con(0))); err != nil || none {
		return fmt.Errorf("%#x: the cursor may be 0: %v", e.pc, err)
	}
	return p.require(e.state, want{"rdi", e.reg[rDI], p.v.args.regs}, want{"rsi", e.reg[rSI], p.v.args.mem})
}

// statusOnly says that only the status of eh_elf_regs_t was written. These wants are for require.
func (p *proof) statusOnly(s *state, status abi.Status) []want {
	v, _, _ := s.regs.read(p.x.t, abi.RegsStatus, 2)
	for _, c := range s.regs {
		if c.off != abi.RegsStatus || c.size != 2 {
			v = noTerm
		}
	}
	if len(s.regs) == 0 {
		v = noTerm
	}
	return []want{{"the status", v, p.t.con(uint64(uint16(status)))}}
}

// inMemory says that eh_elf_regs_t has the registers of a loop; a status of noTerm is not asked
// for.
func (p *proof) inMemory(s *state, l *loop, status term) []want {
	t := p.t
	list := []want{}
	add := func(what string, off int64, size uint8, v term) {
		got, found, err := s.regs.read(p.x.t, off, size)
		if !found || err != nil {
			got = noTerm
		}
		list = append(list, want{what + " in memory", got, v})
	}
	add("rip", 8*abi.RIP, 8, t.add(l.rel, l.base)) // the loop's pc counts from the base
	add("rsp", 8*abi.RSP, 8, t.sub(l.rsp, l.delta))
	add("rbp", 8*abi.RBP, 8, l.rbp)
	for i, home := range homeOf {
		add(abi.RegName(home.dwarf), int64(8*home.dwarf), 8, l.home[i])
	}
	add("the mask of valid registers", abi.RegsValid, 4, l.mask)
	add("exact", abi.RegsExact, 2, t.con(0))
	if status != noTerm {
		add("the status", abi.RegsStatus, 2, status)
	}
	return list
}

// cellAt returns 8 bytes of the stack at an offset from rsp at the entry, noTerm if they are not
// known.
func (p *proof) cellAt(s *state, off int64) term {
	if v, ok, _ := s.stack.read(p.x.t, off, 8); ok {
		return v
	}
	return noTerm
}

// statusTerm is a status as a 32-bit register holds it.
func (p *proof) statusTerm(s abi.Status) term { return p.t.con(uint64(uint32(int32(s)))) }
