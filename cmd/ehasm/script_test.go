//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/perfdata/perfdatatest"
	"github.com/ehasm/ehasm/unwind/unwindtest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// smallRecording writes a perf.data with one sample of two frames, and the
// folder with its object.
func smallRecording(t *testing.T) (perf, symfs string) {
	t.Helper()
	return recordingOf(t, 1)
}

// manySamples are so many that the object of a small recording is worth compiling.
const manySamples = 100

// recordingOf is smallRecording with that sample several times.
func recordingOf(t *testing.T, samples int) (perf, symfs string) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	object := unwindtest.ELF{Off: 0x1000, VAddr: 0x401000, Size: 0x1000, BuildID: []byte("a small object"), Funcs: []unwindtest.Func{
		{Name: "_start", Addr: 0x401000, Size: 0x40, Kind: unwindtest.Outermost}, {Name: "main", Addr: 0x401040, Size: 0x40}}}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prog"), object.Bytes(), 0o666))
	b := perfdatatest.Builder{Attrs: []perfdatatest.Attr{{Name: "cycles", RegsUser: 0x180, StackUser: 16,
		SampleType: 1<<0 | 1<<1 | 1<<2 | 1<<5 | 1<<8 | 1<<12 | 1<<13}}}
	id := perfdatatest.ID{PID: 7, TID: 7, Time: 1}
	b.Comm(id, "prog", true)
	b.Mmap2(id, 0x401000, 0x1000, 0x1000, "/prog")
	for range samples {
		b.Add(perfdatatest.Record(9, 2, uint64(0x401050), int32(7), int32(7), uint64(2000), uint64(5), uint64(0),
			uint64(2), uint64(0x7000), uint64(0x401050), uint64(16), uint64(0), uint64(0x401008), uint64(16)))
	}
	perf = filepath.Join(dir, "perf.data")
	require.NoError(t, os.WriteFile(perf, b.File(), 0o666))
	return perf, dir
}

func TestScriptVerb(t *testing.T) {
	cached := func() []string {
		paths, err := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "ehasm/.build-id/61/*.eh_elf.so"))
		require.NoError(t, err)
		return paths
	}
	const sample = "prog     7     0.000002:          5 cycles: \n\t            1050 main+0x10 (/prog)\n\t            1007 _start+0x7 (/prog)\n\n"
	perf, symfs := smallRecording(t)
	r := ehasm(t, "script", "-i", perf, "--symfs", symfs)
	assert.Equal(t, exitDone, r.code, r.stderr)
	assert.Equal(t, sample, r.stdout)
	assert.Contains(t, r.stderr, "1 samples, 2 user and 0 kernel frames; 1 stacks unwound\n  outermost frame")
	assert.Empty(t, cached(), "one sample is not worth an eh_elf")

	perf, symfs = recordingOf(t, manySamples)
	want := strings.Repeat(sample, manySamples)
	for _, keep := range []bool{false, true} {
		assert.Empty(t, cached())
		r = ehasm(t, "script", "-i", perf, "--symfs", symfs, fmt.Sprintf("--cache=%v", keep))
		assert.Equal(t, exitDone, r.code, r.stderr)
		assert.Equal(t, want, r.stdout)
		assert.Contains(t, r.stderr, "100 samples, 200 user and 0 kernel frames; 100 stacks unwound\n  outermost frame")
	}
	kept := cached()
	require.Len(t, kept, 1)
	r = ehasm(t, "script", "-q", "-i", perf, "--symfs", symfs)
	assert.Equal(t, result{stdout: want}, r)
	built := ehasm(t, "build", "--cache", "--no-verify", "--force", filepath.Join(symfs, "prog"))
	require.Equal(t, exitDone, built.code, built.stderr)
	proven := func() bool {
		b, err := os.ReadFile(kept[0])
		require.NoError(t, err)
		return bytes.Contains(b, []byte(keyVerified+"=true"))
	}
	assert.False(t, proven())
	ehasm(t, "script", "-q", "-i", perf, "--symfs", symfs, "--cache=false")
	assert.False(t, proven(), "used as it is")
	ehasm(t, "script", "-q", "-i", perf, "--symfs", symfs)
	assert.Equal(t, canVerify(), proven(), "made again, as build --cache would")

	cache := os.Getenv("XDG_CACHE_HOME")
	t.Setenv("XDG_CACHE_HOME", "/proc/none")
	r = ehasm(t, "script", "-i", perf, "--symfs", symfs)
	assert.Equal(t, exitDone, r.code)
	assert.Equal(t, want, r.stdout)
	assert.Equal(t, 1, strings.Count(r.stderr, "no eh_elf is kept"), r.stderr)
	t.Setenv("XDG_CACHE_HOME", cache)

	require.NoError(t, os.WriteFile(kept[0], []byte("damaged"), 0o666))

	out, stats := filepath.Join(symfs, "out"), filepath.Join(symfs, "stats")
	r = ehasm(t, "script", "-q", "-i", perf, "--symfs", symfs, "--format=folded", "-o", out, "--stats", stats)
	assert.Equal(t, result{}, r)
	b, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Equal(t, "prog;_start;main 100\n", string(b))
	b, err = os.ReadFile(stats)
	require.NoError(t, err)
	assert.Contains(t, string(b), `"user_frames": 200`)

	device := filepath.Join(symfs, "device")
	require.NoError(t, os.Symlink(os.DevNull, device))
	assert.Equal(t, result{}, ehasm(t, "script", "-q", "-i", perf, "--symfs", symfs, "-o", device))
	target, err := os.Readlink(device)
	assert.NoError(t, err, "a device is written to, not replaced")
	assert.Equal(t, os.DevNull, target)
}

