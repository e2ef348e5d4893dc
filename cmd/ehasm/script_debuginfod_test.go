package main

import (
	"debug/elf"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/perfdatatest"
	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestScriptDebuginfod has a program without symbols, and one that is not there any more:
// Debian's server knows both by their build-id.
func TestScriptDebuginfod(t *testing.T) {
	testtool.Need(t, "gcc", "strip", "debuginfod")
	const buildID = "00112233445566778899aabbccddeeff00112233"
	server, symfs := t.TempDir(), t.TempDir()
	src, full := filepath.Join(server, "x.c"), filepath.Join(server, "full")
	require.NoError(t, os.WriteFile(src,
		[]byte("static int hidden(int x) { return x + 1; }\nint main(int n, char **v) { return hidden(n) + (v == 0); }\n"),
		0o666))
	for _, args := range [][]string{
		{"gcc", "-g", "-O0", "-fno-inline", "-Wl,--build-id=0x" + buildID, src, "-o", full},
		{"strip", "-o", filepath.Join(symfs, "prog"), full},
	} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	f, err := elf.Open(full)
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.Symbols()
	require.NoError(t, err)
	var pc uint64
	for _, s := range symbols {
		if s.Name == "hidden" {
			pc = s.Value
		}
	}
	require.NotZero(t, pc)
	id, err := hex.DecodeString(buildID)
	require.NoError(t, err)
	b := perfdatatest.Builder{BuildIDs: []perfdatatest.BuildID{{ID: id, Name: "/prog"}}, Attrs: []perfdatatest.Attr{
		{Name: "cycles", RegsUser: 0x180, StackUser: 16, SampleType: 1<<0 | 1<<1 | 1<<2 | 1<<5 | 1<<8 | 1<<12 | 1<<13}}}
	process := perfdatatest.ID{PID: 7, TID: 7, Time: 1}
	b.Comm(process, "prog", true)
	const base = 0x555500000000
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			b.Mmap2(process, base+p.Vaddr, 0x1000, p.Off, "/prog")
		}
	}
	b.Add(perfdatatest.Record(9, 2, base+pc, int32(7), int32(7), uint64(2000), uint64(5), uint64(0),
		uint64(2), uint64(0x7000), base+pc, uint64(16), uint64(0), uint64(0), uint64(16)))
	perf := filepath.Join(symfs, "perf.data")
	require.NoError(t, os.WriteFile(perf, b.File(), 0o666))
	script := func(flags ...string) result {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		r := ehasm(t, append([]string{"script", "-i", perf, "--symfs", symfs}, flags...)...)
		assert.Equal(t, exitDone, r.code, r.stderr)
		return r
	}

	t.Setenv("DEBUGINFOD_URLS", "")
	r := script()
	assert.Contains(t, r.stdout, fmt.Sprintf(" prog+%#x+0x0 (/prog)\n", pc))
	assert.Contains(t, r.stderr, "hint: /prog has no names for 100 % of its frames: install its debug symbols (on Debian the package with -dbgsym), "+
		"or set DEBUGINFOD_URLS to a server that knows build-id "+buildID)

	t.Setenv("DEBUGINFOD_URLS", testtool.Debuginfod(t, server))
	r = script()
	assert.Contains(t, r.stdout, " hidden+0x0 (/prog)\n")
	assert.Contains(t, r.stderr, "/buildid/"+buildID+"/debuginfo: downloading")
	assert.NotContains(t, r.stderr, "hint: /prog has no names")
	cached, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "debuginfod_client", buildID, "debuginfo"))
	require.NoError(t, err)
	assert.Len(t, cached, 1)
	r = script("--lines", "--full-source-path", "-q")
	assert.Contains(t, r.stdout, " hidden+0x0 (/prog)\n  "+src+":1\n")
	assert.Empty(t, r.stderr)

	require.NoError(t, os.Remove(filepath.Join(symfs, "prog")))
	r = script()
	assert.Contains(t, r.stdout, " hidden+0x0 (/prog)\n")
	assert.Contains(t, r.stderr, "/executable: downloading")

	t.Setenv("DEBUGINFOD_URLS", "http://127.0.0.1:1")
	r = script()
	assert.Contains(t, r.stdout, " [unknown] (/prog)\n")
	assert.Contains(t, r.stderr, "connection refused")
}
