package readelfcmp

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// The entries and rows of the machine's own objects are those that readelf
// prints. Of 2,107 objects that a Debian 12 machine had (binutils 2.40), among
// them all of /usr/bin and /usr/lib, the JVM, node and the Rust compiler, with
// 2.8 million entries and 24 million rows, none differed but for the columns
// above 16 that the package comment names, for example
//
//	libffi.so.8.1.2, FDE at +0xa64:
//	   LOC           CFA      rbx   rsi ... r15   ra    xmm6  xmm7 ...
func TestRowsAgainstReadelf(t *testing.T) {
	testtool.Need(t, "readelf")
	paths := []string{
		"/bin/bash",
		"/lib64/ld-linux-x86-64.so.2",
		"/lib/x86_64-linux-gnu/libc.so.6",
		"/lib/x86_64-linux-gnu/libgcc_s.so.1",
		"/lib/x86_64-linux-gnu/libm.so.6",
		"/usr/lib/x86_64-linux-gnu/libffi.so.8",
		"/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
	}
	program := filepath.Join(t.TempDir(), "program") // a Go program has a .debug_frame
	out, err := exec.Command("go", "build", "-o", program, "github.com/ehasm/ehasm/cmd/ehasm").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, path := range append(paths, program) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			if _, err := os.Stat(path); err != nil {
				t.Skip("needs", path)
			}
			res, err := Compare(path)
			require.NoError(t, err)
			assert.Zero(t, res.Different, "%s", strings.Join(res.Differences, "\n"))
			assert.NotZero(t, res.Entries)
			assert.NotZero(t, res.Rows)
			t.Logf("%v: %d entries, %d rows", res.Sections, res.Entries, res.Rows)
		})
	}
}

func TestEffectiveRows(t *testing.T) {
	const (
		head = "00000018 0000000000000024 0000001c FDE cie=00000000 pc=0000000000001000..0000000000001010"
		cols = "   LOC           CFA      rbx   ra    "
	)
	got := effective([]string{
		head, cols,
		"0000000000001000 rsp+8    u     c-8   ", // superseded
		"0000000000001000 rsp+16   u     c-8   ",
		"0000000000001001 rsp+16   c-16  c-8   ",
		"0000000000001010 rsp+24   c-16  c-8   ", // past the end
	})
	assert.Equal(t, []string{head, cols, "0000000000001000 rsp+16   u     c-8   ",
		"0000000000001001 rsp+16   c-16  c-8   "}, got)

	got = effective([]string{
		head, cols + "xmm6  xmm7  ",
		"0000000000001000 rsp+8    r9 (r9) c-8   u     u     ",
		"0000000000001001 exp      vexp  r3 (rbx) c-16  c-24  ",
	})
	assert.Equal(t, []string{head, cols, "0000000000001000 rsp+8    r9 (r9) c-8   ",
		"0000000000001001 exp      vexp  r3 (rbx) "}, got)
}

// A comparison that could not see a difference would prove nothing.
func TestDifferencesAreSeen(t *testing.T) {
	var res Result
	c := comparison{res: &res, rows: true}
	head := "00000018 0000000000000024 0000001c FDE cie=00000000 pc=0000000000001000..0000000000001010"
	ours := []string{head, "cols", "0000000000001000 rsp+8    c-8   "}
	c.entry(ours, []string{head, "cols", "0000000000001000 rsp+8    c-8   "})
	assert.Zero(t, res.Different)
	c.entry(ours, []string{head, "cols", "0000000000001000 rsp+16   c-8   "})
	c.entry(ours, nil)
	c.entry(nil, []string{head})
	assert.Equal(t, 3, res.Different)
	assert.Equal(t, head+`: ours "0000000000001000 rsp+8    c-8", readelf's "0000000000001000 rsp+16   c-8"`,
		res.Differences[0])
}

func TestCompareErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(path, []byte("text"), 0o644))
	_, err := Compare(path)
	assert.Error(t, err)
}
