package script

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/internal/rows/jit"
	"github.com/ehasm/ehasm/internal/testing/perfdatatest"
	"github.com/ehasm/ehasm/internal/testing/unwindtest"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	prog = unwindtest.ELF{Off: 0x1000, VAddr: 0x401000, Size: 0x1000, BuildID: []byte("prog"), Funcs: []unwindtest.Func{
		{Name: "_start", Addr: 0x401000, Size: 0x40, Kind: unwindtest.Outermost},
		{Name: "main", Addr: 0x401040, Size: 0x40},
		{Name: "_ZN2ns7handlerEi", Addr: 0x401100, Size: 0x40},
		{Name: "restorer", Addr: 0x401200, Size: 0x10, Kind: unwindtest.Signal},
	}}
	lib = unwindtest.ELF{Off: 0x2000, VAddr: 0x3000, Size: 0x1000, BuildID: []byte("lib!"), Funcs: []unwindtest.Func{
		{Name: "work", Addr: 0x3000, Size: 0x100},
	}}
)

const (
	libBase  = 0x7f0000000000
	regsMask = 0xff0fff // what perf record --call-graph dwarf asks for
	stackTop = 0x7ffc0000
)

// recording is a perf.data of two processes, and the folder with their objects.
type recording struct {
	perfdatatest.Builder
	dir  string
	time uint64
}

func newRecording(t testing.TB) *recording {
	t.Helper()
	r := &recording{dir: t.TempDir(), time: 5_000_000_123_456}
	require.NoError(t, os.MkdirAll(filepath.Join(r.dir, "bin"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "bin/prog"), prog.Bytes(), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "bin/lib.so"), lib.Bytes(), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "kallsyms"),
		[]byte("ffffffff81000000 T do_syscall_64\nffffffff81001000 t vfs_read\nffffffffc0000000 t ext_read\t[ext9]\n"),
		0o666))
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "perf-10.map"), []byte("30000 100 JIT:loop\n"), 0o600))
	const sampleType = 1<<0 | 1<<1 | 1<<2 | 1<<5 | 1<<8 | 1<<12 | 1<<13
	r.Attrs = []perfdatatest.Attr{{Name: "cpu-clock", SampleType: sampleType, RegsUser: regsMask, StackUser: 64,
		IDs: []uint64{1}}}
	return r
}

func (r *recording) id(pid, tid int32) perfdatatest.ID {
	r.time += 1000
	return perfdatatest.ID{PID: pid, TID: tid, Time: r.time}
}

func (r *recording) start() {
	r.Comm(r.id(10, 10), "prog", true)
	r.Mmap2(r.id(10, 10), 0x401000, 0x1000, 0x1000, "/bin/prog")
	r.Mmap2(r.id(10, 10), libBase+0x3000, 0x1000, 0x2000, "/bin/lib.so")
	r.Mmap2(r.id(10, 10), 0x30000, 0x1000, 0, "//anon")
	r.Mmap2(r.id(10, 10), 0x50000, 0x1000, 0, "/bin/gone.so")
}

// sample adds one whose kernel part is chain, and whose stack is frames of two
// words with these return addresses.
func (r *recording) sample(pid int32, pc uint64, chain []uint64, returns ...uint64) {
	r.sampleWith(pid, pc, 0, chain, returns)
}

// byFramePointer adds a sample whose rbp points to its first frame.
func (r *recording) byFramePointer(pid int32, pc uint64, chain []uint64, returns ...uint64) {
	r.sampleWith(pid, pc, stackTop, chain, returns)
}

func (r *recording) sampleWith(pid int32, pc, rbp uint64, chain, returns []uint64) {
	var stack []byte
	for _, ret := range returns {
		stack = binary.LittleEndian.AppendUint64(append(stack, make([]byte, 8)...), ret)
	}
	used := uint64(len(stack))
	stack = append(stack, make([]byte, 64-len(stack))...)
	regs := make([]uint64, 20)
	regs[6], regs[7], regs[8] = rbp, stackTop, pc
	id := r.id(pid, pid)
	r.Add(perfdatatest.Record(9, 2, pc, id.PID, id.TID, id.Time, uint64(250000), uint64(len(chain)), chain,
		uint64(2), regs, uint64(64), stack, used))
}

