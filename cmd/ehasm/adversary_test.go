//go:build adversary && linux && amd64

// What an adversary might hand to the command, in numbers: make adversary. The figures of a run are
// in docs/validation/security.md.
package main

import (
	"bytes"
	"context"
	"debug/elf"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/inspect"
)

var (
	adversaryInputs = flag.Int("inputs", 1000, "mutated inputs for each target")
	adversaryFrom   = flag.Int("from", 0, "the first of them")
	adversarySeed   = flag.Uint64("seed", 1, "of the random numbers")
)

const (
	adversaryTime   = 60 * time.Second // for one input, on a busy machine
	adversaryMemory = 1 << 30          // bytes resident, whatever the input claims
	adversaryBinary = 50               // one of this number goes through the program, too
)

// adversary runs one target over mutated inputs.
type adversary struct {
	t      *testing.T
	target string
	dir    string // of the input that is at work: there after a crash
	began  atomic.Int64
	failed int
	codes  map[int]int
	slow   time.Duration
	binary int
}

func newAdversary(t *testing.T, target string) *adversary {
	t.Helper()
	base := "/dev/shm"
	if st, err := os.Stat(base); err != nil || !st.IsDir() {
		base = ""
	}
	dir, err := os.MkdirTemp(base, "ehasm-adversary-"+target+"-")
	require.NoError(t, err)
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	t.Setenv("DEBUGINFOD_URLS", "")
	a := &adversary{t: t, target: target, dir: dir, codes: map[int]int{}}
	go a.watch()
	return a
}

// watch ends the process where an input takes too much time or memory.
func (a *adversary) watch() {
	for {
		time.Sleep(50 * time.Millisecond)
		began := a.began.Load()
		if began < 0 {
			return
		}
		if began > 0 && time.Since(time.Unix(0, began)) > adversaryTime {
			a.die("takes more than %v", adversaryTime)
		}
		if rss := residentBytes(); rss > adversaryMemory {
			a.die("%d MB resident", rss>>20)
		}
	}
}

func (a *adversary) die(format string, args ...any) {
	buf := make([]byte, 1<<20)
	fmt.Fprintf(os.Stderr, "adversary: %s: %s: the input is in %s\n%s\n", a.target, fmt.Sprintf(format, args...),
		a.dir, buf[:runtime.Stack(buf, true)])
	os.Exit(3)
}

func residentBytes() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var total, resident int64
	fmt.Sscan(string(b), &total, &resident)
	return resident * int64(os.Getpagesize())
}

// keep saves what an input is made of and says what is wrong with it.
func (a *adversary) keep(i int, format string, args ...any) {
	a.failed++
	kept := filepath.Join(os.TempDir(), fmt.Sprintf("ehasm-adversary-%s-%d", a.target, i))
	os.CopyFS(kept, os.DirFS(a.dir))
	a.t.Errorf("%s: input %d, kept in %s: %s", a.target, i, kept, fmt.Sprintf(format, args...))
	if a.failed >= 20 {
		a.t.FailNow()
	}
}

// each makes the inputs and has do handle them. do returns the exit status, or -1.
func (a *adversary) each(seeds []seed, do func(i int, b []byte) int) {
	begin := time.Now()
	for i := *adversaryFrom; i < *adversaryFrom+*adversaryInputs; i++ {
		r := rand.New(rand.NewPCG(*adversarySeed, uint64(i)))
		s, other := &seeds[r.IntN(len(seeds))], &seeds[r.IntN(len(seeds))]
		b := s.mutate(r, other)
		start := time.Now()
		a.began.Store(start.UnixNano())
		func() {
			defer func() {
				if p := recover(); p != nil {
					buf := make([]byte, 4096)
					a.keep(i, "seed %s: panic: %v\n%s", s.name, p, buf[:runtime.Stack(buf, false)])
				}
			}()
			a.codes[do(i, b)]++
		}()
		a.slow = max(a.slow, time.Since(start))
	}
	a.began.Store(-1)
	a.t.Logf("%s: %d inputs, by exit status %v, %d through the program, %d failed, the slowest took %.2f s, %d MB resident at the end, %.0f s", a.target,
		*adversaryInputs, a.codes, a.binary, a.failed, a.slow.Seconds(), residentBytes()>>20,
		time.Since(begin).Seconds())
	if a.failed == 0 {
		os.RemoveAll(a.dir)
	}
}

