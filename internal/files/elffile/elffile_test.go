package elffile

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// section is a section of a test file.
type section struct {
	name     string
	flags    elf.SectionFlag
	off, len int // in the file's data
}

// file makes an ELF file of data and sections in it.
func file(data []byte, list ...section) []byte {
	le := binary.LittleEndian
	const header, entry = 64, 64
	names := []byte{0}
	offset := func(name string) uint32 {
		names = append(names, name...)
		names = append(names, 0)
		return uint32(len(names) - len(name) - 1)
	}
	heads := make([]byte, entry)
	add := func(name string, typ elf.SectionType, flags elf.SectionFlag, off, size int) {
		h := make([]byte, entry)
		le.PutUint32(h, offset(name))
		le.PutUint32(h[4:], uint32(typ))
		le.PutUint64(h[8:], uint64(flags))
		le.PutUint64(h[24:], uint64(off))
		le.PutUint64(h[32:], uint64(size))
		heads = append(heads, h...)
	}
	for _, s := range list {
		add(s.name, elf.SHT_PROGBITS, s.flags, header+s.off, s.len)
	}
	add(".shstrtab", elf.SHT_STRTAB, 0, header+len(data), 0)
	le.PutUint64(heads[len(heads)-entry+32:], uint64(len(names)))
	out := make([]byte, header)
	copy(out, elf.ELFMAG)
	out[4], out[5], out[6] = 2, 1, 1
	le.PutUint16(out[16:], uint16(elf.ET_DYN))
	le.PutUint16(out[18:], uint16(elf.EM_X86_64))
	le.PutUint32(out[20:], 1)
	le.PutUint64(out[40:], uint64(header+len(data)+len(names)))
	le.PutUint16(out[52:], header)
	le.PutUint16(out[58:], entry)
	le.PutUint16(out[60:], uint16(len(list)+2))
	le.PutUint16(out[62:], uint16(len(list)+1))
	return append(append(append(out, data...), names...), heads...)
}

// compressed is n zeros as a section has them, with the header of a flag or of a name.
func compressed(t *testing.T, n int, flag bool) []byte {
	var b bytes.Buffer
	if flag {
		b.Write(binary.LittleEndian.AppendUint64([]byte{1, 0, 0, 0, 0, 0, 0, 0}, uint64(n)))
		b.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0})
	} else {
		b.Write(binary.BigEndian.AppendUint64([]byte("ZLIB"), uint64(n)))
	}
	w := zlib.NewWriter(&b)
	_, err := w.Write(make([]byte, n))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// TestOpenNotELF: the message does not show bytes, and an ELF file that ends early is one.
func TestOpenNotELF(t *testing.T) {
	for _, text := range []string{"", "\x7fEL", "root:x:0:0:root"} {
		_, err := Open(strings.NewReader(text))
		assert.ErrorIs(t, err, ErrNotELF, "%q", text)
	}
	_, err := Open(strings.NewReader(elf.ELFMAG))
	require.Error(t, err)
	assert.NotErrorIs(t, err, ErrNotELF)
}

// TestOpen: the compressed sections of a file are bounded together, and each byte of it counts once.
func TestOpen(t *testing.T) {
	const n = 2 * free
	noise := make([]byte, n/mostOfEach)
	zip, old := compressed(t, n, true), compressed(t, n, false)
	info := section{".debug_info", elf.SHF_COMPRESSED, 0, len(zip)}
	line := section{".debug_line", elf.SHF_COMPRESSED, 0, len(zip)}
	for _, c := range []struct {
		name string
		file []byte
		bad  bool
	}{
		{"none", file(zip, section{".text", 0, 0, len(zip)}), false},
		{"small", file(compressed(t, free, true), section{".debug_info", elf.SHF_COMPRESSED, 0,
			len(compressed(t, free, true))}), false},
		{"one", file(zip, info), true},
		{"older form", file(old, section{".zdebug_info", 0, 0, len(old)}), true},
		{"not the older form", file(old, section{".debug_info", 0, 0, len(old)}), false},
		// one whose ratio is high beside others: what the file's bytes warrant together
		{"beside others", file(append(bytes.Clone(zip), append(compressed(t, 1, true), noise...)...), info,
			section{".debug_str", elf.SHF_COMPRESSED, len(zip), len(compressed(t, 1, true)) + len(noise)}), false},
		{"the same bytes twice", file(append(bytes.Clone(zip), noise...),
			section{".debug_info", elf.SHF_COMPRESSED, 0, len(zip) + len(noise)},
			section{".debug_line", elf.SHF_COMPRESSED, 0, len(zip) + len(noise)}, line, line), true},
		{"bytes that the file has not", file(zip, section{".debug_info", elf.SHF_COMPRESSED, 0, 1 << 30}), true},
	} {
		f, err := Open(bytes.NewReader(c.file))
		if !c.bad {
			assert.NoError(t, err, c.name)
			assert.NotNil(t, f, c.name)
			continue
		}
		assert.ErrorContains(t, err, "compressed sections are said to hold", c.name)
		assert.Nil(t, f, c.name)
	}
	_, err := Open(bytes.NewReader([]byte("no ELF file")))
	assert.Error(t, err)
}
