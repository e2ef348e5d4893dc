package asmgen

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twitchyliquid64/golang-asm/obj"
	"github.com/twitchyliquid64/golang-asm/obj/x86"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen/plan"
)

// A table leads from ids to the heads of row blocks: distances from the begin of the text, of 4 bytes, or of 2 in small files.
//
// With Options.SharedHead, rows of one tail have no head of their own: their words in the table are
// sharedFrom and more, and say what the CFA is, in words from rsp.

// sharedFrom is the first word of 2 bytes that is not a distance.
const sharedFrom = 1 << 15

// leastShared is the number of rows from which on they share a head: it takes 20 bytes, and saves 6 to 12 each.
const leastShared = 4

// errFarHead says that a distance does not fit 2 bytes.
var errFarHead = errors.New("a head is too far for a distance of 2 bytes")

// shortHeads reports whether 2 bytes do, as it seems: see Assemble.
func (g *generator) shortHeads() bool {
	const fixed, block, tail = 16 << 10, 24, 256 // bytes of text, about
	return g.opt.Compact && !g.farHeads && fixed+block*len(g.plan.Blocks)+tail*len(g.plan.Tails) < 1<<16
}

// share chooses the rows that share a head: those of the tail that has the most.
func (g *generator) share() {
	p := g.plan
	if !g.opt.SharedHead || p.Dispatch != plan.DispatchPacked || !g.shortHeads() {
		return
	}
	able := make([]bool, len(p.Blocks))
	for i := range p.Blocks {
		b := &p.Blocks[i]
		able[i] = b.Kind == plan.BlockFast && b.Base == abi.RSP && b.Offset%8 == 0 && b.Offset >= 0 && b.Offset/8 < 1<<16-sharedFrom
	}
	for i := range p.Segments {
		if s := &p.Segments[i]; s.Table == nil { // its pcs lead to the block straight
			able[s.Block] = false
		}
	}
	rows := make([]int, len(p.Tails))
	most := leastShared - 1
	for i, ok := range able {
		if !ok {
			continue
		}
		t := p.Blocks[i].Tail
		if rows[t]++; rows[t] > most {
			most, g.sharedTail = rows[t], int(t)
		}
	}
	for i := range able {
		able[i] = able[i] && int(p.Blocks[i].Tail) == g.sharedTail
	}
	g.shared = able
}

// sharedHeads emits the heads of the tail, with the shared one straight before it. The row's word is in rTmp.
func (g *generator) sharedHeads(heads []uint32, tail label) {
	a := g.asm
	for _, h := range heads {
		if g.shared[h] {
			g.block[h] = g.sharedHead
			continue
		}
		a.bind(g.block[h])
		g.fastHead(&g.plan.Blocks[h])
		a.jump(obj.AJMP, tail)
	}
	a.bind(g.sharedHead)
	a.op(x86.ALEAQ, memIndex(rSP, rTmp, 8, -8*sharedFrom), reg(rCFA))
}

// headBytes returns the size of a distance.
func (g *generator) headBytes() int {
	if g.shortHeads() {
		return 2
	}
	return 4
}

// headTable makes room for the table in the data.
func (g *generator) headTable() {
	g.heads = len(g.data)
	g.data = append(g.data, make([]byte, g.headBytes()*len(g.plan.IDs))...)
}

// fillHeads notes what the table leads to, once the blocks have labels.
func (g *generator) fillHeads() {
	for id, block := range g.plan.IDs {
		at := g.heads + id*g.headBytes()
		if g.sharedTail >= 0 && g.shared[block] {
			binary.LittleEndian.PutUint16(g.data[at:], uint16(sharedFrom+g.plan.Blocks[block].Offset/8))
			continue
		}
		g.dataRefs = append(g.dataRefs, descRef{at, g.block[block], g.shortHeads()})
	}
}

// headOf emits the way from an id in rTmp to the address of its head, or to the shared one, with the pc in rPC.
func (g *generator) headOf() {
	a := g.asm
	a.leaData(uint32(g.heads), rCFA)
	if g.shortHeads() {
		a.op(x86.AMOVWLZX, memIndex(rCFA, rTmp, 2, 0), reg(rTmp))
		if g.sharedTail >= 0 {
			g.loadSlot(slotPC, rPC)
			a.op(x86.ACMPL, reg(rTmp), imm(sharedFrom))
			a.jump(x86.AJCC, g.sharedHead)
		}
	} else {
		a.op(x86.AMOVL, memIndex(rCFA, rTmp, 4, 0), reg(rTmp))
	}
	g.addressOf(g.text)
}

// shortReach is what distances of 2 bytes are below.
func (g *generator) shortReach() uint32 {
	switch {
	case g.opt.reach > 0:
		return g.opt.reach
	case g.sharedTail >= 0:
		return sharedFrom
	}
	return 1 << 16
}

// resolve fills in the offsets in the text that the data have.
func (g *generator) resolve(where func(label) uint32) error {
	for _, r := range g.dataRefs {
		at := where(r.to)
		switch {
		case !r.short:
			binary.LittleEndian.PutUint32(g.data[r.off:], at)
		case at < g.shortReach():
			binary.LittleEndian.PutUint16(g.data[r.off:], uint16(at))
		default:
			return fmt.Errorf("%w: %w: %#x", ErrAssemble, errFarHead, at)
		}
	}
	return nil
}
