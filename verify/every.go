package verify

import (
	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// Every is Image at every pc from a page below the table to a page above it, with a
// window that has all words and one at whose edge they lie; and, at the first and last
// pc of every range, with the edge of a window at each word that the row reads, with
// windows that are empty or too small for a word, with and without a read callback, and
// with registers missing, one by one and together.
func Every(image []byte, t *dwarfcfa.Table) (Result, error) {
	return with(image, t, func(c *checker) error {
		if err := c.every(); err != nil {
			return err
		}
		return c.run()
	})
}

func (c *checker) every() error {
	const page = 256
	ranges := c.table.Ranges
	next := 0
	first, last := c.table.Low()&^(page-1)-page, c.table.High()+page
	for pc := first; pc != last; pc++ {
		for next < len(ranges) && ranges[next].End <= pc {
			next++
		}
		var row *dwarfcfa.Row
		border := pc == first || pc+1 == last
		if next < len(ranges) && ranges[next].Start <= pc {
			row = &c.table.Rows[ranges[next].Row]
			border = ranges[next].Start == pc || ranges[next].End == pc+1
		}
		if err := c.at(pc, row); err != nil {
			return err
		}
		if border && row != nil {
			if err := c.edges(pc, row); err != nil {
				return err
			}
		}
	}
	return nil
}

// edges goes through windows and masks at one pc.
func (c *checker) edges(pc dwarfcfa.Addr, row *dwarfcfa.Row) error {
	m := c.mem
	words := []int64{0, -8}
	for _, rule := range row.Regs {
		if rule.Kind == dwarfcfa.RuleOffset && rule.Offset > -smallWindow/4 && rule.Offset < smallWindow/4 {
			words = append(words, rule.Offset)
		}
	}
	masks := []uint32{abi.AllRegs, abi.AllRegs &^ abi.CalleeSaved, 1<<abi.RSP | 1<<abi.RIP, 1<<abi.RSP | 1<<abi.RIP | 1<<abi.RBP}
	for r := range abi.NumRegs {
		masks = append(masks, abi.AllRegs&^(1<<r))
	}
	const middle = smallWindow / 2
	// try places the window at from, size bytes, and the CFA in the middle of the area.
	try := func(from, size uint64, mask uint32, callback bool) error {
		m.place(&c.rng)
		m.open(from, size)
		m.seed = nil
		if callback {
			m.seed = new(uint64)
			*m.seed = c.rng.word()
		}
		c.frame(pc, m)
		s := c.start
		s.Reg[abi.RSP], s.Reg[abi.RBP] = m.lo+size/2, m.lo+size/2
		if row.CFA.Kind == dwarfcfa.CFARegOffset && row.CFA.Reg != abi.RIP {
			s.Reg[row.CFA.Reg] = m.lo - from + middle - uint64(row.CFA.Offset)
		}
		s.Valid = mask
		return c.compare(pc, "edges", m, 1, callback)
	}
	for k, mask := range masks {
		if err := try(0, m.room, mask, k%2 == 0); err != nil {
			return err
		}
	}
	for _, at := range words {
		for _, d := range []int64{-9, -8, -7, -1, 0, 1, 7, 8, 9} {
			edge := uint64(middle + at + d)
			if err := try(0, edge, abi.AllRegs, d%2 == 0); err != nil { // it ends there
				return err
			}
			if err := try(edge, smallWindow-edge, abi.AllRegs, d%2 != 0); err != nil { // it begins there
				return err
			}
		}
	}
	for size := range uint64(10) {
		if err := try(middle-8, size, abi.AllRegs, size%2 == 0); err != nil {
			return err
		}
	}
	return nil
}
