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
	"github.com/ehasm/ehasm/perfdata/perfdatatest"
	"github.com/ehasm/ehasm/unwind/unwindtest"
)

var (
	adversaryInputs = flag.Int("inputs", 1000, "mutated inputs for each target")
	adversaryFrom   = flag.Int("from", 0, "the first of them")
	adversarySeed   = flag.Uint64("seed", 1, "of the random numbers")
)

const (
	adversaryTime   = 60 * time.Second // for one input, on a busy machine
	adversaryMemory = 1 << 30          // bytes resident, whatever the input claims
	adversaryBinary = 50               // each of so many goes through the program, too
)

// seed is a valid input, and the places in it that edits are to prefer.
type seed struct {
	name    string
	bytes   []byte
	regions [][2]int
}

// elfSeed has the headers and small sections of an ELF file as regions.
func elfSeed(t *testing.T, name string, b []byte) seed {
	t.Helper()
	s := seed{name: name, bytes: b}
	f, err := elf.NewFile(bytes.NewReader(b))
	require.NoError(t, err, name)
	add := func(off, size uint64) {
		if size > 0 && off+size <= uint64(len(b)) {
			s.regions = append(s.regions, [2]int{int(off), int(off + size)})
		}
	}
	add(0, 64)
	for i := range f.Progs {
		add(64+uint64(i)*56, 56)
	}
	shoff := uint64(0)
	for i := range 8 {
		shoff |= uint64(b[40+i]) << (8 * i)
	}
	for i, sec := range f.Sections {
		add(shoff+uint64(i)*64, 64)
		if sec.Type == elf.SHT_NOBITS {
			continue
		}
		switch {
		case strings.Contains(sec.Name, "_frame"), strings.HasPrefix(sec.Name, ".note"), strings.HasPrefix(sec.Name, ".gcc_except"),
			strings.HasPrefix(sec.Name, ".debug_"), sec.Name == ".dynamic", sec.Type == elf.SHT_SYMTAB, sec.Type == elf.SHT_DYNSYM, sec.Type == elf.SHT_RELA:
			add(sec.Offset, sec.FileSize)
			add(sec.Offset, min(sec.FileSize, 128))
		}
	}
	return s
}

// mutate changes a few places of a seed; equal numbers, equal inputs.
func (s *seed) mutate(r *rand.Rand, other *seed) []byte {
	b := bytes.Clone(s.bytes)
	interesting := []uint64{0, 1, 2, 3, 7, 8, 0x7f, 0x80, 0xff, 0x100, 0xfff, 0x1000, 0x7fff, 0x8000, 0xffff, 0x10000, 1<<24 - 1,
		1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<63 - 1, 1 << 63, ^uint64(0), ^uint64(0) - 7}
	place := func() int {
		if len(s.regions) > 0 && r.IntN(10) < 8 {
			at := s.regions[r.IntN(len(s.regions))]
			return at[0] + r.IntN(at[1]-at[0])
		}
		return r.IntN(len(s.bytes))
	}
	for range 1 + r.IntN(1<<r.IntN(5)) {
		if len(b) == 0 {
			break
		}
		at := min(place(), len(b)-1)
		n := min(1+r.IntN(1<<r.IntN(9)), len(b)-at)
		switch r.IntN(12) {
		case 0, 1:
			b[at] ^= 1 << r.IntN(8)
		case 2, 3:
			b[at] = byte(r.Uint32())
		case 4, 5, 6, 7:
			v, width := interesting[r.IntN(len(interesting))], 1<<r.IntN(4)
			if r.IntN(4) == 0 {
				v = uint64(len(b)) + v - 8
			}
			at &^= width - 1
			for i := range width {
				if at+i < len(b) {
					b[at+i] = byte(v >> (8 * i))
				}
			}
		case 8:
			copy(b[at:at+n], b[min(place(), len(b)-1):])
		case 9:
			copy(b[at:at+n], other.bytes[r.IntN(len(other.bytes)):])
		case 10:
			clear(b[at : at+n])
		case 11:
			switch r.IntN(4) {
			case 0:
				b = b[:at]
			case 1:
				b = append(b, make([]byte, n)...)
			case 2:
				b = append(b[:at], b[at+n:]...)
			case 3:
				b = append(b[:at], append(bytes.Clone(b[at:at+n]), b[at:]...)...)
			}
		}
	}
	return b
}

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
	fmt.Fprintf(os.Stderr, "adversary: %s: %s: the input is in %s\n%s\n", a.target, fmt.Sprintf(format, args...), a.dir, buf[:runtime.Stack(buf, true)])
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
		*adversaryInputs, a.codes, a.binary, a.failed, a.slow.Seconds(), residentBytes()>>20, time.Since(begin).Seconds())
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
	case strings.Contains(got.stderr, "internal error"), strings.Contains(got.stderr, "panic"), strings.Contains(got.stderr, "goroutine "):
		a.keep(i, "%s%s", how, got.stderr)
	case got.code != exitDone && got.stderr == "":
		a.keep(i, "%sfails without a word", how)
	case strings.ContainsFunc(got.stderr, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f }):
		a.keep(i, "%scontrol characters in %q", how, got.stderr)
	case len(got.stderr) > 1<<20:
		a.keep(i, "%s%d bytes of messages", how, len(got.stderr))
	}
}

