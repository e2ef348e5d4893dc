package prove

import "fmt"

// tableLookup proves the way through a table of pages, for the pcs that are given with it. The entry is 4 bytes,
// signed: a distance from pages.from to the page's code.
func (p *lookupProof) tableLookup(s *state, pages pageTable) error {
	if p.packed {
		return p.packedLookup(s, pages)
	}
	t := p.t
	w := p.v.shared
	return p.run(s, nil, func(e *ending) error {
		pages := pages
		if len(e.event) == 0 || e.event[0].kind != evRead || e.event[0].size != 4 {
			return fmt.Errorf("%#x: no entry of the page table is read", e.pc)
		}
		addr := e.event[0].addr
		var data uint64
		ok, bits := false, uint(0)
		for bits = range uint(maxPageBits + 1) { // it is the code that says how large a page is
			page := t.shrConst(t.low(w.rel, 4), bits)
			if data, ok = p.x.link(t.scaled(addr, page, ^uint64(3))); ok {
				break
			}
		}
		if !ok {
			return fmt.Errorf("%#x: reads the page table at %s", e.pc, t.text(addr))
		}
		entry := t.load(addr, 4)
		pages.first, pages.bits = data, bits
		// What entries count from need not be where the entry of page 0 would be.
		if pages.from, ok = p.x.link(t.sub(e.target, t.sext(entry, 4))); !ok {
			return fmt.Errorf("%#x: a jump to %s", e.pc, t.text(e.target))
		}
		if err := p.intact(e, 1, t.add(t.sext(entry, 4), p.x.mapped(pages.from))); err != nil {
			return err
		}
		return p.pages(pages)
	})
}
