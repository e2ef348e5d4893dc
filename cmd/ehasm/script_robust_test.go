package main

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/perfdatatest"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/internal/testing/unwindtest"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// perfRecorder writes recordings of programs that are all mapped at 0x401000, and
// have a function _start at their beginning and another one 0x40 further.
type perfRecorder struct {
	perfdatatest.Builder
	root string // for --symfs
	time uint64
}

func newRecorder(t *testing.T) *perfRecorder {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	r := &perfRecorder{root: t.TempDir()}
	r.Attrs = []perfdatatest.Attr{{Name: "cycles", Flags: 1 << 34, RegsUser: 0x1c0, StackUser: 32, // bp, sp, ip
		SampleType: 1<<0 | 1<<1 | 1<<2 | 1<<5 | 1<<8 | 1<<12 | 1<<13}}
	return r
}

func (r *perfRecorder) id(pid int32) perfdatatest.ID {
	r.time += 1000
	return perfdatatest.ID{PID: pid, TID: pid, Time: r.time}
}

// programOf returns the file of a program whose second function has this name, which
// makes its build-id, too.
func programOf(function string) []byte {
	e := unwindtest.ELF{Off: 0x1000, VAddr: 0x401000, Size: 0x1000, BuildID: buildID(function),
		Funcs: []unwindtest.Func{
			{Name: "_start", Addr: 0x401000, Size: 0x40, Kind: unwindtest.Outermost},
			{Name: function, Addr: 0x401040, Size: 0x40}}}
	return e.Bytes()
}

func buildID(function string) []byte { return []byte((function + "....................")[:20]) }

func write(t *testing.T, data []byte, path ...string) {
	t.Helper()
	p := filepath.Join(path...)
	require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o777))
	require.NoError(t, os.WriteFile(p, data, 0o666))
}

// byID returns where a file is kept by build-id.
func byID(function string) string {
	id := hex.EncodeToString(buildID(function))
	return ".build-id/" + id[:2] + "/" + id[2:]
}

// exec is a process that runs a program from now on. id may be nil.
func (r *perfRecorder) exec(pid int32, comm, path string, id []byte) {
	r.Comm(r.id(pid), comm, true)
	if id == nil {
		r.Mmap2(r.id(pid), 0x401000, 0x1000, 0x1000, path)
		return
	}
	process := r.id(pid)
	const buildIDInside = 1 << 14
	r.Add(perfdatatest.Record(10, buildIDInside|2, process.PID, process.TID, uint64(0x401000), uint64(0x1000), uint64(0x1000),
		uint8(len(id)), uint8(0), uint16(0), append(id, make([]byte, 20-len(id))...), uint32(5), uint32(2),
		perfdatatest.Name(path), r.SampleID(process)))
}

// stackAt is where the copied stacks begin.
const stackAt = 0x7ffc0000

// sample has a stack of two frames: rip, in a function of the program or where
// else it is told, and one in _start that called it. If chained, rbp points
// to where the caller's is saved.
func (r *perfRecorder) sample(pid int32, rip uint64, chained bool) {
	stack := binary.LittleEndian.AppendUint64(make([]byte, 8), 0x401008)
	stack = append(stack, make([]byte, 16)...)
	rbp := uint64(0)
	if chained {
		rbp = stackAt
	}
	id := r.id(pid)
	r.Add(perfdatatest.Record(9, 2, rip, id.PID, id.TID, id.Time, uint64(5), uint64(0),
		uint64(2), rbp, uint64(stackAt), rip, uint64(len(stack)), stack, uint64(16)))
}

const inFunction = 0x401050

// folded runs script on the recording.
func (r *perfRecorder) folded(t *testing.T, args ...string) result {
	t.Helper()
	write(t, r.File(), r.root, "perf.data")
	return ehasm(t, append([]string{"script", "--kallsyms=", "--format=folded", "-i",
		filepath.Join(r.root, "perf.data"), "--symfs", r.root}, args...)...)
}

