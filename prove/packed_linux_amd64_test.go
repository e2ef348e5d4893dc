package prove

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/validate/verify"
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

func newPackedFile(t *testing.T, table *dwarfcfa.Table) *packedFile {
	t.Helper()
	f := &packedFile{t: t, table: table}
	f.image = compile(t, table, variants()[1])
	var err error
	f.im, err = openImage(f.image)
	require.NoError(t, err)
	p := newProver(f.im, table)
	require.NoError(t, p.prove())
	f.pages = uint64(p.table.High()-p.table.Low()) / 256
	for _, f.tab = range p.lookups.packedTables { // all lookups read the same
	}
	require.NotZero(t, f.tab.entries)
	return f
}

// The data are mapped at address 0.
func (f *packedFile) entry(i uint64) []byte { return f.image[f.tab.entries+2*i:][:2] }
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
	f := newPackedFile(t, rowtest.Pages(200, 238, 400))
	groups := (f.pages-1)>>f.tab.groupBits + 1
	require.Greater(t, groups, uint64(2))
	for g := range groups {
		for _, by := range []uint32{1, 0xffff, 0x10000, 1 << 31, ^uint32(0)} {
			f.refused(func() { b := f.base(g << f.tab.groupBits); le.PutUint32(b, le.Uint32(b)+by) },
				"base %d by %#x", g, by)
			f.refused(func() { f.move(g, by, 1) }, "group %d by %#x, but for its first entry", g, by)
		}
	}
	for i := uint64(0); i < f.pages; i += uint64(testtool.Few(23, 97)) {
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
			f.refused(func() {
				copy(text, bytes.ReplaceAll(text, shift,
					[]byte{0xc1, 0xef, byte(bits), 0x41, 0x03}))
			}, "groups of %d bits", bits)
		}
	}
}

// TestPackedSums: what leads to the same records is proven, and right: the sum of an entry and its
// base counts modulo 2^32. 16 keys of a record are read, which the data must have.
func TestPackedSums(t *testing.T) {
	f := newPackedFile(t, rowtest.Pages(5, 0, 3))
	entry, base := uint32(le.Uint16(f.entry(0))), le.Uint32(f.base(0))
	for _, by := range []uint32{1, 2, base, base + 1, base + 0xfe00} { // the last ones are below 0
		assert.NoError(t, f.try(func() { f.move(0, -by, 0) }), "by %#x", -by)
	}
	f.refused(func() { f.move(0, 0xffff0000, 0) }, "out of reach")
	for _, left := range []uint64{16, 17} {
		err := f.try(func() {
			record, off := f.image[f.tab.from+uint64(base+entry):][:2], f.im.read.Filesz-left
			require.Zero(t, record[0], "keys")
			copy(f.image[off:], record)
			le.PutUint16(f.entry(0), uint16(uint32(off-f.tab.from)-base))
		})
		if left == 16 {
			assert.ErrorContains(t, err, "is not in the data")
		} else if err != nil {
			assert.NotContains(t, err.Error(), "is not in the data")
		}
	}
}
