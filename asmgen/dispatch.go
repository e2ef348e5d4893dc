package asmgen

import (
	"encoding/binary"
	"slices"

	"github.com/twitchyliquid64/golang-asm/obj"
	"github.com/twitchyliquid64/golang-asm/obj/x86"

	"github.com/ehasm/ehasm/asmgen/plan"
)

// This file is the layout for speed: a compare tree for each distinct page. Most of it decides which jumps can be
// short.

// pageItem is an instruction of a page's compare tree. Sizes are worked out
// here, since a jump's form decides whether others reach.
type pageItem struct {
	kind  itemKind
	as    obj.As // itemJump: the jump
	key   uint8  // itemCompare
	to    int32  // itemJump: the item it leads to
	block uint32 // itemLeave: the row block it leads to
	long  bool   // itemJump, itemLeave: does not go through a short jump
	size  int    // bytes
	off   int    // from the page's begin
	via   int    // itemLeave, short: offset of the long jump that it takes, or -1
}

// itemKind is what an item does.
type itemKind uint8

const (
	itemCompare itemKind = iota // cmp $key, %al
	itemJump                    // to another item of the page
	itemLeave                   // to a row block, conditionally or not
)

// layout leads from a pc to its row block. Row blocks are the same with every
// layout.
type layout interface {
	// lookup emits the code that follows the check of the relative pc in rax, up to
	// the jump to a row block. first is the word of the page tables that page 0 would have.
	// It may use rTmp, rCFA and what no fast row needs.
	lookup(first int)
	// heads emits the row blocks that lie apart from the tails, and sets
	// generator.block for them.
	heads() error
	// alignTail emits the heads of a tail but for the last, and fills the text up
	// so that the last one, which falls through to the tail, begins aligned. It
	// returns the heads that are left to beforeTail.
	alignTail(heads []uint32, tail label) ([]uint32, error)
	// beforeTail emits the heads of a tail that lie straight before it.
	beforeTail(heads []uint32, tail label)
	// pages emits or stores the pages.
	pages() error
	// table appends the table of pages, which is what the data begin with.
	table() error
	// fill fills it in once all labels are known, and returns how many of its words are offsets in the text, to be made
	// distances from the data.
	fill(where func(label) uint32) int
}

// treeLayout has a compare tree for each distinct page. A table of 32-bit distances from its own start
// leads to them, or directly to the row block of a page that holds one row.
type treeLayout struct{ g *generator }

// lookup emits the load of the page's word and the jump: 6 instructions.
func (t treeLayout) lookup(first int) {
	a := t.g.asm
	a.op(x86.AMOVL, reg(rPC), reg(rTmp))
	a.op(x86.ASHRL, imm(int64(t.g.plan.PageBits)), reg(rTmp))
	a.leaData(0, rCFA)
	a.op(x86.AMOVLQSX, memIndex(rCFA, rTmp, 4, 4*int64(first)), reg(rTmp))
	a.op(x86.AADDQ, reg(rCFA), reg(rTmp))
	a.op1(obj.AJMP, reg(rTmp))
}

// heads emits nothing: heads lie before their tails.
func (t treeLayout) heads() error { return nil }

// alignTail emits the heads of a tail but the last, and returns the last: it falls through to the
// tail, which is aligned.
func (t treeLayout) alignTail(heads []uint32, tail label) ([]uint32, error) {
	g, last := t.g, len(heads)-1
	for _, h := range heads[:last] {
		g.asm.bind(g.block[h])
		g.asm.fastHead(&g.plan.Blocks[h])
		g.asm.jump(obj.AJMP, tail)
	}
	return heads[last:], g.asm.align(hotAlign)
}

// beforeTail emits the last head, or all of a tail that is not hot.
func (t treeLayout) beforeTail(heads []uint32, tail label) { t.g.headsBefore(heads, tail) }

// table reserves a word for each page; fill sets them.
func (t treeLayout) table() error {
	g := t.g
	g.data.bytes = make([]byte, 4*g.data.words, 4*g.data.words+4)
	if g.data.words == 0 {
		g.data.bytes = g.data.bytes[:4] // there are data even for an object without a row
	}
	return nil
}

// fill writes the tables of pages, once the compare trees have addresses, and returns how many entries there are.
func (t treeLayout) fill(where func(label) uint32) int {
	g, words := t.g, 0
	for i := range g.plan.Segments {
		for _, tree := range g.plan.Segments[i].Table {
			binary.LittleEndian.PutUint32(g.data.bytes[4*words:], where(g.tree[tree]))
			words++
		}
	}
	return words
}