// TestScriptExited has a sample that comes after its process's end, and a pid
// that is used twice.
func TestScriptExited(t *testing.T) {
	r := newRecorder(t)
	write(t, programOf("first"), r.root, "bin/a")
	write(t, programOf("second"), r.root, "bin/b")
	r.exec(7, "a", "/bin/a", nil)
	r.Fork(r.id(8), 7, 7)
	r.sample(8, inFunction, false)
	r.Exit(r.id(8), 7, 7)
	r.Exit(r.id(7), 1, 1)
	r.sample(8, inFunction, false)
	r.sample(7, inFunction, false)
	r.exec(9, "other", "/bin/b", nil)
	r.Fork(r.id(8), 9, 9) // the number again
	r.sample(8, inFunction, false)
	for i := range int32(10_000) { // more than are remembered
		r.Fork(r.id(100+i), 9, 9)
		r.Exit(r.id(100+i), 9, 9)
	}
	r.sample(100, inFunction, false)
	r.sample(100+9_999, inFunction, false)
	got := r.folded(t)
	assert.Equal(t, exitDone, got.code)
	assert.Equal(t, ":100;[truncated] 1\na;_start;first 3\nother;_start;second 2\n", got.stdout)
	assert.Equal(t, "6 samples, 10 user and 0 kernel frames; 6 stacks unwound\n"+
		"  complete                                 5   83.3 %\n  pc in no mapping                         1   16.7 %\n",
		got.stderr)
}

// TestScriptDeletedAndReplaced has programs that are no longer where they were.
func TestScriptDeletedAndReplaced(t *testing.T) {
	r := newRecorder(t)
	home := os.Getenv("HOME")
	programs := []struct{ comm, path string }{
		{"gone", "/bin/gone"}, {"gone-by-now", "/bin/gone-by-now (deleted)"}, {"there", "/bin/there (deleted)"},
		{"replaced", "/bin/replaced"}, {"kept", "/bin/kept"}, {"upgraded", "/bin/upgraded (deleted)"},
		{"damaged", "/bin/damaged"},
	}
	for i, p := range programs {
		r.exec(int32(i), p.comm, p.path, buildID(p.comm))
		r.sample(int32(i), inFunction, false)
	}
	r.exec(50, "no-id", "/bin/no-id (deleted)", nil)
	r.sample(50, inFunction, false)
	write(t, programOf("there"), r.root, "bin/there")
	write(t, programOf("new"), r.root, "bin/replaced")
	write(t, programOf("new"), r.root, "bin/kept")
	write(t, programOf("kept"), home, ".debug", byID("kept"), "elf")
	write(t, programOf("new"), r.root, "bin/upgraded")
	write(t, programOf("damaged")[:100], r.root, "bin/damaged")
	write(t, programOf("no-id"), r.root, "bin/no-id")
	got := r.folded(t)
	assert.Equal(t, exitDone, got.code)
	assert.Equal(t, `damaged;[truncated];[damaged] 1
gone-by-now;[truncated];[gone-by-now (deleted)] 1
gone;[truncated];[gone] 1
kept;_start;kept 1
no-id;[truncated];[no-id (deleted)] 1
replaced;[truncated];[replaced] 1
there;_start;there 1
upgraded;[truncated];[upgraded (deleted)] 1
`, got.stdout)
	head, lines, _ := strings.Cut(strings.ReplaceAll(got.stderr, r.root, "ROOT"), "  no eh_elf")
	assert.Equal(t, "8 samples, 10 user and 0 kernel frames; 8 stacks unwound\n"+
		"  complete                                 2   25.0 %\n  object missing                           6   75.0 %\n",
		head)
	lines = "  no eh_elf" + lines
	for _, want := range []string{"open ROOT/bin/gone: no such file or directory",
		"open ROOT/bin/gone-by-now (deleted): no such file or directory",
		"ROOT/bin/replaced: the file has another build-id now: " + hex.EncodeToString(buildID("new")) +
			", recorded was " + hex.EncodeToString(buildID("replaced")),
		"ROOT/bin/upgraded: the file has another build-id now", "ROOT/bin/damaged: ",
		"open ROOT/bin/no-id (deleted): no such file or directory"} {
		assert.Regexp(t, "(?m)^  no eh_elf: "+regexp.QuoteMeta(want)+`.* \(1 frames, in which 1 stacks end\)$`, lines)
	}
	assert.Equal(t, 6, strings.Count(lines, "\n"), lines)
}

