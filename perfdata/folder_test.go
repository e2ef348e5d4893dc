package perfdata

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/perfdatatest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// folder writes a recording of three files: a header with a mapping, and samples
// at even and at odd times, the first two of each swapped.
func folder(t *testing.T, samples uint64) string {
	t.Helper()
	dir := t.TempDir()
	b := twoEvents()
	b.Mmap2(perfdatatest.ID{PID: 10, TID: 10}, 0x1000, 0x1000, 0, "/bin/true")
	b.Round()
	parts := [2][]byte{}
	for i := range samples {
		time := 1 + i
		if i < 4 {
			time = 1 + (i+2)%4
		}
		parts[i%2] = append(parts[i%2], dwarfSample(5, 0x1000, time)...)
		parts[i%2] = append(parts[i%2], perfdatatest.Record(68, 0)...) // a round of this file
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data"), b.File(), 0o666))
	for i, p := range parts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("data.%d", i)), p, 0o666))
	}
	return dir
}

func readFolder(t *testing.T, dir string, opt Options) (*Reader, int) {
	t.Helper()
	r, err := Open(dir, opt)
	require.NoError(t, err)
	require.True(t, r.Next())
	assert.IsType(t, &Mmap{}, r.Record(), "what has no time comes first")
	n := 0
	for ; r.Next(); n++ {
		if assert.IsType(t, &Sample{}, r.Record()) && r.Err() == nil {
			assert.Equal(t, uint64(n+1), r.Record().(*Sample).Time)
		}
	}
	return r, n
}

func TestFolder(t *testing.T) {
	const samples = 1000
	for _, queue := range []int64{0, 4096} {
		dir := folder(t, samples)
		r, n := readFolder(t, dir, Options{QueueBytes: queue})
		assert.NoError(t, r.Err())
		assert.Equal(t, samples, n)
		assert.Zero(t, r.Stats().OutOfOrder)
		assert.Zero(t, r.Stats().Forced)
		assert.Empty(t, r.Info().Warnings)
		assert.NoError(t, r.Close())
	}

	dir := folder(t, samples)
	cut := filepath.Join(dir, "data.1")
	require.NoError(t, os.Truncate(cut, 1000))
	r, err := Open(dir, Options{})
	require.NoError(t, err)
	n := 0
	for r.Next() {
		n++
	}
	assert.ErrorIs(t, r.Err(), ErrTruncated)
	assert.ErrorContains(t, r.Err(), "data.1")
	assert.Greater(t, n, samples/2, "the other file is read to its end")
	assert.NoError(t, r.Close())

	_, err = Open(t.TempDir(), Options{})
	assert.ErrorContains(t, err, "not one of perf record")
	assert.ErrorIs(t, err, os.ErrNotExist)
}
