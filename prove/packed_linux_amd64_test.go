package prove

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/rowtest"
	"github.com/ehasm/ehasm/verify"
)

// packedFile is a file whose packed tables are changed.
type packedFile struct {
	t     *testing.T
	image []byte
	table *dwarfcfa.Table
	im    *image
	tab   packedTable
	pages uint64
}

func newPackedFile(t *testing.T, table *dwarfcfa.Table, asm asmgen.Options) *packedFile {
	t.Helper()
	f := &packedFile{t: t, table: table}
	f.image = compile(t, table, variant{plan: plan.Options{Dispatch: plan.DispatchPacked, Smallest: asm.Compact}, asm: asm, src: elfout.Source{Name: "test"}})
	var err error
	f.im, err = openImage(f.image)
	require.NoError(t, err)
	p := newProver(f.im, table)
	require.NoError(t, p.prove())
	f.pages = uint64(p.table.High()-p.table.Low()) / 256
	for _, f.tab = range p.packedTables { // all lookups read the same
	}
	require.NotZero(t, f.tab.entries)
	return f
}

// The data are mapped at address 0.
func (f *packedFile) entry(i uint64) []byte { return f.image[f.tab.entries+2*i:][:2] }
func (f *packedFile) head(id uint64) []byte { return f.image[f.tab.heads.at+2*id:][:2] }
func (f *packedFile) base(i uint64) []byte  { return f.image[f.tab.bases+4*(i>>f.tab.groupBits):][:4] }

// try proves the file as change has made it, and runs it if it is proven. Then it is as before.
func (f *packedFile) try(change func()) error {
	was := bytes.Clone(f.image)
	defer copy(f.image, was)
	change()
	if _, err := Image(f.image, f.table); err != nil {
		return err
	}
	_, err := verify.Every(f.image, f.table)
	require.NoError(f.t, err, "proven, and wrong")
	return nil
}

// refused requires that a change is not proven.
func (f *packedFile) refused(change func(), format string, args ...any) {
	assert.ErrorIsf(f.t, f.try(change), ErrNotProven, format, args...)
}

// move adds to the base of group g, and takes as much from its entries, but for the first few.
func (f *packedFile) move(g uint64, by uint32, few uint64) {
	first := g << f.tab.groupBits
	le.PutUint32(f.base(first), le.Uint32(f.base(first))+by)
	for i := first + few; i < min(first+1<<f.tab.groupBits, f.pages); i++ {
		le.PutUint16(f.entry(i), le.Uint16(f.entry(i))-uint16(by))
	}
}

// TestPackedEntries: each word that leads a lookup to a record counts.
func TestPackedEntries(t *testing.T) {
	f := newPackedFile(t, rowtest.Pages(200, 238, 400), asmgen.Options{})
	groups := (f.pages-1)>>f.tab.groupBits + 1
	require.Greater(t, groups, uint64(2))
	for g := range groups {
		for _, by := range []uint32{1, 0xffff, 0x10000, 1 << 31, ^uint32(0)} {
			f.refused(func() { b := f.base(g << f.tab.groupBits); le.PutUint32(b, le.Uint32(b)+by) }, "base %d by %#x", g, by)
			f.refused(func() { f.move(g, by, 1) }, "group %d by %#x, but for its first entry", g, by)
		}
	}
	for i := uint64(0); i < f.pages; i += 23 {
		for bit := range 16 {
			f.refused(func() { f.entry(i)[bit/8] ^= 1 << (bit % 8) }, "bit %d of entry %d", bit, i)
		}
	}
	for g := range groups - 1 { // the last entry of a group, and the first of the next
		i := (g+1)<<f.tab.groupBits - 1
		f.refused(func() {
			a, b := f.entry(i), f.entry(i+1)
			a[0], a[1], b[0], b[1] = b[0], b[1], a[0], a[1]
		}, "entries %d and %d", i, i+1)
	}
	shift, bits := []byte{0xc1, 0xef, byte(f.tab.groupBits), 0x41, 0x03}, 0 // shr $n, %edi; add base(%r10,%rdi,4), %eax
	text := f.image[f.im.exec.Off:][:f.im.exec.Filesz]
	require.Positive(t, bytes.Count(text, shift))
	for bits = 1; bits < 32; bits++ {
		if bits != int(f.tab.groupBits) {
			f.refused(func() { copy(text, bytes.ReplaceAll(text, shift, []byte{0xc1, 0xef, byte(bits), 0x41, 0x03})) }, "groups of %d bits", bits)
		}
	}
}

