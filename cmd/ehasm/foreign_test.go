//go:build linux && amd64

package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/profile/ondemand"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/internal/testing/unwindtest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMostlyHoles: the zeros of a hole cost who made it nothing, and are no reason to take memory.
func TestMostlyHoles(t *testing.T) {
	const huge = 40 << 30
	b := programOf("main")
	headers, number := binary.LittleEndian.Uint64(b[40:]), binary.LittleEndian.Uint16(b[62:])
	names := headers + 64*uint64(number)
	binary.LittleEndian.PutUint64(b[names+32:], huge) // the size of the names of sections, which all read
	goBuild(t)                                        // before HOME, and with it Go's caches, is another
	r := newRecorder(t)
	path := filepath.Join(r.root, "bin/prog")
	write(t, b, path)
	require.NoError(t, os.Truncate(path, 2*huge))
	for _, args := range [][]string{
		{"build", "-q", "-o", t.TempDir(), path}, {"build", "-q", "--cache", path}, {"check", path}, {"dump", path},
		{"info", path},
		{"synth", "-o", filepath.Join(t.TempDir(), "o"), path}, {"prove", path},
		{"convert", "-o", filepath.Join(t.TempDir(), "o"), path},
	} {
		got := shell(t, "ulimit -v 4000000", args...)
		assert.Equal(t, exitFailed, got.code, "%q: %s", args, got.stderr)
		assert.Contains(t, got.stderr, "a file that is mostly holes", "%q", args)
	}
	r.exec(1, "prog", "/bin/prog", nil)
	r.sample(1, inFunction, false)
	got := r.folded(t)
	assert.Equal(t, exitDone, got.code)
	assert.Contains(t, got.stderr, "a file that is mostly holes")
}

// TestCacheForeignObjects: who writes a program chooses its build-id, and may choose the build-id of
// another object. script makes nothing for the cache of what others have written, and
// replaces nothing there by it, but reads it as it does any.
func TestCacheForeignObjects(t *testing.T) {
	testtool.NeedRoot(t, "to give files away")
	const other = 65534
	cached := func(t *testing.T) (list []string) {
		for _, name := range files(t, os.Getenv("HOME")) {
			if strings.HasSuffix(name, abi.Suffix) {
				list = append(list, filepath.Join(os.Getenv("HOME"), name))
			}
		}
		return list
	}
	// forged has main's build-id, and other rows.
	forged := unwindtest.ELF{Off: 0x1000, VAddr: 0x401000, Size: 0x1000, BuildID: buildID("main"),
		Funcs: []unwindtest.Func{
			{Name: "_start", Addr: 0x401000, Size: 0x40, Kind: unwindtest.Outermost},
			{Name: "main", Addr: 0x401040, Size: 0x40, Kind: unwindtest.BelowRSP}}}
	for _, c := range []struct {
		name  string
		kept  bool // what comes of it
		place func(t *testing.T, root, program string)
	}{
		{"the user's", true, func(*testing.T, string, string) {}},
		{"another's", false, func(t *testing.T, root, program string) {
			require.NoError(t, os.Chown(program, other, other))
		}},
		{"in another's folder", false, func(t *testing.T, root, program string) {
			require.NoError(t, os.Chown(filepath.Dir(program), other, other))
		}},
		{"others may write it", false, func(t *testing.T, root,
			program string) {
			require.NoError(t, os.Chmod(program, 0o777))
		}},
		{"kept by perf", false, func(t *testing.T, root, program string) {
			to := filepath.Join(os.Getenv("HOME"), ".debug", byID("main"), "elf")
			require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
			require.NoError(t, os.Rename(program, to))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			goBuild(t)
			r := newRecorder(t)
			t.Setenv("XDG_CACHE_HOME", "")
			program, in := filepath.Join(r.root, "bin/prog"), filepath.Join(r.root, "perf.data")
			r.exec(1, "prog", "/bin/prog", buildID("main"))
			for range 1000 {
				r.sample(1, inFunction, false)
			}
			write(t, r.File(), in)
			script := func() {
				got := ehasm(t, "script", "-q", "--kallsyms=", "--format=folded", "--symfs", r.root, "-i", in)
				assert.Equal(t, result{exitDone, got.stdout, ""}, got)
				assert.Contains(t, got.stdout, "main 1000\n")
			}
			write(t, programOf("main"), program)
			c.place(t, r.root, program)
			script()
			list := cached(t)
			assert.Equal(t, c.kept, len(list) == 1, "%v", list)

			// There is a good one already.
			good := filepath.Join(t.TempDir(), "prog")
			write(t, programOf("main"), good)
			require.Equal(t, result{}, ehasm(t, "build", "-q", "--cache", "--synth=missing", good))
			list = cached(t)
			require.Len(t, list, 1)
			before, err := os.ReadFile(list[0])
			require.NoError(t, err)
			write(t, programOf("main"), program) // in the place of one that was moved
			write(t, forged.Bytes(), program)
			c.place(t, r.root, program)
			d := ondemand.New(ondemand.Options{Keep: true, Symfs: r.root})
			if c.name != "kept by perf" {
				f, err := os.Open(program)
				require.NoError(t, err)
				defer f.Close()
				st, err := f.Stat()
				require.NoError(t, err)
				_, err = d.EhElf(t.Context(), "/bin/prog", f, st.Size())
				require.NoError(t, err)
				assert.Equal(t, c.kept, d.Wants()[program] != nil, "replaced where it is not proven")
			}
			if !c.kept {
				script()
				after, err := os.ReadFile(list[0])
				require.NoError(t, err)
				assert.Equal(t, before, after)
			}
		})
	}
}
