package plan

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
)

func change(f func(r *dwarfcfa.Row)) dwarfcfa.Row {
	r := rowtest.Row(abi.RSP, 16, abi.RBX)
	f(&r)
	return r
}

func TestFastRows(t *testing.T) {
	saves := [NumFast]int32{-16}
	for _, c := range []struct {
		name string
		row  dwarfcfa.Row
		want *Tail // nil: the slow path
	}{
		{"rsp", rowtest.Row(abi.RSP, 16, abi.RBX), &Tail{Base: abi.RSP, RA: -8, Saves: saves}},
		{"rbp", rowtest.Row(abi.RBP, 16, abi.RBX), &Tail{Base: abi.RBP, RA: -8, Saves: saves, Depth: 16}},
		{"red zone", rowtest.Row(abi.RSP, 8, abi.RBX), &Tail{Base: abi.RSP, RA: -8, Saves: saves, Depth: 16}},
		{"negative", rowtest.Row(abi.RSP, -8), &Tail{Base: abi.RSP, RA: -8, Depth: 8}},
		{"rbx", rowtest.Row(abi.RBX, 16), nil},
		{"huge", rowtest.Row(abi.RSP, maxFastOffset+1), nil},
		{"huge, negative", rowtest.Row(abi.RSP, -maxFastOffset-1), nil},
		{"signal", change(func(r *dwarfcfa.Row) { r.Flags = dwarfcfa.RowSignal }), nil},
		{"slot above the CFA", change(func(r *dwarfcfa.Row) { r.Regs[abi.RBX].Offset = 0 }), nil},
		{"slot across the CFA", change(func(r *dwarfcfa.Row) { r.Regs[abi.RBX].Offset = -7 }), nil},
		{"slot far below", change(func(r *dwarfcfa.Row) { r.Regs[abi.RBX].Offset = -maxFastOffset - 8 }), nil},
		{"value", change(func(r *dwarfcfa.Row) { r.Regs[abi.RBX].Kind = dwarfcfa.RuleValOffset }), nil},
		{"undefined rbx", change(func(r *dwarfcfa.Row) { r.Regs[abi.RBX] = dwarfcfa.RegRule{Kind: dwarfcfa.RuleUndefined} }),
			nil},
		{"saved rax", change(func(r *dwarfcfa.Row) { r.Regs[abi.RAX] = r.Regs[abi.RBX] }), nil},
		{"same rax", change(func(r *dwarfcfa.Row) { r.Regs[abi.RAX].Kind = dwarfcfa.RuleSameValue }), nil},
		{"saved rsp", change(func(r *dwarfcfa.Row) { r.Regs[abi.RSP] = r.Regs[abi.RBX] }), nil},
		{"rsp off the CFA", change(func(r *dwarfcfa.Row) { r.Regs[abi.RSP].Offset = 8 }), nil},
		{"rip in a register", change(func(r *dwarfcfa.Row) {
			r.Regs[abi.RIP] = dwarfcfa.RegRule{Kind: dwarfcfa.RuleRegister, Reg: abi.RAX}
		}), nil},
	} {
		tail, ok := fastTail(&c.row)
		if assert.Equal(t, c.want != nil, ok, c.name) && ok {
			assert.Equal(t, *c.want, tail, c.name)
		}
	}
}

// randomTable has ranges of all lengths, holes, and few rows.
func randomTable(rng *rand.Rand) *dwarfcfa.Table {
	t := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}
	for i := range 20 {
		t.Rows = append(t.Rows, rowtest.Row(abi.RSP, 8*int64(i+1)))
	}
	addr := dwarfcfa.Addr(rng.Uint64N(5000))
	last := uint32(99)
	for range rng.IntN(400) {
		if rng.IntN(5) == 0 {
			addr += dwarfcfa.Addr(1 + rng.IntN(1<<rng.IntN(12)))
			last = 99
		}
		end := addr + dwarfcfa.Addr(1+rng.IntN(1<<rng.IntN(10)))
		if id := uint32(rng.IntN(len(t.Rows))); id != last {
			t.Ranges = append(t.Ranges, dwarfcfa.Range{Start: addr, End: end, Row: id})
			last = id
		} else {
			t.Ranges[len(t.Ranges)-1].End = end
		}
		addr = end
	}
	return t
}

