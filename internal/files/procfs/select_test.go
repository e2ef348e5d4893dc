//go:build linux

package procfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	p, ok := parseStat([]byte("12 (a) R 1) S 7 12 12 0 -1 4194560 1 2 3\n"))
	assert.True(t, ok)
	assert.Equal(t, Process{PID: 12, Parent: 7, Comm: "a) R 1"}, p)
	p, ok = parseStat([]byte("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0"))
	assert.True(t, ok)
	assert.True(t, p.Kernel)
	p, _ = parseStat([]byte("9 (x) Z 0 0 0 0 -1 0 0 0"))
	assert.True(t, p.Ended)
	for _, text := range []string{"", "1", "1 (a", "1 (a) S", "x (a) S 1 1 1 1 1 1 1", "1 (a) S x 1 1 1 1 1 1",
		"1 (a) S 1 1 1 1 1 -1 1"} {
		_, ok := parseStat([]byte(text))
		assert.False(t, ok, text)
	}
}

// TestNamed compares with pgrep: which of some processes a pattern names, by the 15 bytes of a name that there are.
func TestNamed(t *testing.T) {
	dir := t.TempDir()
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	var names []string
	for _, name := range []string{"ehasm-a", "ehasm-ab", "ehasm-a.b", "ehasm (x) S", "ehasm-with-a-long-name"} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.Symlink(sleep, path))
		cmd := exec.Command(path, "1000")
		require.NoError(t, cmd.Start())
		defer func() {
			cmd.Process.Kill()
			cmd.Wait()
		}()
		names = append(names, fmt.Sprint(cmd.Process.Pid))
	}
	list, err := All()
	require.NoError(t, err)
	ours := func(pids []string) (own []string) { // other tests may start and end such processes
		for _, pid := range pids {
			for _, name := range names {
				if pid == name {
					own = append(own, pid)
				}
			}
		}
		return own
	}
	for _, pattern := range []string{"ehasm", "ehasm-a", "^ehasm-a$", "^ehasm-a.b$", "ehasm-(ab|a)$", `ehasm-a\.b`,
		"ehasm-with-a-lo", "ehasm-with-a-lo$", "ehasm-with-a-long-name", `\(x\) S`, "EHASM", "[a-z]-a$"} {
		out, _ := exec.Command("pgrep", "--", pattern).Output() // status 1: no match
		var got []string
		for _, pid := range Named(list, regexp.MustCompilePOSIX(pattern)) {
			got = append(got, fmt.Sprint(pid))
		}
		assert.Equal(t, ours(strings.Fields(string(out))), ours(got), pattern)
	}
}

// TestWithChildren: children follow their parents, once, in circles too.
func TestWithChildren(t *testing.T) {
	list := []Process{{PID: 1}, {PID: 2, Parent: 1}, {PID: 3, Parent: 2}, {PID: 4, Parent: 1}, {PID: 5, Parent: 6},
		{PID: 6, Parent: 5}}
	assert.Equal(t, []int32{1, 2, 3, 4}, WithChildren(list, []int32{1}))
	assert.Equal(t, []int32{2, 3, 1, 4}, WithChildren(list, []int32{2, 1, 3}))
	assert.Equal(t, []int32{5, 6}, WithChildren(list, []int32{5}))
	assert.Equal(t, []int32{9}, WithChildren(list, []int32{9}))
}