// objects are small ELF files of many kinds.
func objects(t *testing.T) (all []seed) {
	t.Helper()
	add := func(name string, b []byte) { all = append(all, elfSeed(t, name, b)) }
	add("small", smallELF(t, 0))
	add("small with a build-id", withBuildID(t, smallELF(t, 1), []byte("01234567890123456789")))
	made := unwindtest.ELF{Off: 0x1000, VAddr: 0x401000, Size: 0x1000, BuildID: buildID("x"), Funcs: []unwindtest.Func{
		{Name: "_start", Addr: 0x401000, Size: 0x40, Kind: unwindtest.Outermost}, {Name: "f", Addr: 0x401040, Size: 0x40}}}
	add("made", made.Bytes())
	dir := t.TempDir()
	source := filepath.Join(dir, "s.cc")
	require.NoError(t, os.WriteFile(source, []byte(`
#include <stdexcept>
struct D { int *p; ~D() { ++*p; } };
template <class T> __attribute__((noinline)) T f(T n, int *p) { D d{p}; if (n > 3) throw std::runtime_error("x"); return n < 1 ? 0 : f(n - 1, p) + *p; }
static inline int g(int n) { int k = 0; try { return f(n, &k) + f((long)n, &k); } catch (std::exception &e) { return k + e.what()[0]; } }
extern "C" int h(int n) { char b[n & 0xfff]; b[0] = n; return g(n) + g(b[0]); }
`), 0o644))
	for _, flags := range []string{"-O2", "-O2 -g", "-O1 -g -gdwarf-4 -gz", "-O0 -gdwarf-2", "-O2 -g -fno-asynchronous-unwind-tables -fno-exceptions -DNOEH",
		"-O2 -g -Wl,--strip-debug -Wl,--no-eh-frame-hdr"} {
		src := source
		if strings.Contains(flags, "NOEH") {
			src = filepath.Join(dir, "c.c")
			require.NoError(t, os.WriteFile(src, []byte("int k(int n){ return n < 2 ? n : k(n-1) + k(n-2); } int m(int*p){ *p = k(*p); return 3; }\n"), 0o644))
		}
		out := filepath.Join(dir, "out.so")
		args := append(strings.Fields(flags), "-shared", "-fPIC", "-nostartfiles", "-o", out, src)
		text, err := exec.Command("gcc", args...).CombinedOutput()
		require.NoError(t, err, "%s", text)
		b, err := os.ReadFile(out)
		require.NoError(t, err)
		add("gcc "+flags, b)
		args = append(strings.Fields(flags), "-c", "-o", out, src)
		if text, err = exec.Command("gcc", args...).CombinedOutput(); err == nil {
			b, err = os.ReadFile(out)
			require.NoError(t, err)
			add("gcc -c "+flags, b)
		}
	}
	return all
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
		args := []string{"dump", "--stage=" + stages()[i%len(stages())], in}
		if i/len(stages())%2 == 1 {
			args = append(args, "--json")
		}
		return a.command(i, args...).code
	})
}

