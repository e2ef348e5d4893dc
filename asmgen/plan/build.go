package plan

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"sort"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// This file cuts a table into blocks and pages: which rows take the fast path, which tails they share, and which pages
// are equal.

// Options are the settings of a plan.
type Options struct {
	Dispatch Dispatch
	PageBits uint // 0: PageBits. Smaller pages have smaller trees and a larger table
	// Calls are where the object calls, which says which pages are looked up most.
	Calls dwarfcfa.Calls
}

// Build plans the code for a table. The table must be normalised. The error wraps ErrSpan; packed pages with too many
// keys are planned again at half the size.
func Build(t *dwarfcfa.Table, opt Options) (*Plan, error) {
	p := &Plan{Table: t, Low: t.Low(), High: t.High(), Dispatch: opt.Dispatch, PageBits: cmp.Or(opt.PageBits, PageBits)}
	// Base is a multiple of the page size, so that a low byte of the relative pc is one of the pc.
	p.Base = p.Low &^ (PageSize - 1)
	if span := uint64(p.High - p.Base); span > maxSpan {
		return nil, fmt.Errorf("%w: %#x..%#x, at most %#x are supported", ErrSpan, p.Low, p.High, uint64(maxSpan))
	}
	b := builder{
		plan: p, tails: map[Tail]uint32{}, calls: opt.Calls, byteWeight: byteWeight,
	}
	// Without calls, bytes stand for them.
	if opt.Calls.None() {
		b.byteWeight = callWeight / bytesPerCall
	}
	b.blocks()
	b.weigh()
	b.pages()
	// Too many keys for a record: smaller pages have fewer.
	if p.Dispatch == DispatchPacked && b.mostKeys > PackedKeys {
		opt.PageBits = PageBits - 1
		return Build(t, opt)
	}
	if p.Dispatch == DispatchPacked {
		p.number()
	}
	return p, nil
}

// builder holds the state of planning.
type builder struct {
	plan  *Plan
	tails map[Tail]uint32
	trees map[string]uint32 // by encoded keys and targets
	key   []byte            // scratch
	dp    treeBuilder

	mostKeys int // of a page

	calls      dwarfcfa.Calls
	byteWeight uint32
	weights    []uint32 // scratch: of a page's leaves
}

// A pc of a frame is a call's, but for the innermost one, which may be any: a call counts 128 times as much as another
// byte.
const (
	callWeight   = 128
	byteWeight   = 1
	bytesPerCall = 25 // of text, where calls are not known; gdb, python3, cc1 and Go programs have one in 45 to 70
)

// weigh sets the weights of the blocks.
func (b *builder) weigh() {
	p := b.plan
	// Row r has block r+1.
	p.Weights = make([]uint64, len(p.Blocks))
	count := b.calls.Walk()
	for _, r := range p.Table.Ranges {
		count(r.Start)
		p.Weights[r.Row+1] += uint64(b.byteWeight)*uint64(r.End-r.Start) + callWeight*uint64(count(r.End))
	}
}

// blocks makes a block for every row; the block of row r is r+1.
func (b *builder) blocks() {
	rows := b.plan.Table.Rows
	b.plan.Blocks = make([]Block, 1, len(rows)+1)
	// Block 0 is for pcs without information.
	b.plan.Blocks[0] = Block{Kind: BlockStop, Status: int16(abi.StatusNoInfo)}
	for i := range rows {
		b.plan.Blocks = append(b.plan.Blocks, b.block(&rows[i], uint32(i)))
	}
}

