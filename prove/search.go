package prove

import "fmt"

// cutKeys is where 16 keys of a record are read: movdqu (%rdi), %xmm1.
var cutKeys = []byte{0xf3, 0x0f, 0x6f, 0x0f}

// spread returns the low byte of a word in all 8 bytes, as the code makes it to compare 16 keys at
// once.
func (p *lookupProof) spread(x term) term {
	t := p.t
	four := t.low(t.mul(t.low(x, 1), t.con(0x01010101)), 4)
	return t.or(four, t.shlConst(four, 32))
}

// larger returns the mask of which of the 16 keys at an address are above the low byte of x:
// min(key, low) == key says that a key is not. Bits 16 to 31 are set, so that the lowest set bit is
// 16 if no key is larger.
func (p *lookupProof) larger(addr, x term) term {
	t := p.t
	low := p.spread(x)
	var mask [2]term // of 8 keys each
	for k := range mask {
		keys := t.load(t.plus(addr, int64(8*k)), 8)
		mask[k] = bytewise(p.x.t, iPmovmskb, bytewise(p.x.t, iPcmpeqb, bytewise(p.x.t, iPminub, keys, low), keys), 0)
	}
	return t.low(t.not(t.or(mask[0], t.shlConst(mask[1], 8))), 4)
}

// searchBegins checks what the loop of a search for count keys begins with, after a number of reads, the last
// of them the record's first byte.
func (p *lookupProof) searchBegins(e *ending, rec, count term, reads int) error {
	t := p.t
	w := p.v.shared
	w.rel = noTerm
	spread := p.spread(p.v.shared.rel)
	keys := t.plus(rec, 1)
	if err := p.require(e.state, want{"the keys", e.reg[rDI], keys}, want{"the first key", p.slot(e.state, slotExpr),
		keys},
		want{"the number of keys", e.reg[rAX], count}, want{"the pc", p.slot(e.state, slotCursor), p.v.shared.rel},
		want{"the low byte", e.xmm[0][0], spread}, want{"the low byte", e.xmm[0][1], spread}); err != nil {
		return err
	}
	if err := p.onlyReads(e.state, reads); err != nil {
		return err
	}
	if e.event[reads-1].addr != rec || e.event[reads-1].size != 1 {
		return fmt.Errorf("%#x: a search reads beside its record", e.pc)
	}
	return p.matches(e.state, &w)
}

// searchLoop proves the loop over 16 keys at a time. Its invariant: rdi is the next key, eax how many keys are left,
// and all before are at most the low byte. It hands endings to found, with the id's term. The number of keys is below
// 256: a byte of the record has it.
func (p *lookupProof) searchLoop(pc uint64, found func(e *ending, id term) error) error {
	t := p.t
	w := p.v.shared
	keys, first := t.variable("keys", ^uint64(0)), t.variable("firstKey", ^uint64(0))
	count := t.variable("count", 0xff)
	w.rel = noTerm
	s := p.stateOf(&w, pc)
	spread := p.spread(p.v.shared.rel)
	s.reg[rDI], s.reg[rAX] = keys, count
	s.xmm[0] = [2]term{spread, spread}
	p.setSlot(s, slotExpr, first)
	p.setSlot(s, slotCursor, p.v.shared.rel)
	index := t.firstBit(p.larger(keys, p.v.shared.rel)) // 16 if none is larger
	return p.run(s, p.stops(cutKeys), func(e *ending) error {
		more, err := p.holds(e.state, t.ult(t.con(16), count))
		if err != nil {
			return err
		}
		record := index
		if !more {
			record = t.ite(t.ult(count, index), count, index)
		} else {
			none, err := p.holds(e.state, t.eq(index, t.con(16)))
			if err != nil {
				return err
			}
			if none {
				if e.kind != endStop || e.pc != pc {
					return fmt.Errorf("%#x: the search ends too early", e.pc)
				}
				if err := p.onlyReads(e.state, 1); err != nil {
					return err
				}
				if err := p.require(e.state, want{"the keys", e.reg[rDI], t.plus(keys, 16)},
					want{"the number of keys", e.reg[rAX], t.low(t.plus(count, -16), 4)},
					want{"the first key", p.slot(e.state, slotExpr), first}, want{"the pc", p.slot(e.state, slotCursor),
						p.v.shared.rel},
					want{"the low byte", e.xmm[0][0], spread}, want{"the low byte", e.xmm[0][1], spread}); err != nil {
					return err
				}
				return p.matches(e.state, &w)
			}
		}
		if e.kind != endJump || len(e.event) < 2 {
			return fmt.Errorf("%#x: the search goes on", e.pc)
		}
		id := t.scaled(t.add(keys, count), t.sub(t.add(record, keys), first), 2)
		if ev := e.event[1]; ev.addr != id || ev.size != 2 {
			return fmt.Errorf("%#x: no id is read", e.pc)
		}
		return found(e, t.load(id, 2))
	})
}
