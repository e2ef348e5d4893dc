package asmgen

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twitchyliquid64/golang-asm/obj"
	"github.com/twitchyliquid64/golang-asm/obj/x86"

	"github.com/ehasm/ehasm/asmgen/plan"
)

// This file is the layout for small files: pages as data, found by one lookup. RATIONALE.md, "Packed dispatch" and "Two
// layouts", has the sizes and the times.

// ErrTooLarge is wrapped if an object's pages do not fit the packed form.
var ErrTooLarge = errors.New("too many pages for packed dispatch")

// packedLayout keeps pages as records of data. The table of pages has an offset of two bytes for each, and a group of
// 1<<groupBits entries has a base: the record is at base + offset in the data.
//
//	short record: byte n, n keys of a byte, n+1 ids of a byte; n at most 16
//	long record:  byte 17+n, n keys of a byte, n+1 ids of two bytes; n at most plan.PackedKeys
//
// The number of keys that are at most the low byte of the pc is the index of the
// id. Keys are compared 16 at a time with SSE2, which every x86-64 machine has. tzcnt counts them, where others use
// bsf, which is slow on AMD before Zen 4: processors without tzcnt run it as bsf, which differs for 0 alone, and there
// is none.
//
// The heads of row blocks lie in slots of 16 bytes, so that an id gives the
// address.
type packedLayout struct {
	g         *generator
	slots     label // of id 0
	long      label // lookup in a long record
	jump      label // to the block whose id is in edi
	begins    label // of the lookup of an entry, whose number is in edi
	groupBits uint
	bases     int // where those of the groups are in the data
}

const (
	slotBits   = 4 // a slot holds any head: the longest, a lea and a jump, has 13 bytes
	slotSize   = 1 << slotBits
	packedKeys = 16 // in a short record at most
	packedLong = packedKeys + 1
)

// Registers of the lookup besides rTmp and rCFA; rPC is kept in slotPC.
const (
	pCount = x86.REG_AX // keys in the record
	pKeys  = rTmp       // address of the keys, or one before it
	pMask  = rCFA
)

// lookup emits the lookup of the pc's page: its number is the entry's.
func (l *packedLayout) lookup(first int) {
	a := l.g.asm
	l.g.asm.store(rPC, slotPC)
	a.op(x86.AMOVL, reg(rPC), reg(rTmp))
	a.op(x86.ASHRL, imm(int64(l.g.plan.PageBits)), reg(rTmp))
	if first != 0 {
		a.op(x86.AADDQ, imm(int64(first)), reg(rTmp))
	}
	l.enter()
}

// enter emits the lookup of the entry whose number is in rTmp.
func (l *packedLayout) enter() {
	g := l.g
	a := g.asm
	first := l.long == 0
	if first {
		l.long, l.jump = a.newLabel(), a.newLabel()
	}
	if g.segmented() {
		// Every segment with a table comes here.
		if !first {
			a.jump(obj.AJMP, l.begins)
			return
		}
		l.begins = a.bindNew()
	}
	g.asm.spreadLowByte()
	a.leaData(0, rCFA)
	a.op(x86.AMOVWLZX, memIndex(rCFA, rTmp, 2, 0), reg(x86.REG_AX))
	a.op(x86.ASHRL, imm(int64(l.groupBits)), reg(rTmp))
	a.op(x86.AADDL, memIndex(rCFA, rTmp, 4, int64(l.bases)), reg(x86.REG_AX))
	a.op(x86.ALEAQ, memIndex(rCFA, x86.REG_AX, 1, 0), reg(rTmp))
	a.op(x86.AMOVBLZX, mem(rTmp, 0), reg(pCount))
	a.op(x86.ACMPL, reg(pCount), imm(packedKeys))
	a.jump(x86.AJHI, l.long)
	g.asm.compareKeys(1)
	a.op(x86.ABTSL, reg(pCount), reg(pMask)) // what follows the keys does not count
	a.op(x86.ATZCNTL, reg(pMask), reg(pMask))
	a.op(x86.AADDQ, reg(pCount), reg(pKeys))
	a.op(x86.AMOVBLZX, memIndex(pKeys, pMask, 1, 1), reg(rTmp))
	if first {
		a.bind(l.jump) // to the block whose id is in edi
	}
	a.op(x86.ASHLL, imm(slotBits), reg(rTmp))
	a.leaLabel(l.slots, rCFA)
	a.op(x86.AADDQ, reg(rCFA), reg(rTmp))
	g.asm.loadSlot(slotPC, rPC)
	a.op1(obj.AJMP, reg(rTmp))

	if first {
		l.longRecord()
	}
}