// ehElfs returns what build makes of the objects.
func ehElfs(t *testing.T) (all []seed) {
	t.Helper()
	dir := t.TempDir()
	for i, s := range objects(t) {
		for _, dispatch := range []string{"tree", "packed"} {
			in := filepath.Join(dir, fmt.Sprint(dispatch, i))
			require.NoError(t, os.WriteFile(in, s.bytes, 0o644))
			if ehasm(t, "build", "-q", "--dispatch", dispatch, in).code != exitDone {
				continue
			}
			b, err := os.ReadFile(in + ".eh_elf.so")
			require.NoError(t, err)
			all = append(all, elfSeed(t, s.name, b))
		}
	}
	require.Greater(t, len(all), 8)
	return all
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

// recordings are perf.data files, whole and as streams.
func recordings(t *testing.T) (root string, all []seed) {
	t.Helper()
	r := newRecorder(t)
	kernel := uint64(0xffffffff81000000)
	write(t, programOf("main"), r.root, "bin/prog")
	r.exec(1, "prog", "/bin/prog", nil)
	mark := len(r.Data)
	var at [][2]int
	for i := range 20 {
		r.sample(1, inFunction+uint64(i%8), i%3 == 0)
		if i == 5 {
			r.Mmap2(r.id(1), 0x30000, 0x2000, 0, "//anon")
			r.Fork(r.id(2), 1, 1)
			r.exec(3, "other", "/bin/prog", buildID("main"))
			r.Round()
		}
		id := r.id(1)
		r.Add(perfdatatest.Record(9, 1, kernel+16, id.PID, id.TID, id.Time, uint64(5), uint64(4), ^uint64(0)-127, kernel+16, kernel+64, ^uint64(0)-511,
			uint64(0)))
		r.Add(perfdatatest.Record(9, 2, uint64(0x30010), id.PID, id.TID, id.Time, uint64(5), uint64(0), uint64(0), uint64(0), uint64(0)))
	}
	r.BuildIDs = nil
	add := func(name string, b []byte) {
		s := seed{name: name, bytes: b, regions: append([][2]int{{0, min(len(b), 104)}, {0, min(len(b), 512)}}, at...)}
		for off := 0; off+8 <= len(b); off += 8 { // what may be the header of a record
			if size := int(b[off+6]) | int(b[off+7])<<8; size >= 16 && size < 300 && b[off] < 90 && b[off+1] == 0 && b[off+2] == 0 {
				s.regions = append(s.regions, [2]int{off, min(len(b), off+48)})
			}
		}
		all = append(all, s)
	}
	add("file", r.File())
	add("pipe", r.Pipe())
	r.Compress(mark, 81, 200)
	add("compressed", r.File())
	add("compressed pipe", r.Pipe())
	return r.root, all
}

var adversaryFormats = []string{"perf", "folded", "json", "pprof", "svg"}

func TestAdversaryRecording(t *testing.T) {
	goBuild(t)
	root, seeds := recordings(t)
	a := newAdversary(t, "recording")
	in := filepath.Join(a.dir, "in")
	a.each(seeds, func(i int, b []byte) int {
		require.NoError(t, os.WriteFile(in, b, 0o644))
		return a.command(i, "script", "--cache=false", "--kallsyms=", "--symfs", root, "--format", adversaryFormats[i%len(adversaryFormats)], "-i", in, "-o", "/dev/null").code
	})
}

// text has regions of lines.
func textSeed(name, text string) seed {
	s := seed{name: name, bytes: []byte(text)}
	for i := 0; i < len(text); i += 32 {
		s.regions = append(s.regions, [2]int{i, min(len(text), i+32)})
	}
	return s
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
	seeds := []seed{textSeed("kallsyms", k.String()), textSeed("short", "ffffffff81000000 T _text\nffffffff81000010 T x\n"), textSeed("zero", strings.Repeat("0000000000000000 t a\n", 20))}
	a.each(seeds, func(i int, b []byte) int {
		require.NoError(t, os.WriteFile(in, b, 0o644))
		return a.command(i, "script", "--cache=false", "--kallsyms", in, "--symfs", root, "--format", adversaryFormats[i%len(adversaryFormats)], "-i", rec, "-o", "/dev/null").code
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
		return a.command(i, "script", "--cache=false", "--kallsyms=", "--symfs", root, "--format", adversaryFormats[i%len(adversaryFormats)], "-i", rec, "-o", "/dev/null").code
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
			for at := p.Vaddr; at < p.Vaddr+p.Filesz; at += max(8, p.Filesz/40) {
				r.sample(1, base+at, true)
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
		args := []string{"script", "--cache=false", "--kallsyms=", "--inline", "--symfs", r.root, "--format", format, "-i", rec, "-o", "/dev/null"}
		if format != "folded" && format != "svg" {
			args = append(args, "--lines")
		}
		return a.command(i, args...).code
	})
}
