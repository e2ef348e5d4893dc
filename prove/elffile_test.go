package prove

import (
	"bytes"
	"debug/elf"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
)

// TestNoRows: a file without rows takes no decision on the pc, and reads nothing for that.
func TestNoRows(t *testing.T) {
	refusesEmpty(t, "an access before the lookup", 0x48, 0x8b, 0x38) // mov (%rax), %rdi
}

// TestOwnRows: what the file's own .eh_frame says is taken as unwinders take it. The row of
// the walk's third instruction has rbx where nothing was saved, below rsp; the rule was set in a
// row at which no instruction begins, with a CFA for which the place is above rsp, so that
// package dwarfcfa takes rbx for popped.
func TestOwnRows(t *testing.T) {
	table := small()
	p, err := plan.Build(table, plan.Options{})
	require.NoError(t, err)
	image := func(change func(f *asmgen.Frame)) []byte {
		code, err := asmgen.Assemble(p, asmgen.Options{})
		require.NoError(t, err)
		for _, s := range code.Symbols {
			if s.Name != abi.SymbolWalk {
				continue
			}
			i := slices.IndexFunc(code.Frames,
				func(f asmgen.Frame) bool { return f.Start <= s.Start && s.Start < f.End })
			change(&code.Frames[i])
		}
		im, err := elfout.New(code, elfout.Source{Name: "test"})
		require.NoError(t, err)
		return im.Bytes()
	}
	_, err = Image(image(func(*asmgen.Frame) {}), table)
	require.NoError(t, err)
	const place = -40
	popped := image(func(f *asmgen.Frame) {
		// push %rbp; push $0
		require.Equal(t, []int32{8, 16, 24}, []int32{f.Rows[0].CFAOffset, f.Rows[1].CFAOffset, f.Rows[2].CFAOffset})
		saved := append(slices.Clone(f.Rows[2].Saved), asmgen.FrameSave{Reg: abi.RBX, Off: place})
		f.Rows[2].Saved = saved
		f.Rows = slices.Insert(f.Rows, 2, asmgen.FrameRow{Off: f.Rows[2].Off - 1, CFAOffset: -place, Saved: saved})
	})
	object, err := dwarfcfa.NewFile("test", bytes.NewReader(popped), int64(len(popped)))
	require.NoError(t, err)
	_, found, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{Source: dwarfcfa.SourceEHFrame, Strict: true})
	require.NoError(t, err)
	assert.Positive(t, found.Rows.PoppedRules)
	_, err = Image(popped, table)
	assert.ErrorContains(t, err, "its own row does not have the caller's register 3")
}

// TestNoteSectionGone: readers that use sections find the build-id, though all bytes are in sections.
func TestNoteSectionGone(t *testing.T) {
	const name = ".note.gnu.build-id"
	image := compile(t, small(), variants()[0])
	require.Equal(t, 1, bytes.Count(image, append([]byte(name), 0)))
	copy(image[bytes.Index(image, []byte(name)):], append([]byte(abi.SitesSection),
		make([]byte, len(name)-len(abi.SitesSection))...))
	im := image[le.Uint64(image[40:])+shdrSize:] // it is the first section
	require.Equal(t, uint32(elf.SHT_NOTE), le.Uint32(im[4:]))
	le.PutUint32(im[4:], uint32(elf.SHT_PROGBITS))
	le.PutUint64(im[48:], 8)
	_, err := Image(image, small())
	assert.ErrorContains(t, err, "no section "+name)
}

