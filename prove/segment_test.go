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
	"github.com/ehasm/ehasm/internal/rowtest"
)

// TestSegmentBorders: a border that lies a page elsewhere, and a search that takes the other way, are refused.
func TestSegmentBorders(t *testing.T) {
	table := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}
	at := dwarfcfa.Addr(0x1000)
	for i := range 6 {
		for j := range 9 {
			if i == 0 {
				table.Rows = append(table.Rows, rowtest.Row(abi.RSP, 8*int64(j+1)))
			}
			end := at + 13
			if j == 8 {
				end += 0x100000
			}
			table.Ranges = append(table.Ranges, dwarfcfa.Range{Start: at, End: end, Row: uint32(j)})
			at = end
		}
		at += 0x80000 * dwarfcfa.Addr(i)
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
			at := bytes.Index(image, border)
			require.GreaterOrEqual(t, at, 0, v.name)
			require.Equal(t, at, bytes.LastIndex(image, border), v.name)
			for _, by := range []int32{-256, 256, -1 << 31} {
				mutant := bytes.Clone(image)
				binary.LittleEndian.PutUint32(mutant[at+1:], binary.LittleEndian.Uint32(mutant[at+1:])+uint32(by))
				_, err := Image(mutant, table)
				assert.ErrorIs(t, err, ErrNotProven, "%s: border %d by %d", v.name, i, by)
			}
			mutant := bytes.Clone(image)
			mutant[at+6] ^= 1 // the jump's condition
			_, err := Image(mutant, table)
			assert.ErrorIs(t, err, ErrNotProven, "%s: border %d", v.name, i)
			borders++
		}
		assert.Equal(t, len(p.Segments)-1, borders)
	}
}

// spanned returns a table of so many groups of ranges, whose pcs are looked up by tables over segments. With wide
// ranges, some segments without a table are inside of ranges.
func spanned(groups int, wide bool) *dwarfcfa.Table {
	table := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}
	for j := range 9 {
		table.Rows = append(table.Rows, rowtest.Row(abi.RSP, 8*int64(j+1)))
	}
	at := dwarfcfa.Addr(0x1000)
	for i := range groups {
		for j := range 9 {
			end := at + 213
			if wide && i%5 == 2 && j == 8 {
				end += 0x30000
			}
			table.Ranges = append(table.Ranges, dwarfcfa.Range{Start: at, End: end, Row: uint32(j)})
			at = end
		}
		at += 0x80000 + 0x1230*dwarfcfa.Addr(i)
	}
	return table
}

// TestSpans: tables over segments are proven, and each word of theirs counts: it is refused if it leads a pc
// elsewhere.
func TestSpans(t *testing.T) {
	refused := 0
	for _, wide := range []bool{false, true} {
		table := spanned(14, wide)
		for _, v := range variants()[:2] {
			p, err := plan.Build(table, v.plan)
			require.NoError(t, err)
			require.Positive(t, p.SpanBits, v.name)
			image := compile(t, table, v)
			_, err = Image(image, table)
			require.NoError(t, err, v.name)
			var lows, highs []byte
			for i := range p.Spans() {
				low, high := uint32(0), uint32(0)
				for _, s := range p.Segments {
					if first, last := s.First<<p.PageBits>>p.SpanBits, ((s.First+s.Pages)<<p.PageBits-1)>>p.SpanBits; s.Table != nil && first <= i && i <= last {
						low, high = uint32(s.First<<p.PageBits), uint32((s.First+s.Pages)<<p.PageBits)
					}
				}
				lows, highs = binary.LittleEndian.AppendUint32(lows, low), binary.LittleEndian.AppendUint32(highs, high)
			}
			begin := bytes.Index(image, append(lows, highs...))
			require.GreaterOrEqual(t, begin, 0, v.name)
			size := uint32(1) << p.SpanBits
			for i := 0; i < p.Spans(); i += 3 {
				// The pcs of run i that have a table of pages.
				window := func(low, high uint32) [2]uint32 {
					first, end := uint32(i)*size, min(uint32(i+1)*size, uint32(p.High-p.Base))
					low, high = max(first, low), min(end, high)
					if low >= high {
						return [2]uint32{}
					}
					return [2]uint32{low, high}
				}
				low, high := binary.LittleEndian.Uint32(lows[4*i:]), binary.LittleEndian.Uint32(highs[4*i:])
				for k := range 3 {
					at := begin + 4*(k*p.Spans()+i)
					for _, by := range []uint32{1<<32 - 256, 256, 1 << 31} {
						mutant := bytes.Clone(image)
						binary.LittleEndian.PutUint32(mutant[at:], binary.LittleEndian.Uint32(mutant[at:])+by)
						_, err := Image(mutant, table)
						differs := [3]bool{window(low+by, high) != window(low, high), window(low, high+by) != window(low, high), high > 0}[k]
						if differs {
							assert.ErrorIs(t, err, ErrNotProven, "%s: entry %d of table %d by %#x", v.name, i, k, by)
							refused++
						} else {
							assert.NoError(t, err, "%s: entry %d of table %d by %#x", v.name, i, k, by)
						}
					}
				}
			}
		}
	}
	assert.Greater(t, refused, 100)
}