// settings are those of a run, which makes its format.
type settings struct {
	Options
	format   string
	fullPath bool
}

func (o settings) made(t testing.TB) Options {
	spec, err := stackfmt.ByName(o.format)
	require.NoError(t, err)
	o.Format = spec.New(stackfmt.Options{Inline: o.Names.Inline, Lines: o.Names.Lines, FullSourcePath: o.fullPath})
	return o.Options
}

func (r *recording) options(format string) settings {
	return settings{Options: Options{Workers: 2,
		Names:   symbolize.Options{Places: jit.NewPlaces(false, r.dir), Kallsyms: filepath.Join(r.dir, "kallsyms")},
		Objects: unwind.Options{Symfs: r.dir, Compile: unwindtest.Compile}}, format: format}
}

func (r *recording) run(t testing.TB, opt settings) (string, *Summary) {
	t.Helper()
	in, err := perfdata.NewReader(bytes.NewReader(r.File()), perfdata.Options{})
	require.NoError(t, err)
	var out bytes.Buffer
	s, err := Run(context.Background(), in, &out, opt.made(t))
	require.NoError(t, err)
	return out.String(), s
}

func (r *recording) all() {
	r.start()
	kernel := []uint64{perfdata.ContextKernel, 0xffffffff81001010, 0xffffffff81000020, 0xffffffffc0000004}
	r.sample(10, libBase+0x3010, kernel, 0x401050, 0x401010)
	r.Fork(r.id(20, 20), 10, 10)
	r.sample(20, 0x401104, nil, 0x401201, 0x401044, 0x401010)
	r.sample(10, libBase+0x3010, nil, 0x401050) // stack too short
	r.sample(10, 0x30010, nil, 0)
	r.sample(10, libBase+0x3010, nil, 0x50010)
	r.sample(99, 0x401050, nil, 0x401010) // never met
	r.Comm(r.id(20, 20), "other one", true)
	r.sample(20, 0x401104, nil, 0x401044)
}

func TestPerf(t *testing.T) {
	r := newRecording(t)
	r.all()
	got, s := r.run(t, r.options("perf"))
	want := `prog    10  5000.000129:     250000 cpu-clock: 
	ffffffff81001010 vfs_read+0x10 ([kernel.kallsyms])
	ffffffff81000020 do_syscall_64+0x20 ([kernel.kallsyms])
	ffffffffc0000004 ext_read+0x4 ([ext9])
	            2010 work+0x10 (/bin/lib.so)
	            104f main+0xf (/bin/prog)
	            100f _start+0xf (/bin/prog)

prog    20  5000.000131:     250000 cpu-clock: 
	            1104 ns::handler+0x4 (/bin/prog)
	            1200 restorer+0x0 (/bin/prog)
	            1044 main+0x4 (/bin/prog)
	            100f _start+0xf (/bin/prog)

prog    10  5000.000132:     250000 cpu-clock: 
	            2010 work+0x10 (/bin/lib.so)
	            104f main+0xf (/bin/prog)

prog    10  5000.000133:     250000 cpu-clock: 
	           30010 JIT:loop+0x10 (DIR/perf-10.map)

prog    10  5000.000134:     250000 cpu-clock: 
	            2010 work+0x10 (/bin/lib.so)
	               f [unknown] (/bin/gone.so)

:99    99  5000.000135:     250000 cpu-clock: 

other one    20  5000.000137:     250000 cpu-clock: 

`
	assert.Equal(t, want, strings.ReplaceAll(got, r.dir, "DIR"))
	assert.Equal(t, uint64(7), s.Samples)
	assert.Equal(t, uint64(3), s.KernelFrames)
	assert.Equal(t, uint64(12), s.UserFrames)
	assert.Equal(t, map[string]uint64{"outermost frame": 2, "memory not readable": 1, "object missing": 2,
		"pc in no mapping": 2}, s.Ends)
	var text bytes.Buffer
	s.Text(&text)
	assert.Contains(t, text.String(), "gone.so")
	assert.Contains(t, text.String(), "7 samples, 12 user and 3 kernel frames; 7 stacks unwound\n")
	assert.NotContains(t, text.String(), "frame pointer")
	(&Summary{Unwound: 8, Guessed: 3, GuessedIn: 2}).Text(&text)
	assert.Contains(t, text.String(), "with guessed callers                     2   25.0 %  (3 frames)\n")
}

