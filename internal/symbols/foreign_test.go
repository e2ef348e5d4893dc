//go:build linux

package symbols

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/regular"
	"github.com/ehasm/ehasm/internal/testtool"

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

// TestPerfMapForeign: a map that is no file, or has too much in it.
func TestPerfMapForeign(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "perf-1.map")
	testtool.MakeFIFO(t, path)
	for name, read := range map[string]func(string) (*Table, error){"map": PerfMap, "dump": JITDump} {
		testtool.Within(t, 20*time.Second, func() {
			_, err := read(path)
			assert.ErrorIs(t, err, regular.ErrNotRegular, name)
		})
	}
	require.NoError(t, os.Remove(path))
	for n, want := range map[int]error{4: errManySymbols, 3: nil} {
		_, err := parsePerfMap(bytes.Repeat([]byte("0 1 a\n"), n), 3)
		assert.ErrorIs(t, err, want)
	}
	require.NoError(t, os.WriteFile(path, []byte("0 1 a\n"), 0o600))
	require.NoError(t, os.Symlink(path, filepath.Join(dir, "perf-2.map")))
	_, err := PerfMap(filepath.Join(dir, "perf-2.map"))
	assert.ErrorContains(t, err, "not a file of this user")
}

// TestContents: the size of a section costs who made it nothing.
func TestContents(t *testing.T) {
	_, err := contents(&elf.Section{SectionHeader: elf.SectionHeader{Name: ".symtab", Size: 1<<30 + 1}})
	assert.EqualError(t, err, "section .symtab: 0x40000001 bytes")
}
