//go:build linux && amd64

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const nested = `static volatile unsigned long n;
__attribute__((noinline)) void inner(void) { for (int i = 0; i < 300; i++) n += i; }
__attribute__((noinline)) void outer(void) { for (int i = 0; i < 1000; i++) inner(); n++; }
int main(void) { for (int i = 0; i < 300; i++) outer(); return 0; }
`

// TestRecordSource records by .sframe, where the program has nothing else, and by a section that it
// has not.
func TestRecordSource(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "nested.c")
	require.NoError(t, os.WriteFile(src, []byte(nested), 0o666))
	out, err := exec.Command("gcc", "-O1", "-g", "-fomit-frame-pointer", "-Wa,--gsframe", "-o",
		filepath.Join(dir, "nested"), src).CombinedOutput()
	require.NoError(t, err, "%s", out)
	folded := func(source string) string {
		r := recordIn(t, dir, "--source="+source, "--signatures", "--frame-pointers=never", "-o", "p.folded",
			"./nested")
		require.Zero(t, r.code, r.stderr)
		b, err := os.ReadFile(filepath.Join(dir, "p.folded"))
		require.NoError(t, err)
		return string(b)
	}
	stack := ";main(void);outer(void);inner(void) "
	assert.Contains(t, folded("sframe"), stack)
	assert.NotContains(t, folded("debug_frame"), stack)
	r := recordIn(t, dir, "--source=stabs", "./nested")
	assert.Equal(t, 2, r.code)
	assert.Contains(t, r.stderr, "--source: ")
}