// longRecord emits the lookup in a long record, at rTmp; its first byte is in pCount. It takes 16 keys a round.
func (l *packedLayout) longRecord() {
	g, a := l.g, l.g.asm
	next, last, found := a.newLabel(), a.newLabel(), a.newLabel()
	a.bind(l.long)
	a.op(x86.ASUBL, imm(packedLong), reg(pCount))
	a.op1(x86.AINCQ, reg(pKeys))
	g.asm.store(pKeys, slotKeys)
	a.bind(next)
	g.asm.compareKeys(0)
	a.op(x86.ATZCNTL, reg(pMask), reg(pMask)) // 16 if all are at most the pc
	a.op(x86.ACMPL, reg(pCount), imm(packedKeys))
	a.branch(x86.AJLS, last)
	a.op(x86.ACMPL, reg(pMask), imm(packedKeys))
	a.branch(x86.AJNE, found)
	a.op(x86.AADDQ, imm(packedKeys), reg(pKeys))
	a.op(x86.ASUBL, imm(packedKeys), reg(pCount))
	a.branch(obj.AJMP, next)
	a.bind(last)
	a.op(x86.ACMPL, reg(pMask), reg(pCount))
	a.op(x86.ACMOVLHI, reg(pCount), reg(pMask))
	a.bind(found)
	a.op(x86.AADDQ, reg(pKeys), reg(pCount)) // address of the ids
	a.op(x86.AADDQ, reg(pKeys), reg(pMask))
	a.op(x86.ASUBQ, mem(x86.REG_SP, slotKeys), reg(pMask)) // index of the id
	a.op(x86.AMOVWLZX, memIndex(pCount, pMask, 2, 0), reg(rTmp))
	a.jump(obj.AJMP, l.jump)
}

// spreadLowByte fills xmm0 with the pc's low byte. rPC is lost. By a multiplication and a shuffle, since pshufb is no
// baseline x86-64.
func (a *assembler) spreadLowByte() {
	a.op(x86.AMOVBLZX, reg(x86.REG_AL), reg(x86.REG_AX))
	a.op3(x86.AIMUL3L, imm(0x01010101), reg(x86.REG_AX), reg(x86.REG_AX))
	a.op(x86.AMOVL, reg(x86.REG_AX), reg(x86.REG_X0))
	a.op3(x86.APSHUFD, imm(0), reg(x86.REG_X0), reg(x86.REG_X0))
}

// compareKeys emits the comparison of the 16 keys at pKeys+off with xmm0: bit i
// of pMask says that key i is larger; bits 16 to 31 are set.
func (a *assembler) compareKeys(off int64) {
	x0, x1, x2 := reg(x86.REG_X0), reg(x86.REG_X1), reg(x86.REG_X2)
	a.op(x86.AMOVOU, mem(pKeys, off), x1)
	a.op(x86.AMOVO, x1, x2)
	a.op(x86.APMINUB, x0, x2)
	a.op(x86.APCMPEQB, x1, x2) // min(key, pc) == key
	a.op(x86.APMOVMSKB, x2, reg(pMask))
	a.op1(x86.ANOTL, reg(pMask))
}

// appendRecord appends the record of a page to b; first is its first byte.
func (g *generator) appendRecord(b []byte, t *plan.Tree, first int, idSize int16) []byte {
	b = append(b, byte(first))
	b = append(b, t.Keys...)
	for _, target := range t.Targets {
		if idSize == 1 {
			b = append(b, byte(g.plan.IDOf[target]))
		} else {
			b = binary.LittleEndian.AppendUint16(b, uint16(g.plan.IDOf[target]))
		}
	}
	return b
}

