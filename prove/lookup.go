package prove

import "fmt"

// lookup proves a lookup that begins at pc, with the shared invariant of walks and steps of
// _eh_elf: every pc leads to the head of its row, with the state of the loop intact.
func (p *lookupProof) lookup(pc uint64) error {
	t := p.t
	w := p.v.shared
	s := p.stateOf(&w, pc)
	// The code begins with the range check: cmp rax with the size of the table's range, then a
	// branch.
	if more, err := p.goOn(s); err != nil || more != nil {
		return fmt.Errorf("%#x: not a comparison: %v", pc, err)
	}
	states, err := p.goOn(s) // the branch
	if err != nil {
		return err
	}
	if states == nil {
		states = []*state{s}
	}
	within := t.ult(w.rel, t.con(uint64(p.table.High())-p.base)) // the pc is in the table's range; rel wraps for pcs below
	for _, s := range states {
		inside, err := p.holds(s, within)
		if err != nil {
			return err
		}
		if len(s.event) > 0 || len(s.regs) > 0 { // a table without rows needs no decision
			return fmt.Errorf("%#x: an access before the lookup", s.pc)
		}
		if !inside {
			// Outside, it must lead to the code for no information.
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

// goOn runs one instruction, which must not end the path. more are the states that take the place
// of s, or nil.
func (p *lookupProof) goOn(s *state) (more []*state, err error) {
	pc := s.pc
	more, end, err := p.x.step(s)
	if err == nil && end != nil {
		err = fmt.Errorf("the code ends")
	}
	if err != nil {
		return nil, &pathError{pc, err}
	}
	return more, nil
}

// pageLookup proves the way from the pc's page on. For a pc below 2^31, the page is the number of
// the table's entry. So 2^31 bounds the range.
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