// TestMemfd wants code in a memfd to be of the file that is mapped, as perf has it, with
// the names of perf-PID.map, which perf does not look for there.
func TestMemfd(t *testing.T) {
	r := newRecording(t)
	r.start()
	r.Mmap2(r.id(10, 10), 0x60000, 0x1000, 0x3000, "/memfd:code (deleted)")
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "perf-10.map"), []byte("60000 20 jitted\n"), 0o600))
	r.sample(10, 0x60010, nil, 0)
	r.sample(10, 0x60030, nil, 0)
	got, _ := r.run(t, r.options("perf"))
	assert.Contains(t, got, "\t            3010 jitted+0x10 (/memfd:code (deleted))\n")
	assert.Contains(t, got, "\t            3030 [unknown] (/memfd:code (deleted))\n")
}

// TestUprobes: the kernel's copies of probed instructions are of the mapping that it names, as perf has it, and no code
// that a program has made.
func TestUprobes(t *testing.T) {
	r := newRecording(t)
	r.start()
	r.Mmap2(r.id(10, 10), 0x7fffffffe000, 0x1000, 0, "[uprobes]")
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "perf-10.map"), []byte("60000 20 jitted\n"), 0o600))
	r.sample(10, 0x7fffffffe083, nil, 0)
	got, _ := r.run(t, r.options("perf"))
	assert.Contains(t, got, "\t    7fffffffe083 [unknown] ([uprobes])\n")
	got, _ = r.run(t, r.options("folded"))
	assert.Contains(t, got, "prog;[truncated];[uprobes] 1\n")
}

// TestSeveralFiles: where several files had one name, none of them is taken for another.
func TestSeveralFiles(t *testing.T) {
	r := newRecording(t)
	r.BuildIDs = []perfdatatest.BuildID{{Name: "/bin/lib.so", ID: []byte("other lib")},
		{Name: "/bin/lib.so", ID: lib.BuildID}}
	r.start()
	r.sample(10, libBase+0x3010, nil, 0x401050, 0x401010)
	out, s := r.run(t, r.options("folded"))
	assert.Equal(t, "prog;[truncated];[lib.so] 1\n", out)
	i := slices.IndexFunc(s.Objects, func(o ObjectSummary) bool { return o.Name == "/bin/lib.so" })
	require.GreaterOrEqual(t, i, 0)
	assert.Contains(t, s.Objects[i].Error, errSeveral.Error())
}

func TestFoldedAndJSON(t *testing.T) {
	r := newRecording(t)
	r.all()
	r.sample(10, 0x401050, nil, 0x401010)
	got, _ := r.run(t, r.options("folded"))
	assert.Equal(t, `:99;[truncated] 1
other_one;[truncated] 1
prog;[truncated];JIT:loop_[j] 1
prog;[truncated];[gone.so];work 1
prog;[truncated];main;work 1
prog;_start;main 1
prog;_start;main;restorer;ns::handler 1
prog;_start;main;work;ext_read_[k];do_syscall_64_[k];vfs_read_[k] 1
`, got)

	opt := r.options("json")
	opt.Names.Mangled = true
	got, _ = r.run(t, opt)
	lines := strings.Split(strings.TrimSpace(got), "\n")
	require.Len(t, lines, 8)
	var s struct {
		Comm, Event, End string
		PID, TID         int
		Frames           []struct {
			IP, Sym, DSO string
			Off          int
			Kernel       bool
		}
	}
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &s))
	assert.Equal(t, "outermost frame", s.End)
	assert.Equal(t, "_ZN2ns7handlerEi", s.Frames[0].Sym)
	assert.Equal(t, "0x1104", s.Frames[0].IP)
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &s))
	assert.True(t, s.Frames[0].Kernel)
}