// heads emits the slots, in order of ids. The check at the end guards the sizes that block.go gives.
func (l *packedLayout) heads() error {
	g := l.g
	a := g.asm
	if err := a.align(slotSize); err != nil {
		return err
	}
	a.bind(l.slots)
	for _, block := range g.plan.IDs {
		b := &g.plan.Blocks[block]
		g.block[block] = a.bindNew()
		size := 0
		switch b.Kind {
		case plan.BlockStop:
			stop, err := g.stopCode(b)
			if err != nil {
				return err
			}
			a.jump(obj.AJMP, stop)
			size = sizeJump
		case plan.BlockFast:
			g.asm.fastHead(b)
			a.jump(obj.AJMP, g.tails[b.Tail])
			size = headSize(b) + sizeJump
		case plan.BlockSlow:
			g.slowHead(b)
			size = sizeLea + sizeJump
		}
		a.pad(slotSize - size)
		if err := a.breakChunk(); err != nil {
			return err
		}
	}
	if err := a.flush(); err != nil {
		return err
	}
	for id, block := range g.plan.IDs {
		if head := a.where[g.block[block]]; head != a.where[l.slots]+int32(id)*slotSize {
			return fmt.Errorf("%w: the head of row block %d is not in its slot", ErrAssemble, block)
		}
	}
	return nil
}

// alignTail and beforeTail have nothing to emit: heads lie in slots.
func (l *packedLayout) alignTail(heads []uint32, _ label) ([]uint32, error) { return heads, nil }

func (l *packedLayout) beforeTail([]uint32, label) {}

// Groups have at most 1<<mostGroup entries. The records of 1<<leastGroup always fit: 64 records of
// at most 770 bytes.
const (
	mostGroup  = 10
	leastGroup = 6
	groupReach = 1 << 16 // bytes that an entry reaches from its base on
)

// table appends entries, bases and records. The groups are as large as their records allow.
func (l *packedLayout) table() error {
	g := l.g
	if len(g.plan.IDs) > 1<<16 {
		return fmt.Errorf("%w: %d distinct rows", ErrTooLarge, len(g.plan.IDs))
	}
	var trees []uint32 // by entry
	for i := range g.plan.Segments {
		trees = append(trees, g.plan.Segments[i].Table...)
	}
	records := make([][]byte, len(g.plan.Trees))
	for i := range g.plan.Trees {
		t := &g.plan.Trees[i]
		switch {
		case len(t.Keys) <= packedKeys && g.plan.ShortIDs(t):
			records[i] = g.appendRecord(nil, t, len(t.Keys), 1)
		case len(t.Keys) <= plan.PackedKeys:
			records[i] = g.appendRecord(nil, t, packedLong+len(t.Keys), 2)
		default:
			return fmt.Errorf("%w: %d keys in a page", ErrTooLarge, len(t.Keys))
		}
	}
	for l.groupBits = mostGroup; l.groupBits >= leastGroup; l.groupBits-- {
		if l.group(trees, records) {
			return nil
		}
	}
	return fmt.Errorf("%w: %d", ErrTooLarge, len(trees))
}

// group makes the data of groups of 1<<groupBits entries. It reports whether all records of each are within reach of
// its base.
func (l *packedLayout) group(trees []uint32, records [][]byte) bool {
	size := 1 << l.groupBits
	l.bases = (2*len(trees) + 3) &^ 3
	first := l.bases + (len(trees)+size-1)>>l.groupBits*4 // where records begin
	data := make([]byte, first)
	copies := make([]int, len(records)) // of the last copy of a record
	last := make([]int, len(records))   // where the last group ends that has it
	for from := 0; from < len(trees); from += size {
		group := trees[from:min(from+size, len(trees))]
		need := 0 // bytes, if no record was there
		for _, t := range group {
			if last[t] <= from {
				last[t] = from + size
				need += len(records[t])
			}
		}
		if need > groupReach {
			return false // a group that does not fit is tried smaller
		}
		// The base lies as low as possible, so that the group shares records of those before it.
		base := max(first, len(data)+need-groupReach)
		binary.LittleEndian.PutUint32(data[l.bases+from>>l.groupBits*4:], uint32(base))
		for i, t := range group {
			if copies[t] < base {
				copies[t] = len(data)
				data = append(data, records[t]...)
			}
			binary.LittleEndian.PutUint16(data[2*(from+i):], uint16(copies[t]-base))
		}
	}
	// 16 keys may be read from the last record's begin on.
	l.g.data.bytes = append(data, make([]byte, packedKeys)...)
	return true
}

// pages has nothing to emit.
func (l *packedLayout) pages() error { return nil }

// fill has nothing to do: entries are distances inside the data.
func (l *packedLayout) fill(func(label) uint32) int { return 0 }
