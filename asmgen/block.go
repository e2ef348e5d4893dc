package asmgen

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/twitchyliquid64/golang-asm/obj"
	"github.com/twitchyliquid64/golang-asm/obj/x86"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen/plan"
)

// This file emits row blocks: the heads, which compute a CFA, and the tails, which check the window, load what the
// frame saved and go on to the next row. These few instructions are what a step costs.

// fastReg returns the DWARF number of fast register i.
func fastReg(i int) int { return int(plan.FastRegs[i]) }

// descriptor places a row descriptor, once, and returns its offset. given is the kind of the CFA that a tail has
// computed, or -1 for a row of the slow path.
func (g *generator) descriptor(row uint32, given int) uint32 {
	// Equal descriptors share their bytes; the key also has the labels of expressions, which are
	// zeros in the bytes.
	d, head, refs := descriptor(&g.plan.Table.Rows[row], given, g.exprLabel)
	key := string(d)
	for _, r := range refs {
		key += string(binary.LittleEndian.AppendUint32(nil, uint32(r.to)))
	}
	if off, ok := g.data.descs[key]; ok {
		return off
	}
	off := uint32(len(g.data.bytes) + head) // descriptors of tails have stepBytes before them
	g.data.descs[key] = off
	for _, r := range refs {
		g.data.refs = append(g.data.refs, descRef{off: len(g.data.bytes) + r.off, to: r.to})
	}
	g.data.bytes = append(g.data.bytes, d...)
	return off
}

// blocks emits all row blocks: the tails, each after the heads that use it
// unless the layout has placed them, and the rows of the slow path.
func (g *generator) blocks() error {
	a, p := g.asm, g.plan
	for i := range p.Tails {
		g.tails[i] = a.newLabel()
	}
	if err := g.layout.heads(); err != nil {
		return err
	}
	byTail := make([][]uint32, len(p.Tails))
	for i := range p.Blocks {
		b := &p.Blocks[i]
		if b.Kind == plan.BlockFast {
			byTail[b.Tail] = append(byTail[b.Tail], uint32(i))
		}
		if g.block[i] != 0 {
			continue // the layout has placed it
		}
		switch b.Kind {
		case plan.BlockStop:
			stop, err := g.stopCode(b)
			if err != nil {
				return err
			}
			g.block[i] = stop
		case plan.BlockFast:
			g.block[i] = a.newLabel()
		case plan.BlockSlow:
			g.block[i] = a.bindNew()
			g.slowHead(b)
			if err := a.breakChunk(); err != nil {
				return err
			}
		}
	}
	weights := p.Weights
	hot := g.hotTails(weights)
	own := g.ownHeads(weights)
	for i, users := range byTail {
		if err := a.breakChunk(); err != nil {
			return err
		}
		// The head that most bytes of text lead to comes last, to fall through.
		slices.SortStableFunc(users, func(a, b uint32) int { return cmp.Compare(weights[a], weights[b]) })
		if hot[i] {
			var err error
			if users, err = g.ownTails(i, users, own); err != nil {
				return err
			}
			if users, err = g.layout.alignTail(users, g.tails[i]); err != nil {
				return err
			}
		}
		g.layout.beforeTail(users, g.tails[i])
		g.tail(&p.Tails[i], p.Blocks[users[0]].Row, g.tails[i], hot[i])
	}
	return nil
}

// ownHeads marks the heads that most bytes of text lead to. They get a copy of their tail,
// if it is a hot one: it saves a jump, and the indirect jump of each copy is predicted
// separately.
func (g *generator) ownHeads(weights []uint64) map[uint32]bool {
	p := g.plan
	if p.Dispatch == plan.DispatchPacked {
		return nil // heads lie in slots
	}
	var order []uint32
	for i := range p.Blocks {
		if p.Blocks[i].Kind == plan.BlockFast {
			order = append(order, uint32(i))
		}
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return cmp.Compare(weights[b], weights[a]) })
	own := map[uint32]bool{}
	for _, b := range order[:min(len(order), maxOwnHeads, len(p.Table.Ranges)/rangesPerOwn)] {
		own[b] = true
	}
	return own
}

