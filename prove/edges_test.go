package prove

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFarPlaces: an offset near 2^63, to which no size can be added, is not inside of an object.
func TestFarPlaces(t *testing.T) {
	const most = uint64(1<<63 - 1)
	table := small()
	image := compile(t, table, variants()[0])
	// lea 8(%r9), %r10; cmp slotHigh(%rsp), %r10
	row := []byte{0x4d, 0x8d, 0x51, 0x08, 0x4c, 0x3b, 0x54, 0x24, slotHigh}
	rule := []byte{0x48, 0x0f, 0xbe, 0x75, 0x00, 0x48, 0xff, 0xc5}   // movsbq (%rbp), %rsi; inc %rbp
	result := []byte{0x48, 0x89, 0x58, 0x10, 0x48, 0x89, 0x68, 0x18} // mov %rbx, 16(%rax); mov %rbp, 24(%rax)
	for _, m := range []struct {
		name string
		old  []byte
		reg  byte
		off  uint64
		code []byte
	}{
		{"a read", row, rDI, most + -frameBase, []byte{0x48, 0x8b, 0x3c, 0x3c}},  // mov (%rsp,%rdi), %rdi
		{"a store", row, rDI, most + -frameBase, []byte{0x48, 0x89, 0x3c, 0x3c}}, // mov %rdi, (%rsp,%rdi)
		{"a read", rule, rCX, most, []byte{0x48, 0x8b, 0x0c, 0x0b}},              // mov (%rbx,%rcx), %rcx: registers
		// mov (%rbp,%rcx), %rcx: the descriptor
		{"a read", rule, rCX, most - 1, []byte{0x48, 0x8b, 0x4c, 0x0d, 0x00}},
		// mov (%r14,%rcx), %rcx: the description of memory
		{"a read", rule, rCX, most &^ 7, []byte{0x49, 0x8b, 0x0c, 0x0e}},
		// mov %rcx, (%rax,%rcx): what _eh_elf returns
		{"a store", result, rCX, most &^ 7, []byte{0x48, 0x89, 0x0c, 0x08}},
	} {
		code := append(le.AppendUint64([]byte{0x48, 0xb8 | m.reg}, m.off), m.code...)
		im, err := openImage(withCave(t, image, m.old, append(code, m.old...)))
		require.NoError(t, err)
		p := newProver(im, table)
		p.x.ownRows = nil // code after the text has none
		assert.ErrorContains(t, p.prove(), m.name+" far from", "% x", m.code)
	}
}

// TestExactUnset: a walk of _eh_elf whose exact is what lay there is refused as such.
func TestExactUnset(t *testing.T) {
	table := small()
	image := compile(t, table, variants()[0])
	im, err := openImage(image)
	require.NoError(t, err)
	text := image[im.exec.Off : im.exec.Off+im.exec.Filesz]
	changed := 0
	for pos := 0; pos+11 <= len(text); pos++ {
		// movl $1, exact(%rsp), and status, which is beside it
		if !bytes.HasPrefix(text[pos:], []byte{0xc7, 0x84, 0x24}) || le.Uint32(text[pos+7:]) != 1 {
			continue
		}
		off := le.Uint32(text[pos+3:])
		le.PutUint32(text[pos+3:], off+4)
		_, err := Image(image, table)
		assert.ErrorIs(t, err, ErrNotProven)
		assert.ErrorContains(t, err, "exact")
		le.PutUint32(text[pos+3:], off)
		changed++
	}
	assert.Positive(t, changed)
}