// command runs the command in this process, and now and then as a program, and looks at
// what becomes of it.
func (a *adversary) command(i int, args ...string) result {
	var stdout, stderr bytes.Buffer
	got := result{code: run(context.Background(), args, &stdout, &stderr)}
	got.stdout, got.stderr = stdout.String(), stderr.String()
	a.check(i, "", got)
	if i%adversaryBinary == 0 {
		a.binary++
		ctx, cancel := context.WithTimeout(context.Background(), adversaryTime)
		defer cancel()
		cmd := exec.CommandContext(ctx, built.path, args...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Run()
		a.check(i, "as a program: ", result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()})
	}
	return got
}

func (a *adversary) check(i int, how string, got result) {
	switch {
	case got.code != exitDone && got.code != exitFailed:
		a.keep(i, "%sexit status %d: %s", how, got.code, got.stderr)
	case strings.Contains(got.stderr, "internal error"), strings.Contains(got.stderr,
		"panic"), strings.Contains(got.stderr, "goroutine "):
		a.keep(i, "%s%s", how, got.stderr)
	case got.code != exitDone && got.stderr == "" && got.stdout == "": // check prints what it finds
		a.keep(i, "%sfails without a word", how)
	case strings.ContainsFunc(got.stderr, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f }):
		a.keep(i, "%scontrol characters in %q", how, got.stderr)
	case len(got.stderr) > 1<<20:
		a.keep(i, "%s%d bytes of messages", how, len(got.stderr))
	}
}

func TestAdversaryBuild(t *testing.T) {
	goBuild(t)
	seeds := objects(t)
	a := newAdversary(t, "build")
	in := filepath.Join(a.dir, "in")
	out := filepath.Join(a.dir, "out")
	flags := [][]string{nil, {"--dispatch=packed"}, {"--source=debug_frame"}, {"--strict"}, {"--relro", "--no-deref"}}
	a.each(seeds, func(i int, b []byte) int {
		require.NoError(t, os.WriteFile(in, b, 0o644))
		os.RemoveAll(out)
		args := append([]string{"build", "-q", "-o", out}, flags[i%len(flags)]...)
		got := a.command(i, append(args, in)...)
		made, err := os.ReadDir(out)
		if err != nil {
			a.keep(i, "%v", err)
		}
		for _, e := range made {
			path := filepath.Join(out, e.Name())
			if !strings.HasSuffix(e.Name(), ".eh_elf.so") {
				a.keep(i, "%s is left behind", e.Name())
			} else if o, err := ehelf.OpenUnchecked(path); err != nil {
				a.keep(i, "%v", err)
			} else {
				o.Close()
			}
		}
		if got.code == exitDone && len(made) == 0 {
			a.keep(i, "done, and nothing is made")
		}
		return got.code
	})
}

func TestAdversaryDump(t *testing.T) {
	goBuild(t)
	seeds := objects(t)
	a := newAdversary(t, "dump")
	in := filepath.Join(a.dir, "in")
	a.each(seeds, func(i int, b []byte) int {
		require.NoError(t, os.WriteFile(in, b, 0o644))
		args := []string{"dump", "--stage=" + inspect.Stages()[i%len(inspect.Stages())], in}
		if i/len(inspect.Stages())%2 == 1 {
			args = append(args, "--json")
		}
		return a.command(i, args...).code
	})
}

func TestAdversaryInfo(t *testing.T) {
	goBuild(t)
	seeds := ehElfs(t)
	a := newAdversary(t, "info")
	in := filepath.Join(a.dir, "in")
	a.each(seeds, func(i int, b []byte) int {
		require.NoError(t, os.WriteFile(in, b, 0o644))
		args := []string{"info", in}
		if i%2 == 1 {
			args = append(args, "--json")
		}
		return a.command(i, args...).code
	})
}

// TestAdversaryLoad maps what the Go loader accepts; the code, which is the adversary's then, is
// not run.
func TestAdversaryLoad(t *testing.T) {
	seeds := ehElfs(t)
	a := newAdversary(t, "load")
	a.each(seeds, func(i int, b []byte) int {
		require.NoError(t, os.WriteFile(filepath.Join(a.dir, "in"), b, 0o644))
		o, err := ehelf.FromBytes(b)
		if err != nil {
			return exitFailed
		}
		o.Note()
		o.BuildID()
		if err := o.Close(); err != nil {
			a.keep(i, "%v", err)
		}
		return exitDone
	})
}

func TestAdversaryRecording(t *testing.T) {
	goBuild(t)
	root, seeds := recordings(t)
	a := newAdversary(t, "recording")
	in := filepath.Join(a.dir, "in")
	a.each(seeds, func(i int, b []byte) int {
		require.NoError(t, os.WriteFile(in, b, 0o644))
		return a.command(i, "script", "--cache=false", "--kallsyms=", "--symfs", root, "--format",
			adversaryFormats[i%len(adversaryFormats)], "-i", in, "-o", "/dev/null").code
	})
}

