package elfout

import (
	"bytes"
	"crypto/sha1"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/internal/testing/elfouttest"
)

var testSource = Source{
	Name: "libx.so.1", BuildID: []byte{1, 2, 3, 4, 5}, FileSize: 1234,
	Build: []string{"tool=ehasm test", "dispatch=tree"},
}

func tiny(t testing.TB) *Image {
	t.Helper()
	im, err := New(elfouttest.Tiny(), testSource)
	require.NoError(t, err)
	return im
}

func open(t testing.TB, im *Image) *elf.File {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(im.Bytes()))
	require.NoError(t, err)
	return f
}

func TestImageReread(t *testing.T) {
	im := tiny(t)
	f := open(t, im)
	require.Equal(t, elf.ET_DYN, f.Type)
	require.Equal(t, elf.EM_X86_64, f.Machine)
	require.Equal(t, elf.ELFCLASS64, f.Class)
	require.Equal(t, elf.ELFDATA2LSB, f.Data)

	var loads []*elf.Prog
	seen := map[elf.ProgType]*elf.Prog{}
	for _, p := range f.Progs {
		seen[p.Type] = p
		if p.Type == elf.PT_LOAD {
			loads = append(loads, p)
			require.Equal(t, p.Off%pageSize, p.Vaddr%pageSize)
			require.Equal(t, p.Filesz, p.Memsz)
		}
		if p.Type != elf.PT_GNU_STACK {
			require.Zero(t, p.Flags&elf.PF_W, "%v", p.Type)
		}
	}
	require.Len(t, loads, 2)
	require.Equal(t, elf.PF_R, loads[0].Flags)
	require.Equal(t, elf.PF_R|elf.PF_X, loads[1].Flags)
	require.Greater(t, loads[1].Vaddr/pageSize, (loads[0].Vaddr+loads[0].Memsz-1)/pageSize)
	require.Zero(t, seen[elf.PT_GNU_STACK].Flags&elf.PF_X)
	for _, typ := range []elf.ProgType{elf.PT_DYNAMIC, elf.PT_NOTE, elf.PT_GNU_EH_FRAME} {
		require.NotNil(t, seen[typ], "%v", typ)
	}

	for tag, want := range map[elf.DynTag][]string{elf.DT_SONAME: {"libx.so.1.eh_elf.so"}, elf.DT_NEEDED: nil,
		elf.DT_RUNPATH: nil} {
		got, err := f.DynString(tag)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, tag := range []elf.DynTag{elf.DT_RELA, elf.DT_REL, elf.DT_JMPREL, elf.DT_TEXTREL, elf.DT_FLAGS,
		elf.DT_INIT, elf.DT_INIT_ARRAY, elf.DT_FINI} {
		got, err := f.DynValue(tag)
		require.NoError(t, err)
		require.Empty(t, got)
	}

	dynamic, err := f.DynamicSymbols()
	require.NoError(t, err)
	require.Len(t, dynamic, 2)
	all, err := f.Symbols()
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Equal(t, "eh_elf_load", all[0].Name)
	text := f.Section(".text")
	for _, s := range append(all, dynamic...) {
		require.Equal(t, text, f.Sections[s.Section])
		require.Equal(t, elf.STT_FUNC, elf.ST_TYPE(s.Info))
	}
	require.Zero(t, text.Addr%codeAlign)
	require.Zero(t, f.Section(".rodata").Addr%codeAlign)
}

func TestFixups(t *testing.T) {
	code := elfouttest.Tiny()
	code.Fixups = append(code.Fixups, asmgen.Fixup{TextOff: 0x60, DataOff: 9})
	before := bytes.Clone(code.Text)
	im, err := New(code, testSource)
	require.NoError(t, err)
	require.Equal(t, before, code.Text, "New changed the code")
	f := open(t, im)
	text, err := f.Section(".text").Data()
	require.NoError(t, err)
	for _, fix := range code.Fixups {
		disp := int32(binary.LittleEndian.Uint32(text[fix.TextOff:]))
		next := f.Section(".text").Addr + uint64(fix.TextOff) + 4
		require.Equal(t, f.Section(".rodata").Addr+uint64(fix.DataOff), next+uint64(int64(disp)))
		copy(text[fix.TextOff:], before[fix.TextOff:fix.TextOff+4])
	}
	require.Equal(t, before, text)
}

func TestTextWords(t *testing.T) {
	code := elfouttest.Tiny()
	code.Data = []byte{8, 0, 0, 0, 0x10, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}
	code.TextWords = 2
	im, err := New(code, testSource)
	require.NoError(t, err)
	f := open(t, im)
	data, err := f.Section(".rodata").Data()
	require.NoError(t, err)
	for i, off := range []uint64{8, 0x10} {
		distance := int32(binary.LittleEndian.Uint32(data[4*i:]))
		require.Equal(t, f.Section(".text").Addr+off, f.Section(".rodata").Addr+uint64(int64(distance)))
	}
	require.Equal(t, code.Data[8:], data[8:], "the rest")
}

func TestDeterministic(t *testing.T) {
	a, b := tiny(t), tiny(t)
	require.Equal(t, a.Bytes(), b.Bytes())

	zeroed := bytes.Replace(a.Bytes(), a.BuildID(), make([]byte, buildIDSize), 1)
	sum := sha1.Sum(zeroed)
	require.Equal(t, sum[:], a.BuildID())

	other := testSource
	other.FileSize++
	c, err := New(elfouttest.Tiny(), other)
	require.NoError(t, err)
	require.NotEqual(t, a.BuildID(), c.BuildID())
}

// TestSmallFile holds the file free of padding: what is not code and data stays
// below two pages.
func TestSmallFile(t *testing.T) {
	im := tiny(t)
	require.Less(t, im.Size()-im.TextSize()-im.DataSize(), int64(2500))
	code := elfouttest.Tiny()
	code.Text = append(code.Text, make([]byte, 100_000)...)
	code.Data = append(code.Data, make([]byte, 50_000)...)
	big, err := New(code, testSource)
	require.NoError(t, err)
	require.Less(t, big.Size()-big.TextSize()-big.DataSize(), int64(2500))
}

// TestSegmentsAtPageBounds lays out images whose read-only part ends at every
// offset of a page.
func TestSegmentsAtPageBounds(t *testing.T) {
	for extra := range 2 * pageSize / 64 {
		for _, delta := range []int{0, 1, 63} {
			code := elfouttest.Tiny()
			code.Data = append(code.Data, make([]byte, extra*64+delta)...)
			im, err := New(code, testSource)
			require.NoError(t, err)
			r, x := le64(im, 0, 32), le64(im, 1, 16)
			require.Equal(t, le64(im, 1, 8)%pageSize, x%pageSize)
			require.Greater(t, x/pageSize, (r-1)/pageSize)
			require.Less(t, x/pageSize, (r-1)/pageSize+2+1)
		}
	}
}

// le64 reads a field of program header i.
func le64(im *Image, i, off int) uint64 {
	return binary.LittleEndian.Uint64(im.Bytes()[ehdrSize+i*phdrSize+off:])
}

func TestWithoutData(t *testing.T) {
	code := elfouttest.Tiny()
	code.Data, code.Fixups = nil, nil
	im, err := New(code, testSource)
	require.NoError(t, err)
	require.Nil(t, open(t, im).Section(".rodata"))
}

func TestFlagsInNote(t *testing.T) {
	code := elfouttest.Tiny()
	code.NoDeref, code.Packed = true, true
	im, err := New(code, testSource)
	require.NoError(t, err)
	info, err := ReadInfo(bytes.NewReader(im.Bytes()))
	require.NoError(t, err)
	require.Equal(t, abi.FlagNoDeref|abi.FlagPacked, info.Note.Flags)
}

func TestNewRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*asmgen.Code, *Source)
		want   error
	}{
		"no name":           {func(_ *asmgen.Code, s *Source) { s.Name = "" }, ErrBadSource},
		"a path":            {func(_ *asmgen.Code, s *Source) { s.Name = "a/b" }, ErrBadSource},
		"negative size":     {func(_ *asmgen.Code, s *Source) { s.FileSize = -1 }, ErrBadSource},
		"two lines":         {func(_ *asmgen.Code, s *Source) { s.Build = []string{"a=b\nc=d"} }, ErrBadSource},
		"no key":            {func(_ *asmgen.Code, s *Source) { s.Build = []string{"a"} }, ErrBadSource},
		"no text":           {func(c *asmgen.Code, _ *Source) { *c = asmgen.Code{} }, ErrBadCode},
		"symbol outside":    {func(c *asmgen.Code, _ *Source) { c.Symbols[0].End = 1 << 20 }, ErrBadCode},
		"symbol twice":      {func(c *asmgen.Code, _ *Source) { c.Symbols[0].Name = c.Symbols[1].Name }, ErrBadCode},
		"symbol nameless":   {func(c *asmgen.Code, _ *Source) { c.Symbols[0].Name = "" }, ErrBadCode},
		"frames disordered": {func(c *asmgen.Code, _ *Source) { c.Frames[1].Start-- }, ErrBadCode},
		"frame outside":     {func(c *asmgen.Code, _ *Source) { c.Frames[2].End++ }, ErrBadCode},
		"rows disordered":   {func(c *asmgen.Code, _ *Source) { c.Frames[0].Rows[2].Off = 1 }, ErrBadCode},
		"row outside":       {func(c *asmgen.Code, _ *Source) { c.Frames[0].Rows[2].Off = 0x80 }, ErrBadCode},
		"odd save":          {func(c *asmgen.Code, _ *Source) { c.Frames[0].Rows[1].Saved[0].Off = -3 }, ErrBadCode},
		"column":            {func(c *asmgen.Code, _ *Source) { c.Frames[0].Rows[1].Saved[0].Reg = 17 }, ErrBadCode},
		"fixup in text": {func(c *asmgen.Code, _ *Source) { c.Fixups[0].TextOff = uint32(len(c.Text)) - 3 },
			ErrBadCode},
		"fixup to data":  {func(c *asmgen.Code, _ *Source) { c.Fixups[0].DataOff = 999 }, ErrBadCode},
		"words, no data": {func(c *asmgen.Code, _ *Source) { c.TextWords = len(c.Data)/4 + 1 }, ErrBadCode},
		"word outside": {func(c *asmgen.Code, _ *Source) {
			c.Data = []byte{0xff, 0xff, 0,
				0}
			c.Fixups = nil
			c.TextWords = 1
		}, ErrBadCode},
		"fixup, no data": {func(c *asmgen.Code, _ *Source) { c.Data = nil }, ErrBadCode},
	} {
		t.Run(name, func(t *testing.T) {
			code, src := elfouttest.Tiny(), testSource
			c.change(code, &src)
			im, err := New(code, src)
			require.ErrorIs(t, err, c.want)
			require.Nil(t, im)
		})
	}
}

