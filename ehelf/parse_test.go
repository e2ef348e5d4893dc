package ehelf_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/testing/elfouttest"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

var source = elfout.Source{Name: "libtiny.so", BuildID: []byte{1, 2, 3}, FileSize: 4711, Build: []string{"tool=test"}}

// image returns the file of the hand-made eh_elf.
func image(t testing.TB) []byte {
	t.Helper()
	return imageOf(t, elfouttest.Tiny(), source)
}

func imageOf(t testing.TB, code *asmgen.Code, src elfout.Source) []byte {
	t.Helper()
	im, err := elfout.New(code, src)
	require.NoError(t, err)
	return im.Bytes()
}

func TestParse(t *testing.T) {
	require.NoError(t, ehelf.ParseOnly(image(t)))
}

// TestParseTruncated cuts the file at every byte. What lies after the code,
// .symtab and section headers, is not needed.
func TestParseTruncated(t *testing.T) {
	b := image(t)
	f, err := elf.NewFile(bytes.NewReader(b))
	require.NoError(t, err)
	text := f.Section(".text")
	for n := range b {
		err := ehelf.ParseOnly(b[:n])
		if uint64(n) >= text.Offset+text.Size {
			require.NoError(t, err, "cut at %d", n)
		} else {
			require.ErrorIs(t, err, ehelf.ErrNotEhElf, "cut at %d", n)
		}
	}
}

// TestParseDamaged sets every byte to several values: an error or not, but no
// panic.
func TestParseDamaged(t *testing.T) { checkDamaged(t, image(t)) }

func checkDamaged(t *testing.T, b []byte) {
	damaged := make([]byte, len(b))
	for i := range b {
		for _, v := range []byte{0, 1, 0x7f, 0x80, 0xff} {
			copy(damaged, b)
			damaged[i] = v
			checkParse(t, damaged)
		}
	}
}

// checkParse wants no error but the documented ones.
func checkParse(t *testing.T, b []byte) {
	t.Helper()
	if err := ehelf.ParseOnly(b); err != nil && !errors.Is(err, ehelf.ErrNotEhElf) &&
		!errors.Is(err, ehelf.ErrVersion) {
		t.Errorf("undocumented error: %v", err)
	}
}