// TestControlCharacters has names that any process can choose: no format writes what is
// not printable, or a line that is not its own.
func TestControlCharacters(t *testing.T) {
	r := newRecording(t)
	r.start()
	r.Comm(r.id(10, 10), "e\x1b[2J\nprog;x\u009b\u202e\xff", false)
	r.Mmap2(r.id(10, 10), 0x50000, 0x1000, 0, "/bin/x\n\tforged 1\x1b]0;title\a")
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "perf-10.map"), []byte("30000 100 j\x1b[1m\u2028it\r\n"),
		0o600))
	r.sample(10, libBase+0x3010, nil, 0x50010)
	r.sample(10, 0x30010, nil, 0)
	wants := map[string][]string{
		"perf": {`e\x1b[2J\nprog;x\u009b\u202e\xff    10 `, ` j\x1b[1m\u2028it+0x10 (`,
			` [unknown] (/bin/x\n\tforged 1\x1b]0;title\a)`},
		"folded": {`e\x1b[2J\nprog:x\u009b\u202e\xff;[truncated];[x\n\tforged 1\x1b]0:title\a];work 1`,
			`e\x1b[2J\nprog:x\u009b\u202e\xff;[truncated];j\x1b[1m\u2028it_[j] 1`},
		"json": {`{"comm":"e\u001b[2J\nprog;x\u009b\u202e\ufffd",`, `"sym":"j\u001b[1m\u2028it"`,
			`"dso":"/bin/x\n\tforged 1\u001b]0;title\u0007"`},
		"svg": nil,
	}
	for _, spec := range stackfmt.Specs() {
		if spec.Binary {
			continue
		}
		format := spec.Name
		want, known := wants[format]
		assert.True(t, known, "%s: no lines are wanted of this format", format)
		got, s := r.run(t, r.options(format))
		lines := strings.Count(got, "\n")
		assert.Equal(t, -1, strings.IndexFunc(got,
			func(c rune) bool { return c != '\n' && c != '\t' && !unicode.IsPrint(c) }), "%s: %q", format, got)
		for _, text := range want {
			assert.Contains(t, got, text)
		}
		switch format {
		case "perf":
			assert.Equal(t, 2*3+1, lines, got)
		case "folded", "json":
			assert.Equal(t, 2, lines, got)
		}
		var text bytes.Buffer
		s.Text(&text)
		assert.Equal(t, -1, strings.IndexFunc(text.String(),
			func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }), "%q", text.String())
	}
}

// TestGuessed has a stack that is found by the frame pointer, through code without a row:
// every format that can says so, and the summary does not count it as others.
func TestGuessed(t *testing.T) {
	r := newRecording(t)
	r.start()
	kernel := []uint64{perfdata.ContextKernel, 0xffffffff81001010}
	r.sample(10, libBase+0x3010, nil, 0x401050, 0x401010)
	r.byFramePointer(10, 0x401f00, kernel, 0x401050, 0x401010)
	r.byFramePointer(10, 0x401f00, nil, 0x99999)
	got, s := r.run(t, r.options("json"))
	lines := strings.Split(got, "\n")
	assert.NotContains(t, lines[0], "guessed")
	assert.Contains(t, lines[1], `"end":"outermost frame by guesses"`)
	assert.Contains(t, lines[1],
		`{"ip":"0x104f","sym":"main","off":15,"dso":"/bin/prog","guessed":true},{"ip":"0x100f","sym":"_start"`)
	assert.Equal(t, 1, strings.Count(lines[1], "guessed\":"))
	assert.NotContains(t, lines[2], "guessed", "a frame in no mapping is none")
	assert.Contains(t, lines[2], `"end":"no unwind information"`)
	assert.Equal(t, map[string]uint64{"outermost frame": 1, "outermost frame by guesses": 1,
		"no unwind information": 1}, s.Ends)
	assert.EqualValues(t, 1, s.Guessed)
	assert.EqualValues(t, 1, s.GuessedIn)

	got, _ = r.run(t, r.options("pprof"))
	p, err := profile.Parse(strings.NewReader(got))
	require.NoError(t, err)
	labels := make(map[string]int)
	for _, s := range p.Sample {
		labels[strings.Join(s.Label["guessed"], "")+"/"+strings.Join(s.Label["end"], "")]++
	}
	assert.Equal(t, map[string]int{"/": 1, "frame pointer/": 1, "/no unwind information": 1}, labels)

	got, _ = r.run(t, r.options("svg"))
	assert.Contains(t, got, `y="58">3 samples; in 1, callers found by the frame pointer, which may leave some out</text>`)
	opt := r.options("svg")
	opt.FramePointers = unwind.Never
	got, _ = r.run(t, opt)
	assert.Contains(t, got, `y="58">3 samples</text>`)

	_, s = r.run(t, r.options("perf"))
	var text bytes.Buffer
	s.Text(&text)
	assert.Contains(t, text.String(), "complete by guesses")
	assert.Contains(t, text.String(), "with guessed callers                     1   33.3 %  (1 frames)\n")
}