// pages emits the compare trees. A leaf of a tree is a jump to a row block. The
// conditional ones take 6 bytes, the unconditional ones 5; a conditional leaf that
// finds an unconditional jump to its block within the reach of a short jump,
// in this page or one before, takes 2 and goes through that.
func (t treeLayout) pages() error {
	g := t.g
	a := g.asm
	l := pageLayout{anchors: map[uint32]int{}}
	if err := a.flush(); err != nil {
		return err
	}
	for i := range g.plan.Trees {
		page := &g.plan.Trees[i]
		if len(page.Nodes) == 0 {
			g.tree[i] = g.block[page.Targets[0]]
			continue
		}
		if a.used+2*len(page.Nodes)+len(page.Targets) > chunkProgs {
			// Short jumps stay inside a chunk.
			if err := a.flush(); err != nil {
				return err
			}
			clear(l.anchors)
			l.start = 0
		}
		l.layOut(page, g.plan.Trees[i+1:])
		g.tree[i] = a.bindNew()
		g.emitPage(&l)
	}
	return a.flush()
}

// pageLayout chooses the instructions of pages, one after the other.
type pageLayout struct {
	items   []pageItem
	anchors map[uint32]int // by block: offset in the chunk of the last long jump to it
	start   int            // offset in the chunk at which the page begins
	labels  map[int]label  // by offset in the chunk: of long jumps that others go through
}

// layOut fills items with the code of a tree and places them. next are the trees
// that follow.
func (l *pageLayout) layOut(t *plan.Tree, next []plan.Tree) {
	l.items = l.items[:0]
	l.node(t, 0)
	l.firstJumps()
	for most := 2 * len(l.items); ; {
		l.settle()
		i := l.unreached()
		if i < 0 {
			return
		}
		// Stubs push each other apart; the bound ends that.
		if l.items[i].kind == itemJump || len(l.items) >= most || !l.addStub(i, next) {
			l.items[i].long = true
		}
	}
}

// node appends the code of a subtree.
func (l *pageLayout) node(t *plan.Tree, n plan.Child) {
	node := t.Nodes[n]
	l.items = append(l.items, pageItem{kind: itemCompare, key: node.Key, size: sizeCompare})
	left, leftLeaf := node.Left.Leaf()
	right, rightLeaf := node.Right.Leaf()
	switch {
	case leftLeaf && rightLeaf:
		l.leave(x86.AJCS, t.Targets[left])
		l.leave(obj.AJMP, t.Targets[right])
	case leftLeaf:
		l.leave(x86.AJCS, t.Targets[left])
		l.node(t, node.Right)
	case rightLeaf:
		l.leave(x86.AJCC, t.Targets[right])
		l.node(t, node.Left)
	default:
		// Only one side can follow directly: the plan says which is looked up more often.
		as, next, other := x86.AJCS, node.Right, node.Left
		if node.LeftNext {
			as, next, other = x86.AJCC, node.Left, node.Right
		}
		jump := len(l.items)
		l.items = append(l.items, pageItem{kind: itemJump, as: as})
		l.node(t, next)
		l.items[jump].to = int32(len(l.items))
		l.node(t, other)
	}
}

// leave appends a jump to a row block.
func (l *pageLayout) leave(as obj.As, block uint32) {
	l.items = append(l.items, pageItem{kind: itemLeave, as: as, block: block})
}

// addStub inserts an unconditional jump to the block of the conditional item
// first, behind another unconditional one that it reaches, if one more jump of this
// page or of those that follow can go through it, too: 5+2+2 bytes instead of 6+6.
func (l *pageLayout) addStub(first int, next []plan.Tree) bool {
	if l.items[first].as == obj.AJMP {
		return false
	}
	off := l.stubPlace(first)
	if off < 0 || !l.shared(first, off, next) {
		return false
	}
	stub := pageItem{kind: itemLeave, as: obj.AJMP, block: l.items[first].block, long: true}
	l.items = slices.Insert(l.items, off, stub)
	for i := range l.items {
		if o := &l.items[i]; o.kind == itemJump && int(o.to) >= off {
			o.to++
		}
	}
	return true
}

// stubPlace returns the item before which a stub for the item first can be placed,
// or -1.
func (l *pageLayout) stubPlace(first int) int {
	limit := l.items[first].off + sizeShortJump + reach - stubSlack
	best := -1
	for i := first + 1; i < len(l.items) && l.items[i].off <= limit; i++ {
		if l.items[i].as == obj.AJMP && l.items[i].off+l.items[i].size <= limit {
			best = i + 1
		}
	}
	return best
}