func TestParseRefuses(t *testing.T) {
	le := binary.LittleEndian
	const phdr, ph2 = 64, 64 + 56
	b := image(t)
	f, err := elf.NewFile(bytes.NewReader(b))
	require.NoError(t, err)
	dyn := f.Section(".dynamic").Offset
	dynsym := f.Section(".dynsym").Offset
	note := f.Section(abi.NoteSection).Offset
	hash := f.Section(".hash").Offset

	for name, c := range map[string]struct {
		change func(b []byte)
		want   error
	}{
		"not ELF":       {func(b []byte) { b[0] = 0 }, ehelf.ErrNotEhElf},
		"ELF32":         {func(b []byte) { b[4] = 1 }, ehelf.ErrNotEhElf},
		"big-endian":    {func(b []byte) { b[5] = 2 }, ehelf.ErrNotEhElf},
		"other machine": {func(b []byte) { b[18] = 183 }, ehelf.ErrNotEhElf},
		"executable":    {func(b []byte) { b[16] = 2 }, ehelf.ErrNotEhElf},
		"phdrs outside": {func(b []byte) { le.PutUint64(b[32:], 1<<63) }, ehelf.ErrNotEhElf},
		"many phdrs":    {func(b []byte) { le.PutUint16(b[56:], 0xfffe) }, ehelf.ErrNotEhElf},
		"no phdrs":      {func(b []byte) { le.PutUint16(b[56:], 0) }, ehelf.ErrNotEhElf},
		"writable":      {func(b []byte) { b[phdr+4] |= 2 }, ehelf.ErrNotEhElf},
		"writable code": {func(b []byte) { b[ph2+4] |= 2 }, ehelf.ErrNotEhElf},
		"unreadable":    {func(b []byte) { b[ph2+4] = 1 }, ehelf.ErrNotEhElf},
		"code not exec": {func(b []byte) { b[ph2+4] = 4 }, ehelf.ErrNotEhElf},
		"segment outside": {func(b []byte) { le.PutUint64(b[ph2+32:], 1<<40); le.PutUint64(b[ph2+40:], 1<<40) },
			ehelf.ErrNotEhElf},
		"segment wraps":   {func(b []byte) { le.PutUint64(b[ph2+8:], ^uint64(0)) }, ehelf.ErrNotEhElf},
		"huge memory":     {func(b []byte) { le.PutUint64(b[ph2+40:], 1<<40) }, ehelf.ErrNotEhElf},
		"huge address":    {func(b []byte) { le.PutUint64(b[ph2+16:], ^uint64(0xff)) }, ehelf.ErrNotEhElf},
		"pages overlap":   {func(b []byte) { le.PutUint64(b[ph2+16:], 0x480) }, ehelf.ErrNotEhElf},
		"no note":         {func(b []byte) { b[note+12] = 'x' }, ehelf.ErrNotEhElf},
		"note size":       {func(b []byte) { le.PutUint32(b[note+4:], 0xffffffff) }, ehelf.ErrNotEhElf},
		"note cut":        {func(b []byte) { le.PutUint32(b[note+4:], 16) }, ehelf.ErrNotEhElf},
		"other version":   {func(b []byte) { b[note+20] = 2 }, ehelf.ErrVersion},
		"needs a library": {func(b []byte) { le.PutUint64(b[dyn:], uint64(elf.DT_NEEDED)) }, ehelf.ErrNotEhElf},
		"relocations":     {func(b []byte) { le.PutUint64(b[dyn:], uint64(elf.DT_RELA)) }, ehelf.ErrNotEhElf},
		"initialiser":     {func(b []byte) { le.PutUint64(b[dyn:], uint64(elf.DT_INIT)) }, ehelf.ErrNotEhElf},
		"text relocations": {func(b []byte) {
			le.PutUint64(b[dyn:], uint64(elf.DT_FLAGS))
			le.PutUint64(b[dyn+8:],
				4)
		}, ehelf.ErrNotEhElf},
		"no hash":            {func(b []byte) { le.PutUint64(b[dyn+32:], 0x6000_0001) }, ehelf.ErrNotEhElf},
		"hash outside":       {func(b []byte) { le.PutUint64(b[dyn+40:], 1<<40) }, ehelf.ErrNotEhElf},
		"strings outside":    {func(b []byte) { le.PutUint64(b[dyn+56:], 1<<40) }, ehelf.ErrNotEhElf},
		"many strings":       {func(b []byte) { le.PutUint64(b[dyn+88:], 1<<40) }, ehelf.ErrNotEhElf},
		"symbols outside":    {func(b []byte) { le.PutUint64(b[dyn+72:], ^uint64(7)) }, ehelf.ErrNotEhElf},
		"many symbols":       {func(b []byte) { le.PutUint32(b[hash+4:], 0xffffffff) }, ehelf.ErrNotEhElf},
		"symbol in data":     {func(b []byte) { le.PutUint64(b[dynsym+32:], 0x200) }, ehelf.ErrNotEhElf},
		"symbol outside":     {func(b []byte) { le.PutUint64(b[dynsym+32:], 1<<40) }, ehelf.ErrNotEhElf},
		"symbol undefined":   {func(b []byte) { le.PutUint16(b[dynsym+24+6:], 0) }, ehelf.ErrNotEhElf},
		"symbol is data":     {func(b []byte) { b[dynsym+24+4] = 0x11 }, ehelf.ErrNotEhElf},
		"symbol name beyond": {func(b []byte) { le.PutUint32(b[dynsym+24:], 1<<30) }, ehelf.ErrNotEhElf},
	} {
		t.Run(name, func(t *testing.T) {
			bad := bytes.Clone(b)
			c.change(bad)
			require.ErrorIs(t, ehelf.ParseOnly(bad), c.want)
			_, err := ehelf.FromBytes(bad)
			require.Error(t, err)
		})
	}
	t.Run("not an eh_elf", func(t *testing.T) {
		exe, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			t.Skip("needs /proc")
		}
		require.ErrorIs(t, ehelf.ParseOnly(exe), ehelf.ErrNotEhElf)
	})
	t.Run("walk missing", func(t *testing.T) {
		code := elfouttest.Tiny()
		code.Symbols[1].Exported = false
		err := ehelf.ParseOnly(imageOf(t, code, source))
		require.ErrorIs(t, err, ehelf.ErrNotEhElf)
		require.ErrorContains(t, err, abi.SymbolWalk)
	})
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "libtiny.so"+abi.Suffix)
	require.NoError(t, os.WriteFile(path, image(t), 0o644))
	o, err := ehelf.OpenUnchecked(path)
	if err != nil {
		require.ErrorIs(t, err, ehelf.ErrUnsupportedHost)
		t.Skip("needs a processor and a system with eh_elfs:", err)
	}
	defer o.Close()

	require.Equal(t, abi.Note{
		Version: abi.Version, Low: elfouttest.Low, High: elfouttest.High, Ranges: 2, Rows: 2,
		BuildID: []byte{1, 2, 3}, FileSize: 4711,
	}, o.Note())
	require.Len(t, o.BuildID(), 20)
	require.True(t, o.Covers(0x51000, 0x50000))
	require.True(t, o.Covers(0x51fff, 0x50000))
	require.False(t, o.Covers(0x52000, 0x50000))
	require.False(t, o.Covers(0x50fff, 0x50000))
	require.False(t, o.Covers(0x1000, 0x50000))

	require.ErrorIs(t, o.CheckObject(nil), ehelf.ErrMismatch)

	testtool.MakeFIFO(t, filepath.Join(dir, "fifo"))
	for name, want := range map[string]error{"none": os.ErrNotExist, ".": ehelf.ErrNotEhElf,
		"fifo": ehelf.ErrNotEhElf} {
		_, err := ehelf.OpenUnchecked(filepath.Join(dir, name))
		require.ErrorIs(t, err, want)
	}
	other := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(other, []byte("hello"), 0o644))
	_, err = ehelf.OpenUnchecked(other)
	require.ErrorIs(t, err, ehelf.ErrNotEhElf)
	require.ErrorContains(t, err, other)
}