// TestHints has recordings that could have been made better.
func TestHints(t *testing.T) {
	hints := func(r *recording) []string {
		_, s := r.run(t, r.options("perf"))
		var text bytes.Buffer
		s.Text(&text)
		for _, h := range s.Hints {
			assert.Contains(t, text.String(), "  hint: "+h+"\n")
		}
		return s.Hints
	}
	r := newRecording(t)
	r.start()
	assert.Equal(t, []string{"the recording has no samples"}, hints(r))
	r.sample(10, libBase+0x3010, nil, 0x401050, 0x401010)
	assert.Empty(t, hints(r))
	r.sample(10, libBase+0x3010, nil, 0x401050)
	assert.Equal(t, []string{"50.0 % of the stacks are cut, since they are larger than the 64 bytes copied: record with perf record --call-graph dwarf,256"}, hints(r))
	r.Attrs[0].StackUser = 32768
	assert.Contains(t, hints(r)[0], "dwarf,65528")
	r.Attrs[0].StackUser = 65528
	assert.Contains(t, hints(r)[0], "as large as the kernel makes them")
	for range 2000 {
		r.sample(10, libBase+0x3010, nil, 0x401050, 0x401010)
	}
	assert.Empty(t, hints(r), "one of 2,000 is 0.0 %")

	r = newRecording(t)
	r.Attrs = []perfdatatest.Attr{{SampleType: 1<<0 | 1<<1 | 1<<2 | 1<<5 | 1<<16, IDs: []uint64{1}}}
	r.start()
	r.Add(perfdatatest.Record(9, 2, uint64(1), uint64(0x401050), int32(10), int32(10), uint64(6_000_000_001_000),
		uint64(3), uint64(perfdata.ContextUser), uint64(0x401050), uint64(0x401010)))
	assert.Equal(t, []string{"the recording has no copies of stacks, so there is nothing to unwind: record with perf record --call-graph dwarf"}, hints(r))

	r = newRecording(t)
	stripped := prog
	stripped.Stripped = true
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "bin/prog"), stripped.Bytes(), 0o666))
	r.start()
	r.sample(10, libBase+0x3010, nil, 0x401050, 0x401010)
	assert.Equal(t, []string{"/bin/prog has no names for 100 % of its frames: install its debug symbols (on Debian the package with -dbgsym), " +
		"or set DEBUGINFOD_URLS to a server that knows build-id 70726f67"}, hints(r))

	opt := r.options("perf")
	opt.MaxStack = 2
	_, s := r.run(t, opt)
	assert.Contains(t, s.Hints, "100.0 % of the stacks are cut after 2 frames: --max-stack=16")

	r = newRecording(t)
	below := lib
	below.Funcs = []unwindtest.Func{{Name: "vector", Addr: 0x3000, Size: 0x100, Kind: unwindtest.BelowRSP}}
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "bin/lib.so"), below.Bytes(), 0o666))
	r.start()
	r.sample(10, libBase+0x3010, nil, 0x401050, 0x401010)
	assert.Equal(t, []string{"100.0 % of the stacks end in functions that keep their caller's frame below the stack pointer, which perf does not copy"}, hints(r))
}

