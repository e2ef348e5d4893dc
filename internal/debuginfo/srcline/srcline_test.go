package srcline

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func run(t testing.TB, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%v: %s", cmd, out)
}

// compile makes dir/name of testdata/shapes.cc.
func compile(t testing.TB, dir, name string, flags ...string) string {
	t.Helper()
	testtool.Need(t, "g++", "addr2line", "objcopy")
	src, err := filepath.Abs("testdata/shapes.cc")
	require.NoError(t, err)
	out := filepath.Join(dir, name)
	run(t, dir, "g++", append([]string{"-g", src, "-o", out}, flags...)...)
	return out
}

func open(t testing.TB, path string, opt Options) *Info {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	opt.Path = path
	o, err := Open(file, opt)
	require.NoError(t, err)
	t.Cleanup(func() { o.Close() })
	return o
}

// text returns the addresses of the functions that the test's source has.
func text(t testing.TB, path string) (addrs []uint64) {
	t.Helper()
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	list, err := f.Symbols()
	require.NoError(t, err)
	ours := regexp.MustCompile(`^(main|plain)|helper|fail|shapes`)
	for _, s := range list {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && ours.MatchString(s.Name) {
			for a := s.Value; a < s.Value+s.Size; a++ {
				addrs = append(addrs, a)
			}
		}
	}
	slices.Sort(addrs) // aliases have the same
	addrs = slices.Compact(addrs)
	require.Greater(t, len(addrs), 200)
	return addrs
}

// addr2line asks binutils for the frames at each address.
func addr2line(t testing.TB, object string, addrs []uint64) map[uint64][]Frame {
	t.Helper()
	var in bytes.Buffer
	for _, a := range addrs {
		fmt.Fprintf(&in, "%x\n", a)
	}
	cmd := exec.Command("addr2line", "-e", object, "-i", "-f", "-a")
	cmd.Stdin = &in
	out, err := cmd.Output()
	require.NoError(t, err)
	all := make(map[uint64][]Frame)
	var addr uint64
	s := bufio.NewScanner(bytes.NewReader(out))
	for s.Scan() {
		if n, ok := strings.CutPrefix(s.Text(), "0x"); ok {
			addr, err = strconv.ParseUint(n, 16, 64)
			require.NoError(t, err)
			continue
		}
		f := Frame{Func: s.Text()}
		require.True(t, s.Scan())
		place, _, _ := strings.Cut(s.Text(), " (discriminator")
		colon := strings.LastIndexByte(place, ':')
		f.File = path.Clean(place[:colon])
		f.Line, _ = strconv.Atoi(place[colon+1:])
		all[addr] = append(all[addr], f)
	}
	for _, frames := range all {
		for i := range frames {
			frames[i].Inlined = i < len(frames)-1
		}
	}
	return all
}

// symbolNames returns what addr2line takes for the innermost or the outermost
// function in place of the name that DWARF has: those of parts and clones of it,
// and of local functions, which g++ gives no linkage name.
func symbolNames(t testing.TB, path string) map[string]bool {
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	list, err := f.Symbols()
	require.NoError(t, err)
	names := make(map[string]bool)
	for _, s := range list {
		names[s.Name] = true
	}
	return names
}

var both = Want{Inline: true, Lines: true}

// agree wants the frames at all addresses to be those of addr2line.
func agree(t *testing.T, o *Info, addrs []uint64, want map[uint64][]Frame, symbols map[string]bool) {
	t.Helper()
	var deepest, renamed int
	for _, a := range addrs {
		got := o.Lookup(a, both)
		deepest = max(deepest, len(got))
		w := append([]Frame(nil), want[a]...)
		for i := range w {
			if i < len(got) && got[i].Func != w[i].Func && symbols[w[i].Func] && got[i].Func != "" {
				w[i].Func = got[i].Func
				renamed++
			}
		}
		if !assert.Equal(t, w, got, "at %#x", a) {
			break
		}
	}
	assert.NoError(t, o.Err())
	assert.Greater(t, deepest, 2)
	assert.Less(t, renamed, len(addrs)/2)
}

// TestAddr2line compares frames at every byte of the code with those of binutils.
func TestAddr2line(t *testing.T) {
	for name, flags := range map[string][]string{
		"v5":       {"-O2"},
		"sections": {"-O1", "-fno-reorder-blocks-and-partition", "-Wl,--gc-sections", "-ffunction-sections"},
		"v4":       {"-O2", "-gdwarf-4"},
		"v4types":  {"-O3", "-gdwarf-4", "-fdebug-types-section"},
		"v2":       {"-O2", "-gdwarf-2", "-gno-strict-dwarf"},
		"gz":       {"-O2", "-gz"},
		"gzgnu":    {"-O2", "-gdwarf-4", "-gz=zlib-gnu"},
		"noranges": {"-O2", "-fno-reorder-blocks-and-partition", "-no-pie"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := compile(t, t.TempDir(), "prog", flags...)
			addrs := text(t, p)
			agree(t, open(t, p, Options{}), addrs, addr2line(t, p, addrs), symbolNames(t, p))
		})
	}
}

