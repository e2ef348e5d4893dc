package prove

import "fmt"

// lookup proves a lookup at pc: every pc leads to the head of its row, with the
// state of the loop intact.
func (p *lookupProof) lookup(pc uint64) error {
	t := p.t
	w := p.v.shared
	s := p.stateOf(&w, pc)
	if more, err := p.goOn(s); err != nil || more != nil {
		return fmt.Errorf("%#x: not a comparison: %v", pc, err)
	}
	states, err := p.goOn(s)
	if err != nil {
		return err
	}
	if states == nil {
		states = []*state{s}
	}
	within := t.ult(w.rel, t.con(uint64(p.table.High())-p.base))
	for _, s := range states {
		inside, err := p.holds(s, within)
		if err != nil {
			return err
		}
		if len(s.event) > 0 || len(s.regs) > 0 { // a table without rows needs no decision
			return fmt.Errorf("%#x: an access before the lookup", s.pc)
		}
		if !inside {
			if err := p.matches(s, &w); err != nil {
				return err
			}
			if err := p.leads(p.heads.of(s.pc), noRow); err != nil {
				return err
			}
			continue
		}
		if err := p.pageLookup(s); err != nil {
			return err
		}
	}
	return nil
}

// goOn runs one instruction, behind which the code goes on. more are the states that take the
// place of s, or nil.
func (p *lookupProof) goOn(s *state) (more []*state, err error) {
	at := s.pc
	more, end, err := p.x.step(s)
	if err == nil && end != nil {
		err = fmt.Errorf("the code ends")
	}
	if err != nil {
		return nil, &pathError{at, err}
	}
	return more, nil
}

// pageLookup proves the way from the pc's page on. For a pc below 2^31, the page is
// the number of the table's entry.
func (p *lookupProof) pageLookup(s *state) error {
	w := p.v.shared
	if span := uint64(p.table.High()) - p.base; span > 1<<31 {
		return fmt.Errorf("%#x: the pcs span %#x bytes", s.pc, span)
	}
	for range 2 { // to a search that all lookups share
		if i, ok := decode(p.im.text(s.pc)); !ok || i.op != iJmp {
			break
		}
		if _, err := p.goOn(s); err != nil {
			return err
		}
	}
	if p.beginsTable(s.pc) {
		return p.tableLookup(s, pageTable{high: uint64(p.table.High()) - p.base})
	}
	if err := p.matches(s, &w); err != nil {
		return err
	}
	return p.segments(s.pc)
}
