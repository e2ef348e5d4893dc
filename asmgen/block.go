package asmgen

import (
	"encoding/binary"
	"fmt"

	"github.com/twitchyliquid64/golang-asm/obj"
	"github.com/twitchyliquid64/golang-asm/obj/x86"

	"ehasm/abi"
	"ehasm/asmgen/plan"
)

// fastReg is the DWARF number of fast register i.
func fastReg(i int) int { return int(plan.FastRegs[i]) }

// data places a row descriptor, once, and returns its offset.
func (g *generator) descriptor(row uint32, given int) uint32 {
	d, refs := descriptor(&g.plan.Table.Rows[row], given, g.exprLabel)
	key := string(d)
	for _, r := range refs {
		key += string(binary.LittleEndian.AppendUint32(nil, uint32(r.to)))
	}
	if off, ok := g.descs[key]; ok {
		return off
	}
	off := uint32(len(g.data))
	g.descs[key] = off
	for _, r := range refs {
		g.dataRefs = append(g.dataRefs, descRef{int(off) + r.off, r.to})
	}
	g.data = append(g.data, d...)
	return off
}

// blocks emits all row blocks: the tails, each behind the heads that use it, and
// the rows of the slow path.
func (g *generator) blocks() error {
	a, p := g.asm, g.plan
	byTail := make([][]uint32, len(p.Tails))
	for i := range p.Blocks {
		b := &p.Blocks[i]
		switch b.Kind {
		case plan.BlockStop:
			at, err := g.stop(abi.Status(b.Status))
			if err != nil {
				return err
			}
			g.block[i] = at
		case plan.BlockFast:
			g.block[i] = a.newLabel()
			byTail[b.Tail] = append(byTail[b.Tail], uint32(i))
		case plan.BlockSlow:
			g.block[i] = a.bindNew()
			a.op(x86.AMOVL, imm(int64(g.descriptor(b.Row, -1))), reg(rTmp))
			a.jump(obj.AJMP, g.slowRow)
			if err := a.breakChunk(); err != nil {
				return err
			}
		}
	}
	for i, heads := range byTail {
		if err := a.breakChunk(); err != nil {
			return err
		}
		g.tails[i] = a.newLabel()
		g.tail(&p.Tails[i], heads, g.tails[i])
	}
	return nil
}

// stop returns the code that ends the walk with a status.
func (g *generator) stop(s abi.Status) (label, error) {
	switch s {
	case abi.StatusNoInfo:
		return g.noInfo, nil
	case abi.StatusOutermost:
		return g.outermost, nil
	case abi.StatusNotCompiled:
		return g.notCompiled, nil
	}
	return 0, fmt.Errorf("%w: a row that stops with status %d", ErrAssemble, s)
}

// Sizes of instructions in bytes that decide whether a head's jump is short.
const (
	sizeShortJump = 2
	sizeJump      = 5
	sizeLongJcc   = 6
	sizeCompare   = 2
	reach         = 127 // of a short jump forward, from its end
	reachBack     = 128 // and backward
)

// headSize is the size of the lea that computes a row's CFA.
func headSize(b *plan.Block) int {
	size := 4 // REX, opcode, ModRM and SIB or disp8
	if b.Base == abi.RBP {
		size = 5
	}
	if b.Offset < -128 || b.Offset > 127 {
		size += 3
	}
	return size
}

// tail emits the code of a tail behind the heads that lead to it: the last one
// falls through, and those within reach take a short jump.
func (g *generator) tail(t *plan.Tail, heads []uint32, at label) {
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
		b := &p.Blocks[h]
		a.bind(g.block[h])
		if b.Base == abi.RBP {
			a.op(x86.ALEAQ, memIndex(x86.REG_BP, rDelta, 1, int64(b.Offset)), reg(rCFA))
		} else {
			a.op(x86.ALEAQ, mem(rSP, int64(b.Offset)), reg(rCFA))
		}
		switch {
		case i == len(heads)-1:
		case i >= short:
			a.jumpShort(obj.AJMP, at)
		default:
			a.jump(obj.AJMP, at)
		}
	}
	a.bind(at)

	slow := a.newLabel()
	if t.Depth > 0 {
		a.op(x86.ALEAQ, mem(rCFA, -int64(t.Depth)), reg(rTmp))
		a.op(x86.ACMPQ, reg(rTmp), mem(x86.REG_SP, slotLow))
		a.jumpShort(x86.AJLT, slow)
	}
	a.op(x86.ACMPQ, reg(rCFA), reg(rEnd))
	a.jumpShort(x86.AJHI, slow)
	a.op(x86.AMOVQ, mem(rCFA, int64(t.RA)), reg(rPC))
	var mask uint8
	for i, off := range t.Saves {
		if off != 0 {
			a.op(x86.AMOVQ, mem(rCFA, int64(off)), reg(machineReg[i]))
			mask |= maskBit[i]
		}
	}
	if mask != 0 {
		a.op(x86.AORB, imm(int64(int8(mask))), reg(x86.REG_CL))
	}
	a.op(x86.AMOVQ, reg(rCFA), reg(rSP))
	a.jump(obj.AJMP, g.dispatch)
	a.bind(slow)
	given := descCFAGiven
	if t.Base == abi.RBP {
		given = descCFAFromBP
	}
	a.op(x86.AMOVL, imm(int64(g.descriptor(p.Blocks[heads[0]].Row, given))), reg(rTmp))
	a.jump(obj.AJMP, g.slowFast)
}