// shared reports whether a jump beside the first item's can go through a stub
// before the item at: one of this page, or of a page that follows and begins near enough.
func (l *pageLayout) shared(first, stub int, next []plan.Tree) bool {
	block := l.items[first].block
	limit := l.items[stub-1].off + l.items[stub-1].size + reachBack - stubSlack
	for i := range l.items {
		o := &l.items[i]
		if i != first && o.kind == itemLeave && o.block == block && !o.long && o.via < 0 && o.off <= limit {
			return true
		}
	}
	end := l.items[len(l.items)-1].off + sizeJump
	for i := 0; i < len(next) && end < limit; i++ {
		if len(next[i].Nodes) > 0 && slices.Contains(next[i].Targets, block) {
			return true
		}
		end += len(next[i].Nodes) * sizePerNode
	}
	return false
}

const (
	stubSlack   = 12 // bytes by which jumps that turn out long may move things apart
	sizePerNode = 6  // of a compare tree, about
)

// firstJumps makes the first unconditional jump to each block long, unless there
// is one before the page: others may go through it.
func (l *pageLayout) firstJumps() {
	for i := range l.items {
		it := &l.items[i]
		if it.kind != itemLeave || it.as != obj.AJMP {
			continue
		}
		_, before := l.anchors[it.block]
		for j := range i {
			o := &l.items[j]
			before = before || o.long && o.block == it.block
		}
		it.long = !before
	}
}

// settle computes sizes and offsets, and finds what the short jumps go through.
func (l *pageLayout) settle() {
	pos := l.start
	for i := range l.items {
		it := &l.items[i]
		it.off = pos
		switch {
		case it.kind == itemCompare:
		case !it.long:
			it.size = sizeShortJump
		case it.as == obj.AJMP:
			it.size = sizeJump
		default:
			it.size = sizeLongJcc
		}
		pos += it.size
	}
	for i := range l.items {
		if it := &l.items[i]; it.kind == itemLeave && !it.long {
			it.via = l.through(i)
		}
	}
}

// unreached returns the first short jump that leads nowhere within its reach, or -1.
func (l *pageLayout) unreached() int {
	for i := range l.items {
		it := &l.items[i]
		switch {
		case it.kind == itemCompare || it.long:
		case it.kind == itemLeave && it.via < 0,
			it.kind == itemJump && l.items[it.to].off-(it.off+sizeShortJump) > reach:
			return i
		}
	}
	return -1
}

// through finds a long jump to the block of item i that a short one reaches, and
// returns its offset, or -1.
func (l *pageLayout) through(i int) int {
	it := &l.items[i]
	from := it.off + sizeShortJump
	reaches := func(to int) bool { return to-from <= reach && from-to <= reachBack }
	if anchor, ok := l.anchors[it.block]; ok && reaches(anchor) {
		return anchor
	}
	for j := range l.items {
		o := &l.items[j]
		if o.kind != itemLeave || o.block != it.block || o.as != obj.AJMP || j == i {
			continue
		}
		if o.long && reaches(o.off) {
			return o.off
		}
	}
	return -1
}

// emitPage passes the placed items to the assembler.
func (g *generator) emitPage(l *pageLayout) {
	a := g.asm
	if l.start == 0 || l.labels == nil {
		l.labels = map[int]label{}
	}
	starts := map[int32]label{}
	for i := range l.items {
		if it := &l.items[i]; it.kind == itemJump {
			starts[it.to] = a.newLabel()
		}
	}
	// Short jumps go through long ones; both need a label at the long one's offset.
	via := func(off int) label {
		target, ok := l.labels[off]
		if !ok {
			target = a.newLabel()
			l.labels[off] = target
		}
		return target
	}
	for i := range l.items {
		it := &l.items[i]
		if start, ok := starts[int32(i)]; ok {
			a.bind(start)
		}
		switch {
		case it.kind == itemCompare:
			a.op(x86.ACMPB, reg(x86.REG_AL), imm(int64(int8(it.key))))
		case it.kind == itemJump && it.long:
			a.jump(it.as, starts[it.to])
		case it.kind == itemJump:
			a.jumpShort(it.as, starts[it.to])
		case !it.long:
			a.jumpShort(it.as, via(it.via))
		default:
			if it.as == obj.AJMP {
				l.anchors[it.block] = it.off
				a.bind(via(it.off))
			}
			a.jump(it.as, g.block[it.block])
		}
	}
	last := &l.items[len(l.items)-1]
	l.start = last.off + last.size
}