// TestScriptProgress wants a bar on a terminal where nothing else is written.
func TestScriptProgress(t *testing.T) {
	prog := goBuild(t) // before Go's cache is out of sight
	perf, symfs := smallRecording(t)
	for _, c := range []struct {
		bar    bool
		stdout bool // to a file
		args   []string
	}{
		{true, true, nil},
		{true, false, []string{"-o", filepath.Join(symfs, "out")}},
		{false, false, nil},
		{false, true, []string{"-q"}},
	} {
		cmd := exec.Command(prog, append([]string{"script", "-i", perf, "--symfs", symfs}, c.args...)...)
		var out bytes.Buffer
		if c.stdout {
			cmd.Stdout = &out
		}
		screen := onTerminal(t, cmd)
		assert.Zero(t, cmd.ProcessState.ExitCode())
		assert.Equal(t, c.bar, strings.Contains(screen, "reading, "), "%q", screen)
		assert.NotContains(t, out.String(), "reading")
		if c.bar {
			assert.Regexp(t, `/744 B\)`, screen, "the file's size")
			assert.Regexp(t, `\r1 samples, 2 user and 0 kernel frames`, screen, "where the bar was")
		}
	}
	cmd := exec.Command(prog, "script", "-i", perf, "--symfs", symfs)
	text, err := cmd.CombinedOutput()
	require.NoError(t, err)
	assert.NotContains(t, string(text), "reading", "no terminal")
}

func TestScriptMistakes(t *testing.T) {
	perf, _ := smallRecording(t)
	for _, args := range [][]string{{"x"}, {"--format=xml"}, {"-j0"}, {"--max-stack=0"}, {"--frame-pointers=yes"}, {"--time=5"}} {
		assert.Equal(t, exitUsage, ehasm(t, append([]string{"script"}, args...)...).code, args)
	}
	r := ehasm(t, "script", "-i", filepath.Join(t.TempDir(), "absent"))
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stderr, "absent: open: no such file")
	b, err := os.ReadFile(perf)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(perf, b[:150], 0o666))
	r = ehasm(t, "script", "-i", perf)
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stderr, "truncated")
}
