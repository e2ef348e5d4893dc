package verify

import (
	"fmt"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
)

// chains holds the addresses of two copies of the object, for walks that change
// objects.
type chains struct {
	spans ehelf.Spans
	low   uint64    // link-time
	size  uint64    // of the table's pcs, in bytes
	bias  [2]uint64 // of the two copies
	pcs   []uint64  // room for one walk
}

// newChains lays the object out twice.
func newChains(obj *ehelf.EhElf, t *dwarfcfa.Table, r *rng) *chains {
	c := &chains{low: uint64(t.Low()), size: uint64(t.High() - t.Low()), pcs: make([]uint64, maxWalk)}
	addr := 1<<32 + r.below(1<<40)
	for i := range c.bias {
		c.bias[i] = addr - c.low
		c.spans.Add(addr, addr+c.size)
		c.spans.Set(i, obj, c.bias[i])
		addr += c.size + r.below(3)*r.below(1<<20) // a gap between them, or none
	}
	return c
}

// place returns in which of the two copies an address lies, or -1.
func (c *chains) place(addr uint64) int {
	for i, bias := range c.bias {
		if addr-bias-c.low < c.size {
			return i
		}
	}
	return -1
}

// chain compares a walk on a stack that leads from row to row of both copies.
func (c *checker) chain() error {
	ch := c.chains
	m := c.stack
	from := c.anyPC()
	c.deepStack(from, ch.bias[c.rng.below(2)], func() uint64 { return uint64(c.anyPC()) + ch.bias[c.rng.below(2)] })
	m.seed = nil
	max := 1 + int(c.rng.below(maxWalk))
	c.result.Walks++
	c.result.Steps++

	*c.got, *c.want = *c.start, *c.start
	c.wantPCs = c.wantPCs[:0]
	place := -1
	for c.want.Status = abi.StatusOK; c.want.Status == abi.StatusOK && len(c.wantPCs) < max; {
		// The code checks that rsp is valid before it looks up the pc.
		if found := ch.place(c.want.LookupPC()); place < 0 || c.want.Valid&(1<<abi.RSP) != 0 {
			place = found
		}
		if place < 0 {
			c.want.Status = abi.StatusNoInfo
		} else if c.table.Step(c.want, m, ch.bias[place]) == abi.StatusOK {
			c.wantPCs = append(c.wantPCs, c.want.Reg[abi.RIP])
		}
	}
	mem := ehelf.Memory{Lo: m.lo, Bytes: m.area[m.off : m.off+m.size]}
	n, last := ch.spans.Walk(c.got, &mem, ch.pcs[:max])
	same := n == len(c.wantPCs) && last == place && sameFrame(c.got, c.want)
	for i := 0; same && i < n; i++ {
		same = ch.pcs[i] == c.wantPCs[i]
	}
	if same {
		return nil
	}
	return fmt.Errorf("%w: pc %#x (chain at %#x): from %s: the code takes %d steps to %s in %d, the table %d to %s in %d; %s", ErrDisagree,
		uint64(from), ch.bias, regsString(c.start), n, regsString(c.got), last, len(c.wantPCs), regsString(c.want),
		place, m)
}
