//go:build linux

package symbols

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDebugLinkFIFO: who wrote a file says where its debug file is, and may have put a FIFO there.
func TestDebugLinkFIFO(t *testing.T) {
	testtool.Need(t, "gcc", "objcopy")
	dir := t.TempDir()
	prog, link := filepath.Join(dir, "prog"), filepath.Join(dir, "prog.debug")
	for _, args := range [][]string{
		{"gcc", "-shared", "-x", "c", "-", "-o", prog}, {"objcopy", "--only-keep-debug", prog, link},
		{"objcopy", "--strip-all", "--add-gnu-debuglink=" + link, prog},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdin = bytes.NewReader([]byte("int hidden(void) { return 1; }"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	f, err := os.Open(prog)
	require.NoError(t, err)
	defer f.Close()
	named := func() (n int) {
		testtool.Within(t, 20*time.Second, func() {
			table, err := FromFiles(f, &Files{Dir: dir})
			require.NoError(t, err)
			n = table.Len()
		})
		return n
	}
	all := named()
	require.NoError(t, os.Remove(link))
	testtool.MakeFIFO(t, link)
	assert.Less(t, named(), all)
}

// TestDebugLinkSum: a debug file of another build is not taken, whether a build-id or the checksum tells.
func TestDebugLinkSum(t *testing.T) {
	testtool.Need(t, "gcc", "objcopy")
	for _, id := range []string{"none", "sha1"} {
		dir := t.TempDir()
		debug := func(name, source string) string {
			object := filepath.Join(dir, name)
			cmd := exec.Command("gcc", "-shared", "-Wl,--build-id="+id, "-x", "c", "-", "-o", object)
			cmd.Stdin = bytes.NewReader([]byte(source))
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			out, err = exec.Command("objcopy", "--only-keep-debug", object, object+".debug").CombinedOutput()
			require.NoError(t, err, "%s", out)
			return object
		}
		prog := debug("prog", "static int hidden(void) { return 1; } int shown(void) { return hidden(); }")
		other := debug("other", "static int wrong(void) { return 1; } int shown(void) { return wrong(); }")
		out, err := exec.Command("objcopy", "--strip-all", "--add-gnu-debuglink="+prog+".debug", prog).CombinedOutput()
		require.NoError(t, err, "%s", out)
		names := func() (list []string) {
			f, err := os.Open(prog)
			require.NoError(t, err)
			defer f.Close()
			table, err := FromELF(f, dir, nil, nil)
			require.NoError(t, err)
			for i := range table.list {
				name, _ := table.nameOf(&table.list[i])
				list = append(list, name)
			}
			return list
		}
		assert.Contains(t, names(), "hidden", id)
		require.NoError(t, os.Rename(other+".debug", prog+".debug"))
		assert.NotContains(t, names(), "wrong", id)
		assert.Contains(t, names(), "shown", "%s: from .dynsym", id)
	}
}

// TestPerfMapForeign: a map that is no file, or has too much in it.
func TestPerfMapForeign(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "perf-1.map")
	testtool.MakeFIFO(t, path)
	for name, read := range map[string]func(Written, *Budget) (*Table, error){"map": PerfMap, "dump": JITDump} {
		testtool.Within(t, 20*time.Second, func() {
			_, err := read(Written{Path: path, PID: 1}, plenty())
			assert.ErrorIs(t, err, input.ErrNotRegular, name)
		})
	}
	require.NoError(t, os.Remove(path))
	for n, want := range map[int]error{4: errManySymbols, 3: nil} {
		_, err := parsePerfMap(bytes.NewReader(bytes.Repeat([]byte("0 1 a\n"), n)), 3, plenty())
		assert.ErrorIs(t, err, want)
	}
	require.NoError(t, os.WriteFile(path, []byte("0 1 a\n"), 0o600))
	require.NoError(t, os.Symlink(path, filepath.Join(dir, "perf-2.map")))
	_, err := PerfMap(Written{Path: filepath.Join(dir, "perf-2.map"), PID: 2}, plenty())
	assert.ErrorIs(t, err, ErrNotOwn)
}

// TestBudget: the symbols of several maps and dumps take no more memory together than they may;
// those of a map that is not read count no longer. The zeros of a hole are no symbols.
func TestBudget(t *testing.T) {
	const each = 56 + 4 // a symbol and its name
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	small, large := write("small", "0 1 name\n10 1 name\n"), write("large", strings.Repeat("0 1 name\n", 9))
	budget := NewBudget(10 * each)
	for _, c := range []struct {
		path string
		want error
	}{{small, nil}, {large, errManySymbols}, {small, nil}, {small, nil}, {small, nil}, {small, nil},
		{small, errManySymbols}} {
		_, err := PerfMap(Written{Path: c.path, PID: 1}, budget)
		assert.ErrorIs(t, err, c.want)
	}
	holes := write("holes", "0 1 name\n"+strings.Repeat("\x00", 1<<20)+"\n10 1 last\n20 1 "+strings.Repeat("x",
		1<<20)+"\n30 1 end")
	table, err := PerfMap(Written{Path: holes, PID: 1}, plenty())
	require.NoError(t, err)
	require.Equal(t, 4, table.Len())
	assert.Equal(t, "last", table.Find(0x10).Name)
	assert.Less(t, len(table.Find(0x20).Name), 1<<18)
	assert.Equal(t, "end", table.Find(0x30).Name)
}

// TestPerfMapLarge: a map of 100 MB is read.
func TestPerfMapLarge(t *testing.T) {
	testtool.Long(t) // 100 MB
	path := filepath.Join(t.TempDir(), "perf-1.map")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	out := bufio.NewWriter(f)
	n, size := 0, 0
	for ; size < 100_000_000; n++ {
		written, err := fmt.Fprintf(out, "%x 10 Lcom/example/package/Class%08d;::method\n", int64(0x7f0000000000)+16*int64(n),
			n)
		require.NoError(t, err)
		size += written
	}
	require.NoError(t, out.Flush())
	table, err := PerfMap(Written{Path: path, PID: 1}, NewBudget(256<<20))
	require.NoError(t, err)
	assert.Equal(t, n, table.Len())
}

// TestPerfMapOwner: anyone may write a map into /tmp, so it is believed only of root, of the
// user, and by root of the user whose process it is.
func TestPerfMapOwner(t *testing.T) {
	is := func(uid uint32) func() uint32 { return func() uint32 { return uid } }
	gone := is(0)
	for _, c := range []struct {
		owner, self uint32
		process     func() uint32
		want        bool
	}{
		{0, 1000, gone, true}, {1000, 1000, gone, true}, {1001, 1000, is(1001), false},
		{1000, 0, is(1000), true}, {1000, 0, is(1001), false}, {1000, 0, is(0), false}, {1000, 0, gone, false},
		{0, 0, gone, true},
	} {
		assert.Equal(t, c.want, believed(c.owner, c.self, c.process), "a file of %d, read by %d", c.owner, c.self)
	}
	path := filepath.Join(t.TempDir(), "perf.map")
	require.NoError(t, os.WriteFile(path, []byte("0 1 a\n"), 0o644))
	_, err := PerfMap(Written{Path: path, PID: int32(os.Getpid())}, plenty())
	require.NoError(t, err)
	if os.Geteuid() != 0 {
		return // cannot give files away
	}
	const another = 12345
	require.NoError(t, os.Chown(path, another, another))
	_, err = PerfMap(Written{Path: path, PID: int32(os.Getpid())}, plenty())
	require.ErrorIs(t, err, ErrNotOwn)
	theirs := exec.Command("sleep", "60")
	theirs.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: another, Gid: another}}
	require.NoError(t, theirs.Start())
	defer func() { _ = theirs.Process.Kill(); _ = theirs.Wait() }()
	pid := int32(theirs.Process.Pid)
	_, err = PerfMap(Written{Path: path, PID: pid}, plenty())
	require.NoError(t, err)
	require.NoError(t, theirs.Process.Kill())
	_ = theirs.Wait()
	_, err = PerfMap(Written{Name: "perf.map", Path: path, PID: pid}, plenty())
	assert.EqualError(t, err, "perf.map: not a file of this user, nor of root, nor of the user whose process it is, if that still runs: ignored")
	_, err = PerfMap(Written{Path: path, PID: pid, User: another}, plenty())
	assert.NoError(t, err)
}

// TestContents: the size of a section costs who made it nothing.
func TestContents(t *testing.T) {
	_, err := contents(&elf.Section{SectionHeader: elf.SectionHeader{Name: ".symtab", Size: 1<<30 + 1}})
	assert.EqualError(t, err, "section .symtab: 0x40000001 bytes")
}