// TestLookup compares every pc, and some beyond, with the table.
func TestLookup(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 60 {
		table := randomTable(rng)
		for i, d := range []Dispatch{DispatchTree, DispatchPacked, DispatchTree} {
			p, err := Build(table, Options{Dispatch: d, PageBits: uint(PageBits - i/2)})
			require.NoError(t, err)
			for pc := p.Base; pc < table.High()+600; pc++ {
				want := uint32(0)
				if r, ok := table.Lookup(pc); ok {
					want = r.Row + 1
				}
				if got := p.Lookup(pc); got != want { // of a million
					require.Equal(t, want, got, "%s: pc %#x", d, uint64(pc))
				}
			}
			assert.Zero(t, p.Lookup(p.Base-1))
		}
	}
}

// sparseTable has ranges and holes of up to 2^24 bytes, or of that size about, between those of randomTable.
func sparseTable(rng *rand.Rand, equal bool) *dwarfcfa.Table {
	t := randomTable(rng)
	by := dwarfcfa.Addr(0)
	for i := range t.Ranges {
		t.Ranges[i].Start += by
		if equal && i%7 == 0 {
			by += 1<<24 + dwarfcfa.Addr(rng.IntN(1<<16))
		} else if !equal && i%40 == 0 {
			by += dwarfcfa.Addr(rng.Uint64N(1 << rng.IntN(25)))
		}
		t.Ranges[i].End += by
		if i%60 == 0 {
			by += dwarfcfa.Addr(rng.Uint64N(1 << rng.IntN(25)))
		}
	}
	return t
}

// TestSegments compares the pcs around every border of ranges, pages and segments.
func TestSegments(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	most := 0
	for n := range 60 {
		table := sparseTable(rng, n%3 == 0)
		p, err := Build(table, Options{})
		require.NoError(t, err)
		most = max(most, len(p.Segments))
		off := 0
		var pcs []dwarfcfa.Addr
		for i := range p.Segments {
			s := &p.Segments[i]
			require.Equal(t, off, s.First)
			require.Positive(t, s.Pages)
			if s.Table != nil {
				require.Len(t, s.Table, s.Pages)
			}
			off += s.Pages
			pcs = append(pcs, p.Base+dwarfcfa.Addr(s.First)*PageSize)
		}
		assert.Equal(t, int((p.High-p.Base+PageSize-1)/PageSize), off)
		for _, r := range table.Ranges {
			pcs = append(pcs, r.Start, r.End, r.Start&^(PageSize-1), r.End|(PageSize-1))
		}
		for _, around := range pcs {
			for pc := around - 1; pc <= around+1; pc++ {
				want := uint32(0)
				if r, ok := table.Lookup(pc); ok {
					want = r.Row + 1
				}
				require.Equal(t, want, p.Lookup(pc), "pc %#x", uint64(pc))
			}
		}
	}
	assert.Greater(t, most, 8)
}

// TestIDs checks that the blocks of packed pages have ids, the most used first, and that trees have nodes instead.
func TestIDs(t *testing.T) {
	table := randomTable(rand.New(rand.NewPCG(7, 8)))
	p, err := Build(table, Options{})
	require.NoError(t, err)
	assert.Empty(t, p.IDs)
	for _, tree := range p.Trees {
		assert.Len(t, tree.Nodes, len(tree.Keys))
	}
	p, err = Build(table, Options{Dispatch: DispatchPacked})
	require.NoError(t, err)
	uses := map[uint32]int{}
	for _, tree := range p.Trees {
		assert.Empty(t, tree.Nodes)
		for _, target := range tree.Targets {
			uses[target]++
		}
	}
	require.Len(t, p.IDs, len(uses))
	for id, block := range p.IDs {
		assert.EqualValues(t, id, p.IDOf[block])
		assert.Positive(t, uses[block])
		if id > 0 {
			assert.GreaterOrEqual(t, uses[p.IDs[id-1]], uses[block])
		}
	}
	for block := range p.Blocks {
		assert.Equal(t, uses[uint32(block)] == 0, p.IDOf[block] == noID)
	}
}

// cost returns the mean number of comparisons plus four times the mean number of branches taken inside a
// subtree, weighted as treeBuilder weighs, over leaves from to to, the naive way.
func cost(keys []uint8, from, to int, known map[[2]int]int) int {
	if from == to {
		return 0
	}
	if c, ok := known[[2]int{from, to}]; ok {
		return c
	}
	bound := func(i int) int {
		switch {
		case i == 0:
			return 0
		case i > len(keys):
			return PageSize
		}
		return int(keys[i-1])
	}
	weight := func(from, to int) int { return bound(to+1) - bound(from) + to - from + 1 }
	best := 1 << 30
	for k := from; k < to; k++ {
		c := cost(keys, from, k, known) + cost(keys, k+1, to, known)
		if k > from && k+1 < to {
			c += 4 * min(weight(from, k), weight(k+1, to))
		}
		best = min(best, c)
	}
	best += weight(from, to)
	known[[2]int{from, to}] = best
	return best
}