// TestRelative is compiled in another folder than its source, by relative paths.
func TestRelative(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "src"), os.DirFS("testdata")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "build"), 0o777))
	for _, flags := range [][]string{{"-gdwarf-4"}, {"-gdwarf-5"}, {"-gdwarf-5", "-fdebug-prefix-map=" + dir + "=."}} {
		run(t, filepath.Join(dir, "build"), "g++", append(flags, "-O2", "-o", "prog", "../src/shapes.cc")...)
		p := filepath.Join(dir, "build/prog")
		addrs := text(t, p)
		agree(t, open(t, p, Options{}), addrs, addr2line(t, p, addrs), symbolNames(t, p))
	}
}

// TestSameCode has forms of debug information that addr2line does not read, for
// code that is the same as in a form that it does.
func TestSameCode(t *testing.T) {
	for name, flags := range map[string][]string{
		"dwarf64": {"-gdwarf64"},
		"split":   {"-gsplit-dwarf"},
		"split4":  {"-gsplit-dwarf", "-gdwarf-4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			usual := compile(t, dir, "usual", "-O2")
			other := compile(t, dir, "other", append(flags, "-O2")...)
			addrs := text(t, usual)
			assert.Equal(t, addrs, text(t, other))
			o := open(t, other, Options{})
			agree(t, o, addrs, addr2line(t, usual, addrs), symbolNames(t, usual))
			if !strings.HasPrefix(name, "split") {
				return
			}
			dwos, err := filepath.Glob(filepath.Join(dir, "*.dwo"))
			require.NoError(t, err)
			require.Len(t, dwos, 1)
			require.NoError(t, os.Remove(dwos[0]))
			o = open(t, other, Options{})
			got := o.Lookup(addrs[0], both)
			require.Len(t, got, 1)
			assert.Equal(t, "shapes.h", filepath.Base(got[0].File))
			assert.ErrorContains(t, o.Err(), ".dwo not found")
		})
	}
}

// TestSeparate has the debug information in other files than the object.
func TestSeparate(t *testing.T) {
	dir := t.TempDir()
	p := compile(t, dir, "prog", "-O2", "-gdwarf-4", "-Wl,--build-id=0x0102030405")
	addrs := text(t, p)
	want, symbols := addr2line(t, p, addrs), symbolNames(t, p)

	require.NoError(t, os.MkdirAll(filepath.Join(dir, "debug/.build-id/01"), 0o777))
	byID := filepath.Join(dir, "debug/.build-id/01/02030405.debug")
	run(t, dir, "objcopy", "--only-keep-debug", p, byID)
	run(t, dir, "objcopy", "--strip-debug", p, "stripped")
	stripped := filepath.Join(dir, "stripped")
	agree(t, open(t, stripped, Options{DebugPaths: []string{"/nonexistent", p + ".not", byID}}), addrs, want, symbols)

	file, err := os.Open(stripped)
	require.NoError(t, err)
	defer file.Close()
	_, err = Open(file, Options{Path: stripped})
	assert.ErrorIs(t, err, ErrNone)
	other := compile(t, dir, "other", "-O1", "-Wl,--build-id=0x0102030406")
	_, err = Open(file, Options{Path: stripped, DebugPaths: []string{other}})
	assert.ErrorIs(t, err, ErrNone, "another build-id")
	nameless := compile(t, dir, "nameless", "-O1", "-Wl,--build-id=none")
	_, err = Open(file, Options{Path: stripped, DebugPaths: []string{nameless}})
	assert.ErrorIs(t, err, ErrNone, "an unknown build-id is not the same")

	// Without build-ids the checksum of the link decides.
	p = compile(t, dir, "noid", "-O2", "-gdwarf-4", "-Wl,--build-id=none")
	run(t, dir, "objcopy", "--only-keep-debug", p, "noid.debug")
	run(t, dir, "objcopy", "--strip-debug", "--add-gnu-debuglink=noid.debug", p, "linked")
	linked := filepath.Join(dir, "linked")
	addrs = text(t, p)
	want, symbols = addr2line(t, p, addrs), symbolNames(t, p)
	agree(t, open(t, linked, Options{}), addrs, want, symbols)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "dbg", dir), 0o777))
	require.NoError(t, os.Rename(filepath.Join(dir, "noid.debug"), filepath.Join(dir, "dbg", dir, "noid.debug")))
	agree(t, open(t, linked, Options{DebugDirs: []string{filepath.Join(dir, "dbg")}}), addrs, want, symbols)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "noid.debug"), []byte("\x7fELF"), 0o666))
	run(t, dir, "objcopy", "--only-keep-debug", other, "noid.debug")
	file2, err := os.Open(linked)
	require.NoError(t, err)
	defer file2.Close()
	_, err = Open(file2, Options{Path: linked})
	assert.ErrorIs(t, err, ErrNone, "another checksum")
}

