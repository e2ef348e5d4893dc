package asmgen

import (
	"github.com/twitchyliquid64/golang-asm/obj"
	"github.com/twitchyliquid64/golang-asm/obj/x86"

	"ehasm/asmgen/plan"
)

// pageItem is an instruction of a page's compare tree. Sizes are worked out
// here, since a jump's form decides whether others reach.
type pageItem struct {
	kind  itemKind
	as    obj.As // itemJump: the jump
	key   uint8  // itemCompare
	to    int32  // itemJump: the item it leads to
	block uint32 // itemLeave: the row block it leads to
	long  bool   // itemJump, itemLeave: does not go through a short jump
	size  int
	off   int // from the page's begin
	via   int // itemLeave, short: offset of the long jump that it takes
	label label
}

type itemKind uint8

const (
	itemCompare itemKind = iota // cmp $key, %al
	itemJump                    // to another item of the page
	itemLeave                   // to a row block, conditionally or not
)

// pages emits the compare trees. A leaf of a tree is a jump to a row block. The
// conditional ones take 6 bytes, the unconditional ones 5; a conditional leaf that
// finds an unconditional jump to its block within the reach of a short jump,
// in this page or one before, takes 2 and goes through that.
func (g *generator) pages() error {
	a := g.asm
	l := pageLayout{anchors: map[uint32]int{}}
	for i := range g.plan.Trees {
		t := &g.plan.Trees[i]
		if len(t.Nodes) == 0 {
			g.tree[i] = g.block[t.Targets[0]]
			continue
		}
		if a.used+2*len(t.Nodes)+len(t.Targets) > chunkProgs {
			// Short jumps stay inside a chunk.
			if err := a.flush(); err != nil {
				return err
			}
			clear(l.anchors)
			l.at = 0
		}
		l.layOut(t)
		g.tree[i] = a.bindNew()
		g.emitPage(&l)
	}
	return nil
}

// pageLayout chooses the instructions of one page after the other.
type pageLayout struct {
	items   []pageItem
	anchors map[uint32]int // by block: offset in the chunk of the last long jump to it
	at      int            // offset in the chunk at which the page begins
	labels  map[int]label  // by offset in the chunk: of long jumps that others go through
}

// layOut fills items with the code of a tree and places them.
func (l *pageLayout) layOut(t *plan.Tree) {
	l.items = l.items[:0]
	l.node(t, 0)
	l.addStubs()
	l.firstJumps()
	for l.place() {
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
		jump := len(l.items)
		l.items = append(l.items, pageItem{kind: itemJump, as: x86.AJCS})
		l.node(t, node.Right)
		l.items[jump].to = int32(len(l.items))
		l.node(t, node.Left)
	}
}

func (l *pageLayout) leave(as obj.As, block uint32) {
	l.items = append(l.items, pageItem{kind: itemLeave, as: as, block: block})
}

// addStubs appends an unconditional jump to every block that two or more
// conditional leaves lead to while no unconditional one does.
func (l *pageLayout) addStubs() {
	n := len(l.items)
	for i := range n {
		it := &l.items[i]
		if it.kind != itemLeave || it.as == obj.AJMP {
			continue
		}
		uses, have := 0, false
		for j := range l.items {
			if o := &l.items[j]; o.kind == itemLeave && o.block == it.block {
				if o.as == obj.AJMP {
					have = true
					break
				}
				uses++
			}
		}
		if at, ok := l.anchors[it.block]; ok && l.at-at < reachBack/2 {
			have = true
		}
		if !have && uses >= 2 {
			l.leave(obj.AJMP, it.block)
		}
	}
}

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

// place computes sizes and offsets, and reports whether a jump had to become
// long, so that everything has to be placed again.
func (l *pageLayout) place() bool {
	at := l.at
	for i := range l.items {
		it := &l.items[i]
		it.off = at
		switch {
		case it.kind == itemCompare:
		case !it.long:
			it.size = sizeShortJump
		case it.as == obj.AJMP:
			it.size = sizeJump
		default:
			it.size = sizeLongJcc
		}
		at += it.size
	}
	again := false
	for i := range l.items {
		it := &l.items[i]
		if it.kind == itemCompare || it.long {
			continue
		}
		ok := false
		if it.kind == itemJump {
			ok = l.items[it.to].off-(it.off+sizeShortJump) <= reach
		} else {
			it.via, ok = l.through(i)
		}
		if !ok {
			it.long, again = true, true
		}
	}
	return again
}

// through finds a long jump to the block of item i that a short one reaches.
func (l *pageLayout) through(i int) (int, bool) {
	it := &l.items[i]
	from := it.off + sizeShortJump
	reaches := func(to int) bool { return to-from <= reach && from-to <= reachBack }
	if at, ok := l.anchors[it.block]; ok && reaches(at) {
		return at, true
	}
	for j := range l.items {
		o := &l.items[j]
		if o.kind != itemLeave || o.block != it.block || o.as != obj.AJMP || j == i {
			continue
		}
		if o.long && reaches(o.off) {
			return o.off, true
		}
	}
	return 0, false
}

// emitPage hands the placed items to the assembler.
func (g *generator) emitPage(l *pageLayout) {
	a := g.asm
	if l.at == 0 || l.labels == nil {
		l.labels = map[int]label{}
	}
	starts := map[int32]label{}
	for i := range l.items {
		if it := &l.items[i]; it.kind == itemJump {
			starts[it.to] = a.newLabel()
		}
	}
	via := func(off int) label {
		at, ok := l.labels[off]
		if !ok {
			at = a.newLabel()
			l.labels[off] = at
		}
		return at
	}
	for i := range l.items {
		it := &l.items[i]
		if at, ok := starts[int32(i)]; ok {
			a.bind(at)
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
	l.at = last.off + last.size
}