// TestOrder wants the same output from any number of workers, over many batches.
func TestOrder(t *testing.T) {
	r := newRecording(t)
	r.start()
	for i := range uint64(3000) {
		r.sample(10, libBase+0x3000+i%0x100, nil, 0x401050, 0x401010)
	}
	one := r.options("perf")
	one.Workers = 1
	want, _ := r.run(t, one)
	many := r.options("perf")
	many.Workers = 7
	got, s := r.run(t, many)
	assert.Equal(t, want, got)
	assert.Equal(t, uint64(9000), s.UserFrames)
	assert.Equal(t, 3000*3+3000*2, strings.Count(got, "\n"))
	opt := r.options("perf")
	opt.MaxStack = 2
	_, s = r.run(t, opt)
	assert.Equal(t, map[string]uint64{"no room for more frames": 3000}, s.Ends)
}

func TestErrors(t *testing.T) {
	r := newRecording(t)
	r.start()
	for range 1000 {
		r.sample(10, 0x401050, nil, 0x401010)
	}
	broken := errors.New("disk full")
	in, err := perfdata.NewReader(bytes.NewReader(r.File()), perfdata.Options{})
	require.NoError(t, err)
	_, err = Run(context.Background(), in, failing{broken}, r.options("perf").made(t))
	assert.ErrorIs(t, err, broken)

	pipe := r.Pipe()
	in, err = perfdata.NewReader(bytes.NewReader(pipe[:len(pipe)-10]), perfdata.Options{})
	require.NoError(t, err)
	var out bytes.Buffer
	s, err := Run(context.Background(), in, &out, r.options("perf").made(t))
	assert.ErrorIs(t, err, perfdata.ErrTruncated)
	assert.Equal(t, uint64(999), s.Samples)
	assert.Equal(t, 999, strings.Count(out.String(), "cpu-clock"))

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	in, err = perfdata.NewReader(bytes.NewReader(pipe), perfdata.Options{})
	require.NoError(t, err)
	_, err = Run(ctx, in, &out, r.options("perf").made(t))
	assert.ErrorIs(t, err, context.Canceled)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestEventKinds has events without call chain, with frame pointers, and with a
// cpu.
func TestEventKinds(t *testing.T) {
	r := newRecording(t)
	r.Attrs = []perfdatatest.Attr{{SampleType: 1<<0 | 1<<1 | 1<<2 | 1<<7 | 1<<16, IDs: []uint64{1}},
		{Name: "longer-name", SampleType: 1<<0 | 1<<1 | 1<<2 | 1<<5 | 1<<16, IDs: []uint64{2}}}
	r.start()
	r.Add(perfdatatest.Record(9, 2, uint64(1), uint64(0x401050), int32(10), int32(10), uint64(6_000_000_000_000),
		uint32(3), uint32(0)))
	r.Add(perfdatatest.Record(9, 2, uint64(2), uint64(0x401050), int32(10), int32(10), uint64(6_000_000_001_000),
		uint64(3), uint64(perfdata.ContextUser), uint64(0x401050), uint64(0x401010)))
	got, _ := r.run(t, r.options("perf"))
	assert.Equal(t, `            prog    10 [003]  6000.000000:          0   cpu-clock:            401050 main+0x10 (/bin/prog)
prog    10  6000.000001:          0 longer-name: 
	            1050 main+0x10 (/bin/prog)
	            1010 _start+0x10 (/bin/prog)

`, got)
}

// TestShrunk truncates a recording that is mapped.
func TestShrunk(t *testing.T) {
	r := newRecording(t)
	r.all()
	for range 200 {
		r.sample(10, libBase+0x3010, nil, 0x401050, 0x401010)
	}
	path := filepath.Join(r.dir, "perf.data")
	require.NoError(t, os.WriteFile(path, r.File(), 0o666))
	in, err := perfdata.Open(path, perfdata.Options{Map: true})
	require.NoError(t, err)
	defer in.Close()
	require.True(t, in.Next()) // the window is mapped
	require.NoError(t, os.Truncate(path, 2*int64(os.Getpagesize())))
	var out bytes.Buffer
	_, err = Run(context.Background(), in, &out, r.options("perf").made(t))
	assert.ErrorIs(t, err, perfdata.ErrTruncated)
	assert.ErrorContains(t, err, "shorter")
}