// TestDwz has entries that dwz moved to partial units and to another file.
func TestDwz(t *testing.T) {
	testtool.Need(t, "dwz")
	dir := t.TempDir()
	p := compile(t, dir, "prog", "-O2", "-gdwarf-4")
	q := compile(t, dir, "prog2", "-O1", "-gdwarf-4")
	addrs := text(t, p)
	want, symbols := addr2line(t, p, addrs), symbolNames(t, p)
	run(t, dir, "cp", p, "third")
	run(t, dir, "dwz", "-m", "common.debug", p, q, "third")
	f, err := elf.Open(p)
	require.NoError(t, err)
	require.NotNil(t, f.Section(".gnu_debugaltlink"))
	f.Close()
	agree(t, open(t, p, Options{}), addrs, want, symbols)

	require.NoError(t, os.Rename(filepath.Join(dir, "common.debug"), filepath.Join(dir, "elsewhere")))
	missing := func() {
		t.Helper()
		o := open(t, p, Options{})
		assert.ErrorContains(t, o.Err(), "common.debug not found")
		assert.NotEmpty(t, o.Lookup(addrs[0], both))
	}
	missing()
	run(t, dir, "objcopy", "--remove-section=.note.gnu.build-id", "elsewhere", "common.debug")
	missing() // which of the files of this name it is, nothing says
}

// TestParallel drops tables while others use them.
func TestParallel(t *testing.T) {
	p := compile(t, t.TempDir(), "prog", "-O2")
	addrs := text(t, p)
	want := make(map[uint64][]Frame)
	whole := open(t, p, Options{})
	for _, a := range addrs {
		want[a] = whole.Lookup(a, both)
	}
	small := open(t, p, Options{Limit: 1})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, a := range addrs {
				if !assert.Equal(t, want[a], small.Lookup(a, both)) {
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestWant asks for one of the two.
func TestWant(t *testing.T) {
	p := compile(t, t.TempDir(), "prog", "-O2")
	o := open(t, p, Options{})
	for _, a := range text(t, p) {
		all := o.Lookup(a, both)
		lines, inline := o.Lookup(a, Want{Lines: true}), o.Lookup(a, Want{Inline: true})
		require.Len(t, lines, 1)
		assert.Equal(t, Frame{File: all[0].File, Line: all[0].Line}, lines[0])
		require.Len(t, inline, len(all))
		for i := range all {
			assert.Equal(t, Frame{Func: all[i].Func, Inlined: all[i].Inlined}, inline[i])
		}
	}
	assert.Nil(t, o.Lookup(1<<40, both))
}

// TestQuick has several units, compressed: an address brings in what is before the end
// of its unit, and no index; all of them give what the index gives.
func TestQuick(t *testing.T) {
	dir := t.TempDir()
	args := []string{"-g", "-O2", "-gz=zlib", "-shared", "-fPIC", "-o", "lib.so"}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 8 {
		name := fmt.Sprintf("f%d.c", i)
		text := fmt.Sprintf("static int twice(int x) { return 2 * x; }\nint f%d(int x) {\n\treturn twice(x * x) + %d;\n}\n",
			i, i)
		for k := range 600 {
			text += fmt.Sprintf("struct s%x { int m%x; };\nstruct s%[1]x v%d_%d;\n", random.Uint64(), random.Uint64(),
				i, k)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
		args = append(args, name)
	}
	run(t, dir, "gcc", args...)
	p := filepath.Join(dir, "lib.so")
	whole := open(t, p, Options{})
	whole.whole()
	whole.quick = nil
	o := open(t, p, Options{})
	require.NotNil(t, o.quick)
	first := whole.index[0].lo
	require.NotEmpty(t, o.Lookup(first, both))
	assert.Nil(t, o.index)
	assert.Less(t, o.sec.packed.info.have.Load(), uint64(len(o.sec.info)))
	assert.Len(t, o.sec.unitList(), 1)
	for _, part := range whole.index {
		for a := part.lo - 1; a <= part.hi; a++ {
			require.Equal(t, whole.Lookup(a, both), o.Lookup(a, both), "%#x", a)
		}
	}
	require.NoError(t, errors.Join(o.Err(), whole.Err()))
}