// TestPackedSums: what leads to the same records is proven, and right: the sum of an entry and its base counts modulo 2^32. 16 keys of
// a record are read, which the data must have.
func TestPackedSums(t *testing.T) {
	for _, asm := range []asmgen.Options{{}, {Compact: true, OneLookup: true}, {Compact: true, SharedHead: true}} {
		f := newPackedFile(t, rowtest.Pages(5, 0, 3), asm)
		entry, base := uint32(le.Uint16(f.entry(0))), le.Uint32(f.base(0))
		for _, by := range []uint32{1, 2, base, base + 1, base + 0xfe00} { // the last ones are below 0
			assert.NoError(t, f.try(func() { f.move(0, -by, 0) }), "by %#x", -by)
		}
		f.refused(func() { f.move(0, 0xffff0000, 0) }, "out of reach")
		for _, left := range []uint64{16, 17} {
			err := f.try(func() {
				record, at := f.image[f.tab.from+uint64(base+entry):][:2], f.im.read.Filesz-left
				require.Zero(t, record[0], "keys")
				copy(f.image[at:], record)
				le.PutUint16(f.entry(0), uint16(uint32(at-f.tab.from)-base))
			})
			if left == 16 {
				assert.ErrorContains(t, err, "is not in the data")
			} else if err != nil {
				assert.NotContains(t, err.Error(), "is not in the data")
			}
		}
	}
}

// TestHeadTable: each distance of the table of heads counts.
func TestHeadTable(t *testing.T) {
	f := newPackedFile(t, rowtest.Pages(8, 12, 30), asmgen.Options{Compact: true, OneLookup: true})
	require.Equal(t, headTable{at: f.tab.heads.at, text: f.im.exec.Vaddr, size: 2, jumps: true}, f.tab.heads)
	rows := uint64(len(f.table.Rows))
	for id := range rows {
		for bit := range 16 {
			f.refused(func() { f.head(id)[bit/8] ^= 1 << (bit % 8) }, "bit %d of head %d", bit, id)
		}
		f.refused(func() { copy(f.head(id), f.head((id+1)%rows)) }, "head %d", id)
	}
}

// TestSharedHead: each word of a table that has CFAs in it counts, and so does each instruction that reads them.
func TestSharedHead(t *testing.T) {
	table := rowtest.Pages(8, 12, 30)
	for i := range table.Rows { // three tails, of which one has the most rows, at both bounds of what a word can say
		switch i % 8 {
		case 0:
			table.Rows[i] = rowtest.Row(abi.RSP, int64(8*i+16), abi.RBX)
		case 1:
			table.Rows[i] = rowtest.Row(abi.RBP, int64(8*i+16))
		case 2:
			table.Rows[i] = rowtest.Row(abi.RSP, 8*(1<<15-4+int64(i/8)))
		}
	}
	f := newPackedFile(t, table, asmgen.Options{Compact: true, SharedHead: true})
	h := f.tab.heads
	require.Equal(t, headTable{at: h.at, text: f.im.exec.Vaddr, size: 2, shared: h.shared, below: true, jumps: true, shares: true}, h)
	rows, sharing := uint64(len(f.table.Rows)), 0
	for id := range rows {
		word := le.Uint16(f.head(id))
		if word >= sharedFrom {
			sharing++
			f.refused(func() { le.PutUint16(f.head(id), uint16(h.shared-h.text)) }, "head %d: the shared one, without a word", id)
		}
		for bit := range 16 {
			f.refused(func() { f.head(id)[bit/8] ^= 1 << (bit % 8) }, "bit %d of head %d", bit, id)
		}
		for other := range rows {
			if other != id {
				f.refused(func() { copy(f.head(id), f.head(other)) }, "head %d is that of %d", id, other)
			}
		}
	}
	require.Greater(t, sharing, 16)
	require.Less(t, sharing, int(rows)-6)

	text := f.image[f.im.exec.Off:][:f.im.exec.Filesz]
	compare := []byte{0x81, 0xff, 0x00, 0x80, 0x00, 0x00, 0x0f, 0x83} // cmp $sharedFrom, %edi; jae
	for _, c := range []struct {
		is    []byte
		times int
	}{{compare, 2}, {cutShared, 1}} {
		require.Equal(t, c.times, bytes.Count(text, c.is))
		for bit := range 8 * len(c.is) {
			changed := bytes.Clone(c.is)
			changed[bit/8] ^= 1 << (bit % 8)
			f.refused(func() { copy(text, bytes.ReplaceAll(text, c.is, changed)) }, "% x", changed)
			f.refused(func() { copy(text, bytes.Replace(text, c.is, changed, 1)) }, "% x, once", changed)
		}
	}
}