// TestSpanWrites: a lookup that leaves the tables over segments has written nothing.
func TestSpanWrites(t *testing.T) {
	table := spanned(14, true)
	p, err := plan.Build(table, plan.Options{})
	require.NoError(t, err)
	begins := []byte{0x89, 0xc7, 0xc1, 0xef, byte(p.SpanBits)} // mov %eax, %edi; shr
	image := compile(t, table, variants()[0])
	im, err := openImage(image)
	require.NoError(t, err)
	at := bytes.Index(im.text(im.exec.Vaddr), begins)
	require.Positive(t, at)
	for _, c := range []struct {
		code []byte
		why  string
	}{{nil, ""}, {[]byte{0x4c, 0x8b, 0x54, 0x24, slotRegs, 0x41, 0xc7, 0x02, 0, 0, 0, 0}, "also in a step of _eh_elf"}} { // mov; movl $0, (%r10)
		im, err := openImage(withCaveAt(t, image, at, len(begins), append(begins[:len(begins):len(begins)], c.code...)))
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

// sameInPacked reports whether an instruction of a packed lookup may be another one. What it works on has 32 bits of value, and all
// entries of a small table are in one group, however large.
func sameInPacked(i, other inst, behindSpans bool) bool {
	wide, group := other, other
	wide.w, group.imm = i.w, i.imm
	switch i.op {
	case iMov, iMovzx, iNot, iShr, iShl, iBts, iTzcnt:
		return wide == i && other.w == 8 || group == i && i.imm > plan.PageBits && behindSpans
	}
	return false
}

// TestSpanCode: a bit of the lookup in tables over segments that changes an instruction is refused.
func TestSpanCode(t *testing.T) {
	table := spanned(14, true)
	for k, v := range variants()[:2] {
		p, err := plan.Build(table, v.plan)
		require.NoError(t, err)
		image := compile(t, table, v)
		begin := bytes.Index(image, []byte{0x89, 0xc7, 0xc1, 0xef, byte(p.SpanBits)})
		require.Positive(t, begin, v.name)
		end := begin + bytes.Index(image[begin:], []byte{0xff, 0xe7}) + 2 // jmp *%rdi
		refused := 0
		for at := begin; at < end; {
			i, ok := decode(image[at:])
			require.True(t, ok)
			for bit := at * 8; bit < (at+int(i.n))*8; bit++ {
				mutant := bytes.Clone(image)
				mutant[bit/8] ^= 1 << (bit % 8)
				other, ok := decode(mutant[at:])
				if ok && other == i {
					continue // a bit of a prefix that means nothing here
				}
				_, err := Image(mutant, table)
				if ok && err == nil && k == 1 && sameInPacked(i, other, at > begin+16) {
					continue
				}
				assert.ErrorIs(t, err, ErrNotProven, "%s: bit %d of byte %d", v.name, bit%8, bit/8-begin)
				refused++
			}
			at += int(i.n)
		}
		assert.Greater(t, refused, []int{450, 1000}[k], v.name)
	}
}