// widths returns the weights of leaves by the low bytes that lead to them.
func widths(keys []uint8) []uint32 {
	var weights []uint32
	for i, from := 0, 0; i <= len(keys); i++ {
		to := PageSize
		if i < len(keys) {
			to = int(keys[i])
		}
		weights = append(weights, uint32(to-from+1))
		from = to
	}
	return weights
}

// costOf returns the cost of a tree over widths, and checks which side follows in the code.
func costOf(t *testing.T, nodes []Node) int {
	total := 0
	// down returns the weight of a subtree's leaves.
	var down func(c Child, lo, hi, cost int) int
	down = func(c Child, lo, hi, cost int) int {
		if _, leaf := c.Leaf(); leaf {
			total += cost * (hi - lo + 1)
			return hi - lo + 1
		}
		n := nodes[c]
		_, left := n.Left.Leaf()
		_, right := n.Right.Leaf()
		toLeft, toRight := cost+1, cost+1
		switch {
		case left || right:
		case n.LeftNext:
			toRight += 4
		default:
			toLeft += 4
		}
		a, b := down(n.Left, lo, int(n.Key), toLeft), down(n.Right, int(n.Key), hi, toRight)
		assert.Equal(t, a > b, n.LeftNext)
		return a + b
	}
	down(0, 0, PageSize, 0)
	return total
}

// TestTreesAreBest compares the dynamic programme's trees with a plain search.
func TestTreesAreBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	var b treeBuilder
	for range 200 {
		var keys []uint8
		for k := 1 + rng.IntN(30); k < PageSize; k += 1 + rng.IntN(40) {
			keys = append(keys, uint8(k))
		}
		nodes := b.nodes(keys, widths(keys))
		require.Len(t, nodes, len(keys))
		assert.Equal(t, cost(keys, 0, len(keys), map[[2]int]int{}), costOf(t, nodes))
	}
}

// TestLongTrees: the tree of more leaves than get the best one is at most 2 % worse.
func TestLongTrees(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	var b treeBuilder
	for _, n := range []int{bestLeaves, 70, 120, PageSize - 1} {
		var keys []uint8
		for _, k := range rng.Perm(PageSize - 1)[:n] {
			keys = append(keys, uint8(k+1))
		}
		slices.Sort(keys)
		nodes := b.nodes(keys, widths(keys))
		require.Len(t, nodes, n)
		assert.LessOrEqual(t, 100*costOf(t, nodes), 102*cost(keys, 0, n, map[[2]int]int{}), n)
	}
}

func TestSpan(t *testing.T) {
	table := randomTable(rand.New(rand.NewPCG(11, 12)))
	table.Ranges = append(table.Ranges, dwarfcfa.Range{Start: 1 << 40, End: 1<<40 + 1})
	_, err := Build(table, Options{})
	assert.ErrorIs(t, err, ErrSpan)
}

func TestParseDispatch(t *testing.T) {
	for _, d := range []Dispatch{DispatchTree, DispatchPacked} {
		got, err := ParseDispatch(d.String())
		require.NoError(t, err)
		assert.Equal(t, d, got)
	}
	_, err := ParseDispatch("hash")
	assert.ErrorContains(t, err, "want tree or packed")
}

func TestDump(t *testing.T) {
	p, err := Build(&dwarfcfa.Table{
		Exprs:  make([]dwarfcfa.Expr, 1),
		Rows:   []dwarfcfa.Row{rowtest.Row(abi.RSP, 8), rowtest.Row(abi.RSP, 24, abi.RBX)},
		Ranges: []dwarfcfa.Range{{Start: 0x1010, End: 0x1020, Row: 0}, {Start: 0x1020, End: 0x1100, Row: 1}},
	}, Options{})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, p.Dump(&out, nil))
	assert.Equal(t, `block 0: stop: no unwind information
block 1: fast: rsp+8 ra=c-8, tail 0
block 2: fast: rsp+24 rbx=c-16 ra=c-8, tail 1
tail 0: from rsp: rip=[c-8]
tail 1: from rsp: rip=[c-8] rbx=[c-16]
page 0x1000: tree 0
  0x1000: block 0 after 2 comparisons
  0x1010: block 1 after 2 comparisons
  0x1020: block 2 after 1 comparisons
`, out.String())
	pc := dwarfcfa.Addr(0x1011)
	out.Reset()
	require.NoError(t, p.Dump(&out, &pc))
	assert.Contains(t, out.String(), "block 1: fast")
	assert.NotContains(t, out.String(), "block 2: fast")
}