func TestAdversaryKallsyms(t *testing.T) {
	goBuild(t)
	root, recs := recordings(t)
	var k strings.Builder
	for i := range 200 {
		fmt.Fprintf(&k, "%016x %c sym%d", 0xffffffff81000000+uint64(i)*8, "tTdDbBaAwW"[i%10], i)
		if i%3 == 0 {
			fmt.Fprintf(&k, "\t[mod%d]", i)
		}
		k.WriteString("\n")
	}
	a := newAdversary(t, "kallsyms")
	rec, in := filepath.Join(a.dir, "rec"), filepath.Join(a.dir, "in")
	require.NoError(t, os.WriteFile(rec, recs[0].bytes, 0o644))
	seeds := []seed{textSeed("kallsyms", k.String()), textSeed("short",
		"ffffffff81000000 T _text\nffffffff81000010 T x\n"),
		textSeed("zero", strings.Repeat("0000000000000000 t a\n", 20))}
	a.each(seeds, func(i int, b []byte) int {
		require.NoError(t, os.WriteFile(in, b, 0o644))
		return a.command(i, "script", "--cache=false", "--kallsyms", in, "--symfs", root, "--format",
			adversaryFormats[i%len(adversaryFormats)], "-i", rec, "-o", "/dev/null").code
	})
}

func TestAdversaryPerfMap(t *testing.T) {
	goBuild(t)
	root, recs := recordings(t)
	a := newAdversary(t, "perfmap")
	rec := filepath.Join(a.dir, "rec")
	require.NoError(t, os.WriteFile(rec, recs[0].bytes, 0o644))
	in := filepath.Join(root, "tmp", "perf-1.map")
	require.NoError(t, os.MkdirAll(filepath.Dir(in), 0o755))
	var m strings.Builder
	for i := range 100 {
		fmt.Fprintf(&m, "%x %x LazyCompile:~f%d /a b/c.js:%d\n", 0x30000+i*16, 16, i, i)
	}
	seeds := []seed{textSeed("map", m.String()), textSeed("short", "30000 100 f\n0x30008 0x10 g\n")}
	a.each(seeds, func(i int, b []byte) int {
		require.NoError(t, os.WriteFile(in, b, 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(a.dir, "in"), b, 0o644))
		return a.command(i, "script", "--cache=false", "--kallsyms=", "--symfs", root, "--format",
			adversaryFormats[i%len(adversaryFormats)], "-i", rec, "-o", "/dev/null").code
	})
}

// TestAdversaryDWARF has damaged objects with debug information after the samples.
func TestAdversaryDWARF(t *testing.T) {
	goBuild(t)
	r := newRecorder(t)
	var seeds []seed
	for _, s := range objects(t) {
		if strings.Contains(s.name, "-g") && !strings.Contains(s.name, "-c") && !strings.Contains(s.name, "strip") {
			seeds = append(seeds, s)
		}
	}
	require.GreaterOrEqual(t, len(seeds), 3)
	f, err := elf.NewFile(bytes.NewReader(seeds[0].bytes))
	require.NoError(t, err)
	const base = 0x7f0000000000
	r.Comm(r.id(1), "prog", true)
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			r.Mmap2(r.id(1), base+p.Vaddr&^0xfff, (p.Memsz+0xffff)&^0xfff, p.Off&^0xfff, "/lib/in.so")
			for addr := p.Vaddr; addr < p.Vaddr+p.Filesz; addr += max(8, p.Filesz/40) {
				r.sample(1, base+addr, true)
			}
		}
	}
	a := newAdversary(t, "dwarf")
	rec := filepath.Join(a.dir, "rec")
	require.NoError(t, os.WriteFile(rec, r.File(), 0o644))
	in := filepath.Join(r.root, "lib", "in.so")
	require.NoError(t, os.MkdirAll(filepath.Dir(in), 0o755))
	a.each(seeds, func(i int, b []byte) int {
		require.NoError(t, os.WriteFile(in, b, 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(a.dir, "in"), b, 0o644))
		format := adversaryFormats[i%len(adversaryFormats)]
		args := []string{"script", "--cache=false", "--kallsyms=", "--inline", "--symfs", r.root, "--format", format,
			"-i", rec, "-o", "/dev/null"}
		if format != "folded" && format != "svg" {
			args = append(args, "--lines")
		}
		return a.command(i, args...).code
	})
}