// ownTails emits the heads of a tail that are in own, each with a copy of the tail, and
// returns the others. The last one falls through to the tail in any case.
func (g *generator) ownTails(tail int, heads []uint32, own map[uint32]bool) ([]uint32, error) {
	p := g.plan
	var rest []uint32
	for i, h := range heads {
		if !own[h] || i == len(heads)-1 {
			rest = append(rest, h)
			continue
		}
		if err := g.asm.align(hotAlign); err != nil {
			return nil, err
		}
		g.asm.bind(g.block[h])
		g.asm.fastHead(&p.Blocks[h])
		g.tail(&p.Tails[tail], p.Blocks[h].Row, g.asm.newLabel(), true)
	}
	return rest, nil
}

// Bounds of the tails that have their own dispatch, and of the heads that have their own tail: beyond, code grows
// faster than walks become. RATIONALE.md, "Why heads and tails" and "Why registers live in SSE halves", has what they
// gain.
const (
	maxHotTails  = 16 // per object
	maxOwnHeads  = 24
	rangesPerOwn = 600 // ranges of the object for each own tail
	rangesPerHot = 400 // some 60 bytes of code in 2,000 to 3,000 of pages
	hotAlign     = 32  // bytes; without it, walks differ by 5 % with where the code happens to lie
)

// The same bounds of tails for packed pages: a copy of their lookup takes four times the bytes.
const (
	maxHotPacked       = 8
	rangesPerHotPacked = 1600
)

// hotTails marks the tails that most bytes of text lead to. They get their own
// dispatch: it saves a jump, and the indirect jump of each is predicted
// separately.
func (g *generator) hotTails(weights []uint64) []bool {
	p := g.plan
	bytes := make([]uint64, len(p.Tails))
	order := make([]int, len(p.Tails))
	for i := range p.Blocks {
		if b := &p.Blocks[i]; b.Kind == plan.BlockFast {
			bytes[b.Tail] += weights[i]
		}
	}
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(bytes[b], bytes[a]) })
	hot := make([]bool, len(p.Tails))
	most, per := maxHotTails, rangesPerHot
	if p.Dispatch == plan.DispatchPacked {
		most, per = maxHotPacked, rangesPerHotPacked
	}
	for _, i := range order[:min(len(order), most, len(p.Table.Ranges)/per)] {
		hot[i] = true
	}
	return hot
}

// slowHead emits a row of the slow path. The size, sizeLea + sizeJump, is known to packed slots.
func (g *generator) slowHead(b *plan.Block) {
	g.asm.leaData(g.descriptor(b.Row, -1), rTmp)
	g.asm.jump(obj.AJMP, g.slow.row)
}

// fastHead emits the computation of a row's CFA. Its size is headSize.
func (a *assembler) fastHead(b *plan.Block) {
	if b.Base == abi.RBP {
		a.op(x86.ALEAQ, memIndex(rBP, rDelta, 1, int64(b.Offset)), reg(rCFA))
		return
	}
	a.op(x86.ALEAQ, mem(rSP, int64(b.Offset)), reg(rCFA))
}

// stopCode returns the code that ends the walk as a block says.
func (g *generator) stopCode(b *plan.Block) (label, error) {
	switch abi.Status(b.Status) {
	case abi.StatusNoInfo:
		return g.stop.noInfo, nil
	case abi.StatusOutermost:
		return g.stop.outermost, nil
	case abi.StatusNotCompiled:
		return g.stop.notCompiled, nil
	}
	return 0, fmt.Errorf("%w: a row that stops with status %d", ErrAssemble, b.Status)
}

// Sizes of instructions in bytes that decide whether a head's jump is short (SDM Vol. 2: jmp rel8 and rel32, jcc rel32,
// cmp al, imm8, lea).
const (
	sizeShortJump = 2
	sizeJump      = 5
	sizeLongJcc   = 6
	sizeCompare   = 2
	sizeLea       = 7   // of a place in the data to rdi
	reach         = 127 // of a short jump forward, from its end
	reachBack     = 128 // and backward
)