// TestOpenFor: an eh_elf is opened for the object that it was made from alone.
func TestOpenFor(t *testing.T) {
	dir := t.TempDir()
	object := image(t) // an ELF file that has a build-id
	id, err := abi.BuildID(bytes.NewReader(object))
	require.NoError(t, err)
	require.NotEmpty(t, id)
	src := source
	src.BuildID, src.Content = id, contentOf(t, object)
	path := filepath.Join(dir, "libtiny.so"+abi.Suffix)
	require.NoError(t, os.WriteFile(path, imageOf(t, elfouttest.Tiny(), src), 0o600))
	stale := filepath.Join(dir, "stale"+abi.Suffix)
	require.NoError(t, os.WriteFile(stale, object, 0o600))
	for name, open := range map[string]func(string, io.ReaderAt) (*ehelf.EhElf,
		error){"OpenFor": ehelf.OpenFor, "OpenTrusted": ehelf.OpenTrusted} {
		t.Run(name, func(t *testing.T) {
			o, err := open(path, bytes.NewReader(object))
			if errors.Is(err, ehelf.ErrUnsupportedHost) {
				t.Skip("needs a processor and a system with eh_elfs:", err)
			}
			require.NoError(t, err)
			require.NoError(t, o.Close())
			for what, r := range map[string]io.ReaderAt{
				"none": nil, "no ELF file": strings.NewReader("hello"),
				"the eh_elf itself": bytes.NewReader(imageOf(t, elfouttest.Tiny(), src)),
			} {
				_, err := open(path, r)
				require.ErrorIs(t, err, ehelf.ErrMismatch, what)
				require.ErrorContains(t, err, path, what)
			}
			_, err = open(stale, bytes.NewReader(object))
			require.ErrorIs(t, err, ehelf.ErrMismatch)
		})
	}
}

// contentOf returns a part of an eh_elf, any one.
func contentOf(t *testing.T, object []byte) abi.Content {
	t.Helper()
	part, err := abi.ReadPart(bytes.NewReader(object), 0x100, 77)
	require.NoError(t, err)
	return abi.Content{part}
}

// TestCheckObject: the object is told by its content, whatever its size and its build-id.
func TestCheckObject(t *testing.T) {
	object := image(t) // any ELF file will do
	other := bytes.Clone(object)
	other[0x100+76]++
	src := source
	var err error
	src.BuildID, err = abi.BuildID(bytes.NewReader(object))
	require.NoError(t, err)
	src.Content = contentOf(t, object)
	open := func(src elfout.Source) *ehelf.EhElf {
		o, err := ehelf.FromBytes(imageOf(t, elfouttest.Tiny(), src))
		if err != nil {
			require.ErrorIs(t, err, ehelf.ErrUnsupportedHost)
			t.Skip("needs a processor and a system with eh_elfs:", err)
		}
		t.Cleanup(func() { o.Close() })
		return o
	}
	o := open(src)
	require.Equal(t, src.Content, o.Note().Content)
	require.NoError(t, o.CheckObject(bytes.NewReader(object)))
	for name, r := range map[string]io.ReaderAt{
		"of the same build-id and size": bytes.NewReader(other), "cut": bytes.NewReader(object[:0x140]), "none": nil,
		"empty": strings.NewReader(""), "no ELF file": strings.NewReader(strings.Repeat("x", 5000)),
	} {
		require.ErrorIs(t, o.CheckObject(r), ehelf.ErrMismatch, name)
	}
	src.Content = nil // as earlier releases wrote it
	err = open(src).CheckObject(bytes.NewReader(object))
	require.ErrorIs(t, err, ehelf.ErrMismatch)
	require.ErrorContains(t, err, "make it again")
}

func FuzzParse(f *testing.F) {
	f.Add(image(f))
	f.Add(relro(f))
	f.Fuzz(checkParse)
}