// TestScriptManyMissing does not fill the screen.
func TestScriptManyMissing(t *testing.T) {
	r := newRecorder(t)
	for i := range int32(50) {
		r.exec(i, "p", fmt.Sprintf("/bin/gone%d", i), nil)
		r.sample(i, inFunction, false)
	}
	got := r.folded(t)
	assert.Equal(t, 20, strings.Count(got.stderr, "no eh_elf: "))
	assert.Contains(t, got.stderr, "\n  and 30 more objects without an eh_elf\n")
}

// TestScriptContainer has two processes whose programs have one path: one is in
// the container's file system, the other one's is kept by its build-id.
func TestScriptContainer(t *testing.T) {
	r := newRecorder(t)
	write(t, programOf("inside"), r.root, "app/bin/prog")
	require.NoError(t, os.Symlink("app/bin", filepath.Join(r.root, "bin")))
	write(t, programOf("outside"), os.Getenv("HOME"), ".debug", byID("outside"), "elf")
	write(t, programOf("third"), r.root, "usr/lib/debug", byID("third")+".debug")
	r.exec(1, "container", "/bin/prog", buildID("inside"))
	r.exec(2, "host", "/bin/prog", buildID("outside"))
	r.exec(3, "debug", "/bin/prog", buildID("third"))
	for pid := range int32(3) {
		r.sample(pid+1, inFunction, false)
	}
	r.exec(4, "jit", "/bin/prog", buildID("inside"))
	r.Mmap2(r.id(4), 0x30000, 0x1000, 0, "//anon")
	r.sample(4, 0x30010, true)
	write(t, []byte("30000 100 compiled\n"), r.root, "tmp/perf-4.map")
	got := r.folded(t)
	assert.Equal(t, exitDone, got.code)
	assert.Equal(t, "container;_start;inside 1\ndebug;_start;third 1\nhost;_start;outside 1\njit;_start;compiled_[j] 1\n",
		got.stdout)
	assert.Contains(t, got.stderr,
		"  complete                                 3   75.0 %\n  complete by guesses                      1   25.0 %\n")
}

// TestScriptJIT has code without unwind information and with names from a file.
func TestScriptJIT(t *testing.T) {
	r := newRecorder(t)
	write(t, programOf("main"), r.root, "bin/prog")
	code := func(pid int32, comm, mapping string) {
		r.exec(pid, comm, "/bin/prog", nil)
		r.Mmap2(r.id(pid), 0x30000, 0x2000, 0, mapping)
	}
	code(1, "chained", "//anon")
	r.sample(1, 0x30010, true)
	r.sample(1, 0x300ff, true)
	r.sample(1, 0x30100, true) // after the last function
	code(2, "memfd", "/memfd:doublemapper (deleted)")
	r.sample(2, 0x30010, true)
	code(3, "no-map", "anon_inode:[perf_event]")
	r.sample(3, 0x30010, true)
	code(4, "no-frame-pointer", "[heap]")
	r.sample(4, 0x30010, false)
	r.Exit(r.id(1), 1, 1)
	r.sample(1, 0x30010, true)
	code(5, "garbage", "//anon")
	r.sample(5, 0x30010, true)
	write(t, []byte("30000 40 LazyCompile:~a <x> y;z\n30040 c0 b\n"), r.root, "tmp/perf-1.map")
	write(t, []byte("0x30000 0x1000 other::name\n"), r.root, "tmp/perf-2.map")
	write(t, []byte("30000\n\xff\xfe\nzz 10 a\n30000 ffffffffffffffff b\n30000 20 \n30000 40 good\n"), r.root,
		"tmp/perf-5.map")
	got := r.folded(t)
	assert.Equal(t, exitDone, got.code)
	assert.Equal(t, `chained;_start;LazyCompile:~a <x> y:z_[j] 2
chained;_start;[perf-1.map]_[j] 1
chained;_start;b_[j] 1
garbage;_start;good_[j] 1
memfd;_start;other::name_[j] 1
no-frame-pointer;[truncated];[anonymous memory]_[j] 1
no-map;_start;[anonymous memory]_[j] 1
`, got.stdout)
	assert.Equal(t, `8 samples, 15 user and 0 kernel frames; 8 stacks unwound
  complete by guesses                      7   87.5 %
  object missing                           1   12.5 %
  with guessed callers                     7   87.5 %  (7 frames)
  no eh_elf: //anon: not of a file (5 frames, in which 0 stacks end)
  no eh_elf: /memfd:doublemapper (deleted): not of a file (1 frames, in which 0 stacks end)
  no eh_elf: [heap]: not of a file (1 frames, in which 1 stacks end)
  no eh_elf: anon_inode:[perf_event]: not of a file (1 frames, in which 0 stacks end)
`, got.stderr)
}

