package verify

import (
	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// Every is Image at every pc from a page below the table to a page above it, with a
// window that has all words and one at whose edge they lie. At the first and last pc of
// every range it also tries windows with an edge at each word that the row reads,
// windows that are empty or too small for a word, with and without a read callback, and
// with registers missing, one by one and together. A row without expressions is
// evaluated once for each of these states, not at each pc.
func Every(image []byte, t *dwarfcfa.Table) (Result, error) {
	return with(image, t, func(c *checker) error {
		if err := c.every(); err != nil {
			return err
		}
		return c.run()
	})
}

// every compares at each pc, with the states of its row.
func (c *checker) every() error {
	const page = 256
	c.mem.fillAll(&c.rng)
	ranges := c.table.Ranges
	next := 0
	first, last := c.table.Low()&^(page-1)-page, c.table.High()+page
	rows := make(map[*dwarfcfa.Row]*cases) // nil: no row
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
		of := rows[row]
		if of == nil {
			of = &cases{changes: !c.mem.filled || !sameEverywhere(row)}
			rows[row] = of
		}
		if err := c.atEvery(of, pc, row, border && row != nil); err != nil {
			return err
		}
	}
	return nil
}

// cases are states of one row.
type cases struct {
	changes bool     // a step's result depends on the pc: no state is kept
	list    [][]kept // for one pc after the other
	next    int      // which of list the next pc takes
	edges   []kept   // states at a border
}

// kept is a state and the result of a step from it at any pc.
type kept struct {
	start, want abi.Regs     // of the evaluator: result
	form        string       // name of the comparison, for messages
	steps       int          // that the table takes
	pcs         bool         // the code gets an array of pcs
	window      target       // as the memory was set up
	context     *contextCase // a step of _eh_elf
}

// keptStates is the number of states that the pcs of a row share, each three steps.
const keptStates = 16

// atEvery is at, and at a border edges, with states that are kept.
func (c *checker) atEvery(of *cases, pc dwarfcfa.Addr, row *dwarfcfa.Row, border bool) error {
	recorded := func(run func(dwarfcfa.Addr, *dwarfcfa.Row) error) ([]kept, error) {
		var list []kept
		if !of.changes {
			c.record = &list
		}
		err := run(pc, row)
		c.record = nil
		return list, err
	}
	again := func(list []kept) error {
		for i := range list {
			if err := c.again(&list[i], pc); err != nil {
				return err
			}
		}
		return nil
	}
	if len(of.list) == keptStates { // enough states: only the code runs
		c.result.PCs++
		of.next = (of.next + 1) % keptStates
		if err := again(of.list[of.next]); err != nil {
			return err
		}
	} else {
		list, err := recorded(c.at)
		if err != nil {
			return err
		}
		if !of.changes {
			of.list = append(of.list, list)
		}
	}
	if !border {
		return nil
	}
	if of.edges != nil {
		return again(of.edges)
	}
	var err error
	of.edges, err = recorded(c.edges)
	return err
}

// again runs a kept state at another pc.
func (c *checker) again(k *kept, pc dwarfcfa.Addr) error {
	m := c.mem
	m.lo, m.off, m.size, m.bias, m.seed = k.window.lo, k.window.off, k.window.size, k.window.bias, k.window.seed
	if k.context != nil {
		again := *k.context
		again.in.RIP = uint64(pc) + m.bias
		return c.runContext(pc, &again)
	}
	*c.start, *c.want = k.start, k.want
	c.start.Reg[abi.RIP] = uint64(pc) + m.bias
	if c.start.Exact == 0 { // a return address: lookups use the byte before
		c.start.Reg[abi.RIP]++
	}
	c.wantPCs = c.wantPCs[:0]
	if k.steps > 0 {
		c.wantPCs = append(c.wantPCs, c.want.Reg[abi.RIP])
	} else {
		c.want.Reg[abi.RIP] = c.start.Reg[abi.RIP]
	}
	return c.runCode(pc, k.form, m, 1, k.pcs)
}

// sameEverywhere reports whether a step by a row, nil for none, does not depend on the pc.
func sameEverywhere(row *dwarfcfa.Row) bool {
	if row == nil || row.Regs[abi.RIP].Kind == dwarfcfa.RuleUndefined || row.Flags&dwarfcfa.RowNotCompiled != 0 {
		return true // it stops
	}
	if row.CFA.Kind != dwarfcfa.CFARegOffset || row.CFA.Reg == abi.RIP {
		return false
	}
	for i, r := range row.Regs {
		switch r.Kind {
		case dwarfcfa.RuleUndefined, dwarfcfa.RuleOffset, dwarfcfa.RuleValOffset:
		case dwarfcfa.RuleSameValue:
			if i == abi.RIP {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// edges compares steps with many windows and masks at one pc.
func (c *checker) edges(pc dwarfcfa.Addr, row *dwarfcfa.Row) error {
	m := c.mem
	words := []int64{0, -8} // offsets from the CFA at which the row reads
	for _, rule := range row.Regs {
		if rule.Kind == dwarfcfa.RuleOffset && rule.Offset > -smallWindow/4 && rule.Offset < smallWindow/4 {
			words = append(words, rule.Offset)
		}
	}
	masks := []uint32{abi.AllRegs, abi.AllRegs &^ abi.CalleeSaved, 1<<abi.RSP | 1<<abi.RIP,
		1<<abi.RSP | 1<<abi.RIP | 1<<abi.RBP}
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
	for _, word := range words {
		for _, d := range []int64{-9, -8, -7, -1, 0, 1, 7, 8, 9} {
			edge := uint64(middle + word + d)
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