// headSize returns the size of the lea that computes a row's CFA. rsp as a base takes a SIB byte; rbp's is lea
// off(%rbp,%rdelta).
func headSize(b *plan.Block) int {
	size := 4 // REX, opcode, ModRM and SIB or disp8
	if b.Base == abi.RBP {
		size = 5
	}
	switch {
	case b.Offset < -128 || b.Offset > 127:
		size += 3
	case b.Offset == 0 && b.Base == abi.RSP:
		size--
	}
	return size
}

// headsBefore emits the heads of a tail straight before it: the last one falls
// through, and those within reach take a short jump.
func (g *generator) headsBefore(heads []uint32, tail label) {
	// The jumps closest to the tail reach it with 2 bytes instead of 5: find the first of them.
	a, p := g.asm, g.plan
	// Distances are from the back: to the tail's begin.
	short := len(heads) - 1
	for behind := 0; short > 0; short-- {
		behind += headSize(&p.Blocks[heads[short]])
		if short < len(heads)-1 {
			behind += sizeShortJump
		}
		if behind > reach {
			break
		}
	}
	for i, h := range heads {
		a.bind(g.block[h])
		g.asm.fastHead(&p.Blocks[h])
		switch {
		case i == len(heads)-1:
		case i >= short:
			a.jumpShort(obj.AJMP, tail)
		default:
			a.jump(obj.AJMP, tail)
		}
	}
}

// tail emits the code of a tail; row is one of those that use it. rCFA is a host address: the stack's copy may lie
// elsewhere than the stack. Two comparisons are enough against a hostile stack: any CFA outside of the window goes to
// the slow path, which checks each word.
func (g *generator) tail(t *plan.Tail, row uint32, start label, hot bool) {
	a := g.asm
	a.bind(start)
	slow, leave := a.newLabel(), a.jumpShort
	if hot {
		leave = a.jump
	}
	a.op(x86.ACMPQ, reg(rCFA), mem(x86.REG_SP, slotHigh))
	leave(x86.AJCC, slow)
	if t.Depth > 0 {
		// Second, since slotLow is not set where there is no window.
		a.op(x86.ALEAQ, mem(rCFA, -int64(t.Depth)), reg(rTmp))
		a.op(x86.ACMPQ, reg(rTmp), mem(x86.REG_SP, slotLow))
		leave(x86.AJLT, slow)
	}
	a.op(x86.AMOVQ, mem(rCFA, int64(t.RA)), reg(rPC))
	var mask int64
	for i := 0; i < plan.NumFast; i++ {
		off := t.Saves[i]
		if off == 0 {
			continue
		}
		mask |= 1 << plan.FastRegs[i]
		from, p := mem(rCFA, int64(off)), homes[i]
		switch {
		case i == fastBP:
			a.op(x86.AMOVQ, from, reg(rBP))
		case p.high:
			a.op(x86.AMOVHPS, from, reg(p.xmm))
		case pairs(i) && t.Saves[i+1] != 0 && t.Saves[i+1] == off+8: // 0: not saved
			a.op(x86.AMOVUPS, from, reg(p.xmm))
			i++
			mask |= 1 << plan.FastRegs[i]
		default:
			a.op(x86.AMOVLPS, from, reg(p.xmm))
		}
	}
	if mask != 0 {
		a.op(x86.AORL, imm(mask), reg(rMask))
	}
	a.op(x86.AMOVQ, reg(rCFA), reg(rSP))
	if hot {
		// A hot tail has a copy of the dispatch, so its jump is predicted by itself.
		g.nextStep()
		g.findRow()
	} else {
		a.jump(obj.AJMP, g.find.dispatch)
	}
	a.bind(slow)
	given := descCFAGiven
	if t.Base == abi.RBP {
		given = descCFAFromBP
	}
	a.leaData(g.descriptor(row, given), rTmp)
	a.jump(obj.AJMP, g.slow.fast)
}