// TestSiteNote: the table of sites lies in the data, and readers find its note.
func TestSiteNote(t *testing.T) {
	v := variants()[5]
	v.src.HasSites, v.src.Sites = true, []byte("as it may be: of that nothing is said")
	table := small()
	image := compile(t, table, v)
	_, err := Image(image, table)
	require.NoError(t, err)
	got, has, err := Sites(image)
	require.NoError(t, err)
	assert.True(t, has)
	assert.Equal(t, v.src.Sites, got)
	im, err := openImage(image)
	require.NoError(t, err)
	note := abi.SitesNote{Version: abi.SitesVersion, Addr: im.notes.sitesAddr, Size: uint64(len(im.notes.sites))}
	desc := note.Bytes()
	require.Equal(t, 1, bytes.Count(image, desc))
	for _, change := range []func(n *abi.SitesNote){
		func(n *abi.SitesNote) { n.Version++ }, func(n *abi.SitesNote) { n.Size++ }, func(n *abi.SitesNote) { n.Size = 0 },
		func(n *abi.SitesNote) { n.Size = 1 << 63 },
		func(n *abi.SitesNote) { n.Addr = im.exec.Vaddr }, func(n *abi.SitesNote) { n.Addr, n.Size = -n.Addr, 2*n.Addr },
	} {
		n := note
		change(&n)
		_, err := Image(bytes.Replace(image, desc, n.Bytes(), 1), table)
		assert.ErrorContains(t, err, "a table of sites", "%+v", n)
	}
	// Without the flag, and before the identity.
	flags := bytes.Index(image, []byte(abi.NoteOwner+"\x00")) + 8 + 4
	require.Equal(t, abi.FlagSites, le.Uint32(image[flags:])&abi.FlagSites)
	other := bytes.Clone(image)
	le.PutUint32(other[flags:], le.Uint32(image[flags:])&^abi.FlagSites)
	_, err = Image(other, table)
	assert.ErrorContains(t, err, "the note of the sites")
	notes := image[im.notes.addr+im.notes.foreign : im.notes.addr+im.notes.size]
	last := bytes.Index(notes, desc) - 12 - 8
	other = append(append(bytes.Clone(image[:im.notes.addr+im.notes.foreign]), notes[last:]...), notes[:last]...)
	_, err = Image(append(other, image[len(other):]...), table)
	assert.ErrorContains(t, err, `a note "ehasm\x00" of type 3`)
}

// TestName: a loader must not take a proven file for another library.
func TestName(t *testing.T) {
	const name = "test" + abi.Suffix
	image := compile(t, small(), variants()[0])
	require.Equal(t, 1, bytes.Count(image, []byte(name+"\x00")))
	off := bytes.Index(image, []byte(name+"\x00"))
	for _, other := range []string{"libgcc_s.so.12", "../x" + abi.Suffix, "/etc" + abi.Suffix, "libpthread.so\x00",
		"tes\x00" + abi.Suffix} {
		require.Len(t, other, len(name))
		copy(image[off:], other)
		_, err := Image(image, small())
		assert.ErrorIs(t, err, ErrNotProven)
		assert.ErrorContains(t, err, "DT_SONAME", other)
	}
	copy(image[off:], name)
	_, err := Image(image, small())
	require.NoError(t, err)
	im, err := openImage(image)
	require.NoError(t, err)
	entry := le.AppendUint64(le.AppendUint64(nil, uint64(elf.DT_SONAME)), im.dynamic.tags[elf.DT_SONAME])
	le.PutUint64(image[bytes.Index(image, entry)+8:], im.dynamic.tags[elf.DT_SONAME]+4)
	_, err = Image(image, small())
	assert.ErrorContains(t, err, "DT_SONAME \""+abi.Suffix)
}

// TestBehind: behind the last segment a file has what its headers name, and nothing else.
func TestBehind(t *testing.T) {
	for _, v := range variants() {
		image := compile(t, small(), v)
		_, err := Image(image, small())
		require.NoError(t, err, v.name)
		for _, tail := range [][]byte{{0}, make([]byte, pageSize), bytes.Repeat([]byte{0xcc}, 100)} {
			_, err := Image(append(image[:len(image):len(image)], tail...), small())
			assert.ErrorIs(t, err, ErrNotProven)
			assert.ErrorContains(t, err, "bytes behind its end", v.name)
		}
	}
	// In front of the section headers.
	image := compile(t, small(), variants()[0])
	shoff := le.Uint64(image[40:])
	hidden := append(append(bytes.Clone(image[:shoff]), make([]byte, 64)...), image[shoff:]...)
	le.PutUint64(hidden[40:], shoff+64)
	_, err := Image(hidden, small())
	assert.ErrorContains(t, err, "belong to nothing")
}