// block returns the code of a row: a stop, the slow path, or the fast path with a tail that equal rows share.
func (b *builder) block(r *dwarfcfa.Row, index uint32) Block {
	switch {
	case r.Flags&dwarfcfa.RowNotCompiled != 0:
		return Block{Kind: BlockStop, Status: int16(abi.StatusNotCompiled)}
	case r.Regs[abi.RIP].Kind == dwarfcfa.RuleUndefined:
		return Block{Kind: BlockStop, Status: int16(abi.StatusOutermost)}
	}
	tail, ok := fastTail(r)
	if !ok {
		return Block{Kind: BlockSlow, Row: index}
	}
	n, known := b.tails[tail]
	if !known {
		n = uint32(len(b.plan.Tails))
		b.tails[tail] = n
		b.plan.Tails = append(b.plan.Tails, tail)
	}
	return Block{Kind: BlockFast, Base: uint8(r.CFA.Reg), Offset: int32(r.CFA.Offset), Tail: n, Row: index}
}

// maxFastOffset bounds the offsets of the fast path, 1 GB. With it, sums of a window address and an offset do not wrap
// (see package asmgen's entry checks).
const maxFastOffset = 1 << 30

// fastTail returns the tail of a row that the fast path can do: CFA on rsp or
// rbp, the return address and callee-saved registers saved below the CFA or
// unchanged, everything else as the psABI has it without a rule.
func fastTail(r *dwarfcfa.Row) (Tail, bool) {
	var t Tail
	if r.Flags != 0 || r.CFA.Kind != dwarfcfa.CFARegOffset {
		return t, false
	}
	if r.CFA.Reg != abi.RSP && r.CFA.Reg != abi.RBP {
		return t, false
	}
	if r.CFA.Offset < -maxFastOffset || r.CFA.Offset > maxFastOffset {
		return t, false
	}
	// lowest is the lowest slot below the CFA.
	lowest := int64(0)
	// slot checks one saved register: a word below the CFA, within the bounds.
	slot := func(rule dwarfcfa.RegRule) (int32, bool) {
		if rule.Kind != dwarfcfa.RuleOffset || rule.Offset > -8 || rule.Offset < -maxFastOffset {
			return 0, false
		}
		lowest = min(lowest, rule.Offset)
		return int32(rule.Offset), true
	}
	ok := false
	if t.RA, ok = slot(r.Regs[abi.RIP]); !ok {
		return t, false
	}
	// Registers that the fast path handles.
	fast := uint32(1<<abi.RSP | 1<<abi.RIP)
	for i, reg := range FastRegs {
		fast |= 1 << reg
		if r.Regs[reg].Kind == dwarfcfa.RuleSameValue {
			continue
		}
		if t.Saves[i], ok = slot(r.Regs[reg]); !ok {
			return t, false
		}
	}
	// Any other register with a rule needs the slow path.
	for reg, rule := range r.Regs {
		if fast&(1<<reg) == 0 && rule.Kind != dwarfcfa.RuleUndefined {
			return t, false
		}
	}
	if rsp := r.Regs[abi.RSP]; rsp.Kind != dwarfcfa.RuleValOffset || rsp.Offset != 0 {
		return t, false
	}
	t.Base = uint8(r.CFA.Reg)
	// On rsp, slots at or above rsp need no lower check: rsp is in the window.
	if t.Base != abi.RSP || -lowest > r.CFA.Offset {
		t.Depth = int32(-lowest)
	}
	return t, true
}

// pages cuts the ranges at page borders and makes a tree for each distinct page of the
// segments that have tables.
func (b *builder) pages() {
	p := b.plan
	p.Segments = segments(p)
	n := 0
	for i := range p.Segments {
		n += len(p.Segments[i].Table)
	}
	p.Trees = make([]Tree, 0, n) // most pages are distinct
	b.trees = make(map[string]uint32, n)
	for i := range p.Segments {
		b.segment(&p.Segments[i])
	}
}