// TestHashes looks symbols up through each hash table alone, as a loader does.
func TestHashes(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 8, 100} {
		code := elfouttest.Tiny()
		code.Symbols = nil
		for i := range n {
			code.Symbols = append(code.Symbols, asmgen.Symbol{
				Name: fmt.Sprintf("name_%d_%x", i, i*i), Start: uint32(i), End: uint32(i + 1), Exported: true,
			})
		}
		im, err := New(code, testSource)
		require.NoError(t, err)
		f := open(t, im)
		text := f.Section(".text").Addr
		for _, s := range code.Symbols {
			for which, lookup := range map[string]func(*elf.File, string) (uint64,
				error){"gnu": lookupGNU, "sysv": lookupSysV} {
				got, err := lookup(f, s.Name)
				require.NoError(t, err, "%s of %d", which, n)
				require.Equal(t, text+uint64(s.Start), got)
			}
		}
		for _, name := range []string{"", "missing", "name_0_1", "another"} {
			_, err := lookupGNU(f, name)
			require.Error(t, err)
			_, err = lookupSysV(f, name)
			require.Error(t, err)
		}
	}
}

// words reads a section as words of 4 bytes.
func words(f *elf.File, section string) []uint32 {
	b, _ := f.Section(section).Data()
	out := make([]uint32, len(b)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return out
}

var errNoSymbol = errors.New("no such symbol")

func symbolIs(f *elf.File, i uint32, name string) (uint64, bool) {
	symbols, err := f.DynamicSymbols()
	if err != nil || i == 0 || int(i) > len(symbols) {
		return 0, false
	}
	return symbols[i-1].Value, symbols[i-1].Name == name
}

func lookupSysV(f *elf.File, name string) (uint64, error) {
	h := words(f, ".hash")
	nbucket := h[0]
	buckets, chains := h[2:2+nbucket], h[2+nbucket:]
	for i := buckets[sysvHash(name)%nbucket]; i != 0; i = chains[i] {
		if v, ok := symbolIs(f, i, name); ok {
			return v, nil
		}
	}
	return 0, errNoSymbol
}

func lookupGNU(f *elf.File, name string) (uint64, error) {
	h := words(f, ".gnu.hash")
	nbuckets, symoffset, nbloom, shift := h[0], h[1], h[2], h[3]
	bloom, rest := h[4:4+2*nbloom], h[4+2*nbloom:]
	buckets, chains := rest[:nbuckets], rest[nbuckets:]
	hash := gnuHash(name)
	i := hash / 64 % nbloom
	word := uint64(bloom[2*i]) | uint64(bloom[2*i+1])<<32
	if word>>(hash%64)&1 == 0 || word>>(hash>>shift%64)&1 == 0 {
		return 0, errNoSymbol
	}
	for i := buckets[hash%nbuckets]; i != 0; i++ {
		v := chains[i-symoffset]
		if v|1 == hash|1 {
			if addr, ok := symbolIs(f, i, name); ok {
				return addr, nil
			}
		}
		if v&1 != 0 {
			break
		}
	}
	return 0, errNoSymbol
}

// TestHashFunctions pins the two functions to values computed elsewhere.
func TestHashFunctions(t *testing.T) {
	require.Equal(t, uint32(0x077905a6), sysvHash("printf"))
	require.Equal(t, uint32(0x0001505), gnuHash(""))
	require.Equal(t, uint32(0x156b2bb8), gnuHash("printf"))
	require.Equal(t, uint32(0x7c967e3f), gnuHash("exit"))
}
