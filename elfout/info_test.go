package elfout

import (
	"bytes"
	"debug/elf"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/testing/elfouttest"
)

func TestReadInfo(t *testing.T) {
	im := tiny(t)
	info, err := ReadInfo(bytes.NewReader(im.Bytes()))
	require.NoError(t, err)
	require.Equal(t, Info{
		Note: abi.Note{
			Version: abi.Version, Low: elfouttest.Low, High: elfouttest.High, Ranges: 2, Rows: 2,
			BuildID: []byte{1, 2, 3, 4, 5}, FileSize: 1234,
		},
		Build:    testSource.Build,
		BuildID:  im.BuildID(),
		Soname:   "libx.so.1.eh_elf.so",
		TextSize: im.TextSize(),
		DataSize: im.DataSize(),
		Symbols: []SymbolInfo{
			{"eh_elf_load", im.text.addr + 0x180, 0x49, false},
			{abi.SymbolStep, im.text.addr, 0x56, true},
			{abi.SymbolWalk, im.text.addr + 0x80, 0xf2, true},
		},
	}, info)

	code := elfouttest.Tiny()
	bare, err := New(code, Source{Name: "x"})
	require.NoError(t, err)
	info, err = ReadInfo(bytes.NewReader(bare.Bytes()))
	require.NoError(t, err)
	require.Empty(t, info.Build)
	require.Empty(t, info.Note.BuildID)
}

// TestReadInfoBare: without section headers a file says the same of itself.
func TestReadInfoBare(t *testing.T) {
	im := withoutSections(t)
	require.Less(t, im.Size()+900, tiny(t).Size())
	info, err := ReadInfo(bytes.NewReader(im.Bytes()))
	require.NoError(t, err)
	want, err := ReadInfo(bytes.NewReader(tiny(t).Bytes()))
	require.NoError(t, err)
	want.BuildID = im.BuildID()
	want.Symbols = want.Symbols[1:] // the local one is in .symtab alone
	by := im.text.addr - tiny(t).text.addr
	for i := range want.Symbols {
		want.Symbols[i].Addr += by
	}
	require.Equal(t, want, info)
	_, err = New(elfouttest.Tiny(), Source{Name: "x", Bare: true, Relro: true})
	require.ErrorIs(t, err, ErrBadSource)
}

// TestReadInfoTruncated cuts the file at every byte.
func TestReadInfoTruncated(t *testing.T) {
	for n, b := 0, withoutSections(t).Bytes(); n < len(b); n++ {
		_, err := ReadInfo(bytes.NewReader(b[:n]))
		require.ErrorIs(t, err, ErrNotEhElf, "cut at %d", n)
	}
	b := tiny(t).Bytes()
	for n := range b {
		info, err := ReadInfo(bytes.NewReader(b[:n]))
		require.ErrorIs(t, err, ErrNotEhElf, "cut at %d", n)
		require.Equal(t, Info{}, info)
	}
}

// TestReadInfoDamaged sets every byte to several values; no answer is wrong,
// but none may be a panic.
func TestReadInfoDamaged(t *testing.T) {
	for _, im := range []*Image{tiny(t), withoutSections(t)} {
		damage(t, im.Bytes())
	}
}

// damage reads info of b with every byte set to several values.
func damage(t *testing.T, b []byte) {
	t.Helper()
	damaged := make([]byte, len(b))
	for i := range b {
		for _, v := range []byte{0, 1, 0x7f, 0x80, 0xff} {
			copy(damaged, b)
			damaged[i] = v
			checkInfo(t, damaged)
		}
	}
}

// checkInfo wants an error or a value.
func checkInfo(t *testing.T, b []byte) {
	t.Helper()
	info, err := ReadInfo(bytes.NewReader(b))
	if err != nil {
		require.ErrorIs(t, err, ErrNotEhElf)
		require.Equal(t, Info{}, info)
		return
	}
	require.Equal(t, uint32(abi.Version), info.Note.Version)
}

func TestReadInfoOthers(t *testing.T) {
	whole := tiny(t).Bytes()
	core := bytes.Clone(whole)
	core[16] = byte(elf.ET_CORE)
	for name, b := range map[string][]byte{
		"not an ELF file":                          []byte("!<arch>\n"),
		"the file is truncated":                    whole[:len(whole)-1],
		"ELFCLASS64 ELFDATA2LSB EM_X86_64 ET_CORE": core,
	} {
		_, err := ReadInfo(bytes.NewReader(b))
		require.ErrorIs(t, err, ErrNotEhElf, name)
		require.ErrorContains(t, err, name)
	}
	_, err := ReadInfo(bytes.NewReader(nil))
	require.ErrorContains(t, err, "not an ELF file")
}

func FuzzReadInfo(f *testing.F) {
	im, err := New(elfouttest.Tiny(), testSource)
	require.NoError(f, err)
	f.Add(im.Bytes())
	f.Fuzz(checkInfo)
}