// segment fills the table of a segment.
func (b *builder) segment(s *Segment) {
	p := b.plan
	var t Tree
	ranges := p.Table.Ranges
	first := p.Base + dwarfcfa.Addr(s.First)<<p.PageBits
	// The first range that ends after the page's start.
	next := sort.Search(len(ranges), func(i int) bool { return ranges[i].End > first })
	count := b.calls.Walk()
	for page := range s.Table {
		start := first + dwarfcfa.Addr(page)<<p.PageBits
		end := start + 1<<p.PageBits
		t.Keys, t.Targets = t.Keys[:0], t.Targets[:0]
		done := start // the page is described up to here
		// Ranges that begin before the page's end; a hole before one is block 0.
		for next < len(ranges) && ranges[next].Start < end {
			r := &ranges[next]
			if r.Start > done {
				t.extend(uint8(done), 0)
				done = r.Start
			}
			t.extend(uint8(done), r.Row+1)
			// The range goes on in the next page.
			if r.End > end {
				done = end
				break
			}
			done = r.End
			next++
		}
		if done < end {
			t.extend(uint8(done), 0)
		}
		s.Table[page] = b.tree(t, start, count)
	}
}

// number gives ids to the blocks, by how many leaves lead to them.
func (p *Plan) number() {
	uses := make([]int, len(p.Blocks))
	for i := range p.Trees {
		for _, target := range p.Trees[i].Targets {
			uses[target]++
		}
	}
	p.IDOf = make([]uint32, len(p.Blocks))
	for i := range p.Blocks {
		p.IDOf[i] = noID
		if uses[i] > 0 {
			p.IDs = append(p.IDs, uint32(i))
		}
	}
	// Small ids for those used most: they fit a byte.
	slices.SortStableFunc(p.IDs, func(a, b uint32) int { return uses[b] - uses[a] })
	for id, block := range p.IDs {
		p.IDOf[block] = uint32(id)
	}
}

// ShortIDs reports whether all ids of a page fit a byte.
func (p *Plan) ShortIDs(t *Tree) bool {
	for _, target := range t.Targets {
		if p.IDOf[target] > maxShortID {
			return false
		}
	}
	return true
}

// extend makes block hold from key on.
func (t *Tree) extend(key uint8, block uint32) {
	if n := len(t.Targets); n == 0 {
		t.Targets = append(t.Targets, block)
	} else if t.Targets[n-1] != block {
		t.Keys = append(t.Keys, key)
		t.Targets = append(t.Targets, block)
	}
}

// tree returns the number of the tree with t's keys and targets.
func (b *builder) tree(t Tree, start dwarfcfa.Addr, count func(dwarfcfa.Addr) int) uint32 {
	// Equal pages, by targets and keys, share a tree.
	key := b.key[:0]
	for _, target := range t.Targets {
		key = binary.LittleEndian.AppendUint32(key, target)
	}
	key = append(key, t.Keys...)
	b.key = key
	if n, ok := b.trees[string(key)]; ok {
		return n
	}
	n := uint32(len(b.plan.Trees))
	b.trees[string(key)] = n
	// t is reused for the next page.
	own := Tree{Keys: append([]uint8(nil), t.Keys...), Targets: append([]uint32(nil), t.Targets...)}
	b.mostKeys = max(b.mostKeys, len(own.Keys))
	if b.plan.Dispatch == DispatchTree && len(own.Keys) > 0 {
		b.weighLeaves(own.Keys, start, count)
		own.Nodes = b.dp.nodes(own.Keys, b.weights)
	}
	b.plan.Trees = append(b.plan.Trees, own)
	return n
}

// weighLeaves sets the weights of the leaves of the page that begins at an address.
func (b *builder) weighLeaves(keys []uint8, start dwarfcfa.Addr, count func(dwarfcfa.Addr) int) {
	count(start)
	b.weights = b.weights[:0]
	from := start
	for i := range len(keys) + 1 {
		to := start + 1<<b.plan.PageBits
		if i < len(keys) {
			to = start&^(PageSize-1) + dwarfcfa.Addr(keys[i])
		}
		// One for each leaf keeps narrow ranges from piling up.
		b.weights = append(b.weights, 1+b.byteWeight*uint32(to-from)+callWeight*uint32(count(to)))
		from = to
	}
}