// counted is the number of samples in an output.
var counted = map[string]func(t *testing.T, text string) int{
	"perf": func(_ *testing.T, text string) int { return strings.Count(text, "\n\n") },
	"folded": func(t *testing.T, text string) (sum int) {
		for _, n := range testtool.Folded(t, text) {
			sum += n
		}
		return sum
	},
	"json": func(t *testing.T, text string) int {
		n := 0
		for d := json.NewDecoder(strings.NewReader(text)); d.More(); n++ {
			require.NoError(t, d.Decode(new(map[string]any)))
		}
		return n
	},
	"pprof": func(t *testing.T, text string) (sum int) {
		p, err := profile.Parse(strings.NewReader(text))
		require.NoError(t, err)
		for _, s := range p.Sample {
			sum += int(s.Value[0])
		}
		return sum
	},
	"svg": func(t *testing.T, text string) int {
		d := xml.NewDecoder(strings.NewReader(text))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else {
				require.NoError(t, err)
			}
		}
		m := regexp.MustCompile(`<title>all \(([0-9]+) samples`).FindStringSubmatch(text)
		require.NotNil(t, m)
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		return n
	},
}

// TestScriptCut has files that end anywhere, in all formats: what comes before
// is written, counted, and followed by where the file ends.
func TestScriptCut(t *testing.T) {
	r := newRecorder(t)
	write(t, programOf("main"), r.root, "bin/prog")
	r.exec(1, "prog", "/bin/prog", nil)
	before := len(r.Data)
	const samples = 300
	for range samples {
		r.sample(1, inFunction, false)
	}
	size := (len(r.Data) - before) / samples
	file, pipe := r.File(), r.Pipe()
	dataAt := int(binary.LittleEndian.Uint64(file[40:]))
	firstInPipe := strings.Index(string(pipe), string(r.Data[before:before+size]))
	killed := append([]byte(nil), file[:dataAt+len(r.Data)]...) // perf record had no time to write how much there is
	clear(killed[48:56])
	clear(killed[72:104])
	end := dataAt + len(r.Data)
	for _, c := range []struct {
		name  string
		bytes []byte
		want  int
		code  int
		says  string
	}{
		{"in a sample", file[:end-size*100-3], samples - 101, exitFailed,
			fmt.Sprintf("offset %#x: record of type 9: truncated", end-size*101)},
		{"between samples", file[:end-size*100], samples - 100, exitFailed, "truncated"},
		{"in the first record", file[:dataAt+5], 0, exitFailed, "truncated"},
		{"without features", file[:end], samples, exitDone, "truncated"},
		{"in a pipe", pipe[:firstInPipe+size*7+9], 7, exitFailed,
			fmt.Sprintf("offset %#x: record of type 9: truncated", firstInPipe+size*7)},
		{"perf record killed", killed, samples, exitDone, "reading up to the end of the file"},
		{"perf record killed in a sample", killed[:len(killed)-1], samples - 1, exitFailed, "truncated"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(r.root, "cut.data")
			write(t, c.bytes, path)
			for _, format := range strings.Split(formatNames(), ", ") {
				count := counted[format]
				require.NotNil(t, count, "%s: no way to count its samples", format)
				got := ehasm(t, "script", "--kallsyms=", "--format", format, "-i", path, "--symfs", r.root)
				assert.Equal(t, c.code, got.code, got.stderr)
				assert.Equal(t, c.want, count(t, got.stdout), format)
				assert.Contains(t, got.stderr, c.says)
				assert.Contains(t, got.stderr,
					fmt.Sprintf("\n%d samples, %d user and 0 kernel frames; %d stacks unwound\n", c.want, 2*c.want,
						c.want))
			}
		})
	}
}
