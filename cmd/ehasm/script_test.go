//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/internal/testing/perfdatatest"
	"github.com/ehasm/ehasm/internal/testing/unwindtest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// smallRecording writes a perf.data with one sample of two frames, and the
// folder with its object.
func smallRecording(t *testing.T) (perf, symfs string) {
	t.Helper()
	return recordingOf(t, 1)
}

// manySamples is enough that the object of a small recording is worth compiling.
const manySamples = 100

// recordingOf is smallRecording with that sample several times.
func recordingOf(t *testing.T, samples int) (perf, symfs string) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	object := unwindtest.ELF{Off: 0x1000, VAddr: 0x401000, Size: 0x1000, BuildID: []byte("a small object"),
		Funcs: []unwindtest.Func{
			{Name: "_start", Addr: 0x401000, Size: 0x40, Kind: unwindtest.Outermost},
			{Name: "main", Addr: 0x401040, Size: 0x40}}}
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
	assert.Contains(t, r.stderr, "1 samples, 2 user and 0 kernel frames; 1 stacks unwound\n  complete")
	assert.Empty(t, cached(), "one sample is not worth an eh_elf")

	perf, symfs = recordingOf(t, manySamples)
	want := strings.Repeat(sample, manySamples)
	for _, keep := range []bool{false, true} {
		assert.Empty(t, cached())
		r = ehasm(t, "script", "-i", perf, "--symfs", symfs, fmt.Sprintf("--cache=%v", keep))
		assert.Equal(t, exitDone, r.code, r.stderr)
		assert.Equal(t, want, r.stdout)
		assert.Contains(t, r.stderr, "100 samples, 200 user and 0 kernel frames; 100 stacks unwound\n  complete")
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
		return bytes.Contains(b, []byte(compile.KeyVerified+"=true"))
	}
	assert.False(t, proven())
	ehasm(t, "script", "-q", "-i", perf, "--symfs", symfs, "--cache=false")
	assert.False(t, proven(), "used as it is")
	ehasm(t, "script", "-q", "-i", perf, "--symfs", symfs)
	assert.True(t, proven(), "made again, as build --cache would")

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
	recording, err := os.ReadFile(perf)
	require.NoError(t, err)
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
			assert.Contains(t, screen, fmt.Sprintf("/%d B)", len(recording)), "the file's size")
			assert.Regexp(t, `\r(ehasm: \S+: written\r?\n)?1 samples, 2 user and 0 kernel frames`, screen, "where the bar was")
		}
	}
	cmd := exec.Command(prog, "script", "-i", perf, "--symfs", symfs)
	text, err := cmd.CombinedOutput()
	require.NoError(t, err)
	assert.NotContains(t, string(text), "reading", "no terminal")
}

// TestScriptFormats has the format that the output's name says, and none of the flags that
// it does not know.
func TestScriptFormats(t *testing.T) {
	perf, symfs := smallRecording(t)
	for name, begin := range map[string]string{"a.svg": "<?xml", "a.folded": "prog;_start;main 1\n",
		"a.json":  `{"comm":"prog"`,
		"a.pb.gz": "\x1f\x8b", "a.perf.txt": "prog     7     0.000002:", "a.txt": "prog     7     0.000002:",
		"a.json.gz": "\x1f\x8b", "a.perf.data": "PERFILE2", "a.v2.svg": "<?xml"} {
		out := filepath.Join(symfs, name)
		assert.Equal(t, result{}, ehasm(t, "script", "-q", "-i", perf, "--symfs", symfs, "-o", out))
		b, err := os.ReadFile(out)
		require.NoError(t, err)
		assert.True(t, bytes.HasPrefix(b, []byte(begin)), "%s: %.40q", name, b)
	}
	out := filepath.Join(symfs, "b.svg")
	assert.Equal(t, result{}, ehasm(t, "script", "-q", "-i", perf, "--symfs", symfs, "-o", out, "--format=folded"))
	b, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Equal(t, "prog;_start;main 1\n", string(b), "--format goes before the name")

	for flags, want := range map[string]string{
		"--format=svg --lines":          "--lines has no effect in the format svg",
		"--format=folded --lines":       "--lines has no effect in the format folded",
		"-o x.pb.gz --full-source-path": "--full-source-path has no effect in the format pprof",
		"--full-source-path":            "--full-source-path has no effect without --lines",
		"--title=x":                     "--title has no effect in the format perf",
		"--format=json --width=800":     "--width has no effect in the format json",
		"-o x.folded --inverted":        "--inverted has no effect in the format folded",
		"-o x.folded --reversed":        "--reversed has no effect in the format folded",
		"--format=pprof --before=old":   "--before has no effect in the format pprof",
		"--max-size=5":                  "--max-size has no effect in the format perf",
		"--format=svg --max-size=0":     "--max-size 0: want 1 to 1024",
		"--format=svg --width=-1":       "--width -1: want at least 300",
		"--format=svg --before=-":       "--before -: want a file",
	} {
		r := ehasm(t, append([]string{"script", "-i", perf}, strings.Fields(flags)...)...)
		assert.Equal(t, exitUsage, r.code, flags)
		assert.Contains(t, r.stderr, want)
		assert.Empty(t, r.stdout)
	}

	svg := func(flags ...string) string {
		r := ehasm(t, append([]string{"script", "-q", "-i", perf, "--symfs", symfs, "--format=svg"}, flags...)...)
		assert.Equal(t, exitDone, r.code, r.stderr)
		return r.stdout
	}
	assert.Contains(t, svg("--title=a <title>", "--width=777"), `<svg xmlns="http://www.w3.org/2000/svg" width="777"`)
	assert.Contains(t, svg("--title=a <title>"), "<title>a &lt;title&gt;</title>")
	order := func(text string) string {
		var names []string
		for _, m := range regexp.MustCompile(`<g><title>(\S+)\s`).FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		return strings.Join(names, " ")
	}
	assert.Equal(t, "all prog _start main", order(svg()))
	assert.Equal(t, "all main _start prog", order(svg("--reversed", "--inverted")))
	assert.Contains(t, svg("--before="+perf), "main (1 samples, 100.00 %, before 100.00 %)")
	r := ehasm(t, "script", "-q", "-i", perf, "--symfs", symfs, "--format=svg", "--before",
		filepath.Join(symfs, "absent"))
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stderr, "absent: open: no such file")
	for _, flag := range []string{"--symfs", "--kallsyms"} { // what is named must be there
		r := ehasm(t, "script", "-q", "-i", perf, flag, filepath.Join(t.TempDir(), "absent"))
		assert.Equal(t, exitFailed, r.code, flag)
		assert.Contains(t, r.stderr, "absent: stat: no such file")
		assert.Empty(t, r.stdout)
	}
}

