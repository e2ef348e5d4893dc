package prove

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// TestSegmentBorders: a border that lies a page elsewhere, and a search that takes the other way, are refused.
func TestSegmentBorders(t *testing.T) {
	table := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}
	addr := dwarfcfa.Addr(0x1000)
	for i := range 6 {
		for j := range 9 {
			if i == 0 {
				table.Rows = append(table.Rows, rowtest.Row(abi.RSP, 8*int64(j+1)))
			}
			end := addr + 13
			if j == 8 {
				end += 0x100000
			}
			table.Ranges = append(table.Ranges, dwarfcfa.Range{Start: addr, End: end, Row: uint32(j)})
			addr = end
		}
		addr += 0x80000 * dwarfcfa.Addr(i)
	}
	for _, v := range variants()[:2] {
		p, err := plan.Build(table, v.plan)
		require.NoError(t, err)
		require.Greater(t, len(p.Segments), 12, v.name)
		image := compile(t, table, v)
		_, err = Image(image, table)
		require.NoError(t, err, v.name)
		borders := 0
		for i := range p.Segments[1:] {
			border := binary.LittleEndian.AppendUint32([]byte{0x3d}, uint32(p.Segments[i+1].First*plan.PageSize))
			off := bytes.Index(image, border)
			require.GreaterOrEqual(t, off, 0, v.name)
			require.Equal(t, off, bytes.LastIndex(image, border), v.name)
			for _, by := range []int32{-256, 256, -1 << 31} {
				mutant := bytes.Clone(image)
				binary.LittleEndian.PutUint32(mutant[off+1:], binary.LittleEndian.Uint32(mutant[off+1:])+uint32(by))
				_, err := Image(mutant, table)
				assert.ErrorIs(t, err, ErrNotProven, "%s: border %d by %d", v.name, i, by)
			}
			mutant := bytes.Clone(image)
			mutant[off+6] ^= 1 // the jump's condition
			_, err := Image(mutant, table)
			assert.ErrorIs(t, err, ErrNotProven, "%s: border %d", v.name, i)
			borders++
		}
		assert.Equal(t, len(p.Segments)-1, borders)
	}
}

// groups returns a table of n groups of ranges far apart. With wide ranges, some segments
// without a table are inside of ranges.
func groups(groups int, wide bool) *dwarfcfa.Table {
	table := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}
	for j := range 9 {
		table.Rows = append(table.Rows, rowtest.Row(abi.RSP, 8*int64(j+1)))
	}
	addr := dwarfcfa.Addr(0x1000)
	for i := range groups {
		for j := range 9 {
			end := addr + 213
			if wide && i%5 == 2 && j == 8 {
				end += 0x30000
			}
			table.Ranges = append(table.Ranges, dwarfcfa.Range{Start: addr, End: end, Row: uint32(j)})
			addr = end
		}
		addr += 0x80000 + 0x1230*dwarfcfa.Addr(i)
	}
	return table
}

// lookupBegins is what reads an entry of a table of pages: mov %eax, %edi; shr $8, %edi.
var lookupBegins = []byte{0x89, 0xc7, 0xc1, 0xef, plan.PageBits}

// TestLookupWrites: a lookup has written nothing.
func TestLookupWrites(t *testing.T) {
	table, begins := small(), lookupBegins
	image := compile(t, table, variants()[0])
	im, err := openImage(image)
	require.NoError(t, err)
	off := bytes.Index(im.text(im.exec.Vaddr), begins)
	require.Positive(t, off)
	for _, c := range []struct {
		code []byte
		why  string
		// mov; movl $0, (%r10)
	}{{nil, ""}, {[]byte{0x4c, 0x8b, 0x54, 0x24, slotRegs, 0x41, 0xc7, 0x02, 0, 0, 0, 0},
		"also in a step of _eh_elf"}} {
		im, err := openImage(withCaveAt(t, image, off, len(begins), append(begins[:len(begins):len(begins)], c.code...)))
		require.NoError(t, err)
		p := newProver(im, table)
		p.x.ownRows = nil // code after the text has none
		if err = p.prove(); c.why == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, c.why)
		}
	}
}

// sameInPacked reports whether an instruction of a packed lookup may be another one. What it works
// on has 32 bits of value, and all entries of a small table are in one group, however large.
func sameInPacked(i, other inst, entry bool) bool {
	wide, group := other, other
	wide.w, group.imm = i.w, i.imm
	switch i.op {
	case iMov, iMovzx, iNot, iShr, iShl, iBts, iTzcnt:
		return wide == i && other.w == 8 || group == i && i.imm > plan.PageBits && entry
	}
	return false
}

// TestLookupCode: a bit of the lookup in a table of pages that changes an instruction is refused.
func TestLookupCode(t *testing.T) {
	table := small()
	for k, v := range testtool.Sweep(variants()[:2]) {
		image := compile(t, table, v)
		begin := bytes.Index(image, lookupBegins)
		require.Positive(t, begin, v.name)
		end := begin + bytes.Index(image[begin:], []byte{0xff, 0xe7}) + 2 // jmp *%rdi
		refused := 0
		for off := begin; off < end; {
			i, ok := decode(image[off:])
			require.True(t, ok)
			for bit := off * 8; bit < (off+int(i.n))*8; bit++ {
				mutant := bytes.Clone(image)
				mutant[bit/8] ^= 1 << (bit % 8)
				other, ok := decode(mutant[off:])
				if ok && other == i {
					continue // a bit of a prefix that means nothing here
				}
				_, err := Image(mutant, table)
				if ok && err == nil && k == 1 && sameInPacked(i, other, off > begin+5) {
					continue
				}
				assert.ErrorIs(t, err, ErrNotProven, "%s: bit %d of byte %d", v.name, bit%8, bit/8-begin)
				refused++
			}
			off += int(i.n)
		}
		assert.Greater(t, refused, []int{150, 900}[k], v.name)
	}
}
