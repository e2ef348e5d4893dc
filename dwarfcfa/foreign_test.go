package dwarfcfa

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// holes is a file of which only the beginning is there.
type holes struct {
	begin []byte
	size  int64
}

func (h holes) ReadAt(b []byte, off int64) (int, error) {
	clear(b)
	if off < int64(len(h.begin)) {
		copy(b, h.begin[off:])
	}
	if rest := h.size - off; rest < int64(len(b)) {
		return int(max(rest, 0)), io.EOF
	}
	return len(b), nil
}

// TestHugeSections: a section's size, which costs who made the file nothing, is not
// taken for a reason to use as much memory.
func TestHugeSections(t *testing.T) {
	const huge = 1 << 40
	image := testELF{ehFrame: []byte{0, 0, 0, 0}}.bytes()
	f, err := elf.NewFile(bytes.NewReader(image))
	require.NoError(t, err)
	off := -1
	for i, s := range f.Sections {
		if s.Name == ".eh_frame" {
			off = i
		}
	}
	require.GreaterOrEqual(t, off, 0)
	head := int(binary.LittleEndian.Uint64(image[40:])) + 64*off
	binary.LittleEndian.PutUint64(image[head+32:], huge)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o, err := NewFile("huge", holes{image, 2 * huge}, 2*huge)
	require.NoError(t, err)
	_, err = o.Section(SourceEHFrame)
	assert.ErrorIs(t, err, ErrUnsupported)
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))

	path := filepath.Join(t.TempDir(), "huge")
	require.NoError(t, os.WriteFile(path, image, 0o600))
	require.NoError(t, os.Truncate(path, 2*huge))
	_, err = Open(path)
	assert.ErrorIs(t, err, ErrUnsupported)
	assert.ErrorContains(t, err, path+": ")
}