// TestScriptGuide runs the commands of the guide.
func TestScriptGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/script.md")
	require.NoError(t, err)
	perf, dir := smallRecording(t)
	t.Setenv("DEBUGINFOD_URLS", "")
	t.Chdir(dir)
	b, err := os.ReadFile(perf)
	require.NoError(t, err)
	for _, name := range []string{"before.data", "after.data"} {
		require.NoError(t, os.WriteFile(name, b, 0o666))
	}
	n := 0
	for line := range strings.Lines(string(guide)) {
		command, ok := strings.CutPrefix(line, "    ehasm ")
		if !ok {
			continue
		}
		n++
		// A shell splits it: one has a title of several words.
		words, err := exec.Command("sh", "-c", `printf '%s\n' `+command).Output()
		require.NoError(t, err)
		args := strings.Split(strings.TrimSpace(string(words)), "\n")
		r := ehasm(t, append(args, "--symfs", ".")...)
		assert.Equal(t, exitDone, r.code, "%s%s", line, r.stderr)
		if i := slices.Index(args, "-o"); i >= 0 {
			assert.FileExists(t, args[i+1])
		} else {
			assert.NotEmpty(t, r.stdout)
		}
	}
	assert.GreaterOrEqual(t, n, 5)
}

// TestScriptTerminal wants no binary output there.
func TestScriptTerminal(t *testing.T) {
	prog := goBuild(t)
	perf, symfs := smallRecording(t)
	cmd := exec.Command(prog, "script", "-i", perf, "--symfs", symfs, "--format=pprof")
	screen := onTerminal(t, cmd)
	assert.Equal(t, exitUsage, cmd.ProcessState.ExitCode())
	assert.Contains(t, screen, "the format pprof is binary, and standard output is a terminal: give -o FILE")
	out, err := exec.Command(prog, "script", "-q", "-i", perf, "--symfs", symfs, "--format=pprof").Output()
	require.NoError(t, err)
	assert.True(t, bytes.HasPrefix(out, []byte("\x1f\x8b")))
}

// TestScriptEmpty wants to know why there is nothing.
func TestScriptEmpty(t *testing.T) {
	perf, symfs := smallRecording(t)
	for flags, want := range map[string]string{
		"--comm zzz,y":            "none of the 1 samples is chosen by --comm zzz,y (there are: prog)",
		"--pid 8 --tid 9":         "none of the 1 samples is chosen by --pid 8 (there are: 7), --tid 9 (there are: 7)",
		"--event cycle":           "none of the 1 samples is chosen by --event cycle (there are: cycles)",
		"--time 5,":               "none of the 1 samples is chosen by --time 5.000000000, (samples are of 0.000002000,0.000002000)",
		"--comm zzz --format=svg": "--comm zzz (there are: prog)",
	} {
		r := ehasm(t, append([]string{"script", "-q", "-i", perf, "--symfs", symfs}, strings.Fields(flags)...)...)
		assert.Equal(t, exitFailed, r.code, flags)
		assert.Contains(t, r.stderr, want)
	}
}

func TestScriptMistakes(t *testing.T) {
	perf, _ := smallRecording(t)
	for _, args := range [][]string{{"x", "y"}, {"--format=xml"}, {"-j0"}, {"--max-stack=0"}, {"--frame-pointers=yes"},
		{"--time=5"}} {
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
