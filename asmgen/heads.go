package asmgen

import (
	"encoding/binary"
	"fmt"

	"github.com/twitchyliquid64/golang-asm/obj/x86"
)

// A table leads from ids to the heads of row blocks: distances from the begin of the text, of 4 bytes, or of 2 in small files.

// shortHeads reports whether 2 bytes do.
func (g *generator) shortHeads() bool {
	const fixed, block, tail = 16 << 10, 24, 256 // bytes of text, at most
	return g.opt.Compact && fixed+block*len(g.plan.Blocks)+tail*len(g.plan.Tails) < 1<<16
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
		g.dataRefs = append(g.dataRefs, descRef{g.heads + id*g.headBytes(), g.block[block], g.shortHeads()})
	}
}

// headOf emits the way from an id in rTmp to the address of its head.
func (g *generator) headOf() {
	a := g.asm
	a.leaData(uint32(g.heads), rCFA)
	if g.shortHeads() {
		a.op(x86.AMOVWLZX, memIndex(rCFA, rTmp, 2, 0), reg(rTmp))
	} else {
		a.op(x86.AMOVL, memIndex(rCFA, rTmp, 4, 0), reg(rTmp))
	}
	g.addressOf(g.text)
}

// resolve fills in the offsets in the text that the data have.
func (g *generator) resolve(where func(label) uint32) error {
	for _, r := range g.dataRefs {
		at := where(r.to)
		switch {
		case !r.short:
			binary.LittleEndian.PutUint32(g.data[r.off:], at)
		case at < 1<<16:
			binary.LittleEndian.PutUint16(g.data[r.off:], uint16(at))
		default:
			return fmt.Errorf("%w: a head at %#x of a small file", ErrAssemble, at)
		}
	}
	return nil
}
