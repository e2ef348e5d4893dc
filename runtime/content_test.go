//go:build unix

package runtime_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// stale compiles testdata/stale.c without a build-id, frames of room bytes, into dir.
func stale(t *testing.T, k *kit, dir string, room int, args ...string) string {
	t.Helper()
	path := filepath.Join(dir, "stale")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	command := k.gcc("stale", append([]string{"testdata/stale.c", "-Wl,--build-id=none",
		fmt.Sprintf("-DROOM=%d", room)}, args...)...)
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Rename(k.path("stale"), path))
	const size = 4 << 20 // what lies behind is never read
	require.NoError(t, os.Truncate(path, size))
	return path
}

func buildFor(t *testing.T, k *kit, dir string, args ...string) string {
	t.Helper()
	out, err := exec.Command(k.path("ehasm"), append([]string{"build", "-q", "-o", dir}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// TestStale: the eh_elf of a program without build-id is not taken for one that was
// compiled again and has the same size.
func TestStale(t *testing.T) {
	k := makeKit(t)
	for name, compile := range map[string]struct{ gcc, build []string }{
		"eh_frame": {},
		"debug_frame": {[]string{"-fno-asynchronous-unwind-tables", "-fno-exceptions", "-g1",
			"-Wl,--no-eh-frame-hdr"}, []string{"--source=debug_frame"}},
		"packed":  {nil, []string{"--dispatch=packed"}},
		"static":  {[]string{"-static"}, nil},
		"not pie": {[]string{"-no-pie"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			args := append([]string{k.path("libehunwind.a"), "-pthread"}, compile.gcc...)
			before, after := stale(t, k, filepath.Join(dir, "a"), 200, args...), stale(t, k, filepath.Join(dir, "b"),
				232, args...)
			size := func(path string) int64 {
				st, err := os.Stat(path)
				require.NoError(t, err)
				return st.Size()
			}
			require.Equal(t, size(before), size(after), "the case that this is about")
			eh := buildFor(t, k, filepath.Join(dir, "eh"), append(compile.build, before)...)
			made := read(t, filepath.Join(eh, "stale.eh_elf.so"))

			with := k.mustRun(t, eh, nil, before)
			assert.Contains(t, with, " eh_elfs=1\n", "the program it was made for")
			assert.Contains(t, k.mustRun(t, eh, nil, after), " eh_elfs=0\n", "the one that has its place")
			anew := buildFor(t, k, filepath.Join(dir, "anew"), append(compile.build, after)...)
			assert.Contains(t, k.mustRun(t, anew, nil, after), " eh_elfs=1\n")

			// The Go side judges by the file as the C side does by memory.
			o, err := ehelf.FromBytes(made)
			require.NoError(t, err)
			defer o.Close()
			assert.NoError(t, o.CheckObject(bytes.NewReader(read(t, before))))
			assert.ErrorIs(t, o.CheckObject(bytes.NewReader(read(t, after))), ehelf.ErrMismatch)

			// Without the content, as older versions wrote it.
			require.NoError(t, os.WriteFile(filepath.Join(eh, "stale.eh_elf.so"), withoutContent(t, made), 0o644))
			assert.Contains(t, k.mustRun(t, eh, nil, before), " eh_elfs=0\n")
		})
	}
}

// withoutContent ends the parts of an identity note before the first.
func withoutContent(t *testing.T, eh []byte) []byte {
	t.Helper()
	const name, part = 8, 24
	b := bytes.Clone(eh)
	i := bytes.Index(b, []byte("ehasm\x00\x00\x00\x01\x00\x00\x00"))
	require.Positive(t, i)
	end := len(abi.Note{}.Bytes()) // of a note without a build-id and without a part
	require.Greater(t, int(b[i-8]), end)
	clear(b[i+name+end-part:][:part])
	return b
}

// TestContentHash compares the C side's XXH64 with another's.
func TestContentHash(t *testing.T) {
	k := makeKit(t)
	path := stale(t, k, t.TempDir(), 200, "-DHASHES", k.path("libehunwind.a"), "-pthread")
	lines := strings.Fields(k.mustRun(t, "", nil, path))
	var data []byte
	for n := range 100 {
		assert.Equal(t, fmt.Sprintf("%x", xxhash.Sum64(data)), lines[n], "%d bytes", n)
		data = append(data, byte(n))
	}
}

// TestContentRange: what tells an object is its .eh_frame where its rows come from there.
func TestContentRange(t *testing.T) {
	k := makeKit(t)
	dir := t.TempDir()
	path := stale(t, k, dir, 200, k.path("libehunwind.a"), "-pthread")
	eh := buildFor(t, k, filepath.Join(dir, "eh"), path)
	o, err := ehelf.OpenUnchecked(filepath.Join(eh, "stale.eh_elf.so"))
	require.NoError(t, err)
	defer o.Close()
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	s := f.Section(".eh_frame")
	data, err := s.Data()
	require.NoError(t, err)
	assert.Equal(t, abi.Content{{Low: s.Addr, Size: s.Size, Hash: xxhash.Sum64(data)}}, o.Note().Content)
}

// TestStalePads: an eh_elf of a program without build-id is not taken for one whose tables differ in a landing pad
// alone, neither named nor from the cache, where both have the same name.
func TestStalePads(t *testing.T) {
	k := makePreload(t)
	testtool.Need(t, "g++")
	dir := t.TempDir()
	env := []string{"XDG_CACHE_HOME=" + filepath.Join(dir, "cache"), "EHASM_STATS=1"}
	preloaded := append([]string{"LD_PRELOAD=" + k.path("libgcc/libgcc_s.so.1")}, env...)
	program := func(pad string) string {
		return compileTo(t, filepath.Join(dir, pad, "pads"), "g++ -O1 -Wl,--build-id=none -DPAD="+pad+" eh/testdata/pads.cc")
	}
	first, second := program("first"), program("second")
	tables := func(path string) (tables []byte) {
		f, err := elf.Open(path)
		require.NoError(t, err)
		defer f.Close()
		for _, name := range []string{".eh_frame", ".eh_frame_hdr"} {
			b, err := f.Section(name).Data()
			require.NoError(t, err)
			tables = append(tables, b...)
		}
		return tables
	}
	require.Equal(t, tables(first), tables(second), "the case that this is about")

	eh := buildFor(t, k, filepath.Join(dir, "eh"), "--deps", first)
	const taken, handed = "on, 1 throws taken over, 0 handed over", "on, 0 throws taken over, 1 handed over"
	out := k.mustRun(t, eh, preloaded, first)
	assert.Contains(t, out, "first\ncaught 1\n")
	assert.Contains(t, out, taken)
	out = k.mustRun(t, eh, preloaded, second)
	assert.Contains(t, out, "second\ncaught 1\n")
	assert.Contains(t, out, handed)

	for _, path := range []string{first, second, first} {
		out, figures := ehasmPreload(t, k, env, path)
		assert.Equal(t, filepath.Base(filepath.Dir(path))+"\ncaught 1\n", out)
		assert.Contains(t, figures, taken)
	}
	out = k.mustRun(t, "", preloaded, second) // the cache has the other's
	assert.Contains(t, out, "second\ncaught 1\n")
	assert.Contains(t, out, handed)

	// Another program in the place of one that the cache has.
	require.NoError(t, os.Rename(second, first))
	out = k.mustRun(t, "", preloaded, first)
	assert.Contains(t, out, "second\ncaught 1\n")
	assert.Contains(t, out, handed)
}
