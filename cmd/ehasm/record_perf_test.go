//go:build linux && amd64

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/perfdata"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRecordBesidePerf: a recording of the whole system leaves perf's recordings alone, and knows
// build-ids nevertheless.
func TestRecordBesidePerf(t *testing.T) {
	testtool.NeedRoot(t, "to record the whole system")
	testtool.Need(t, "perf", "gcc")
	dir := t.TempDir()
	source, program := filepath.Join(dir, "a.c"), filepath.Join(dir, "a")
	require.NoError(t, os.WriteFile(source,
		[]byte("int main(void) { for (volatile int i = 0; i < 20000000; i++) ; return 0; }\n"), 0o666))
	out, err := exec.Command("gcc", "-O1", "-Wl,--build-id", "-o", program, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := recordCommand(t, dir, "-a", "-F", "97", "-o", "p.folded", "--raw", "raw.data")
	require.NoError(t, cmd.Start())
	waitForRings(t, cmd)
	perf := exec.Command("perf", "record", "-q", "-e", "cpu-clock:u", "-F", "499", "--call-graph", "dwarf", "-o",
		"x.data", "--", program)
	perf.Dir, perf.Env = dir, append(os.Environ(), "HOME="+dir)
	out, err = perf.CombinedOutput()
	assert.NoError(t, err, "%s", out)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait())
	file, err := os.Open(program)
	require.NoError(t, err)
	defer file.Close()
	id, err := abi.BuildID(file)
	require.NoError(t, err)
	require.NotEmpty(t, id)
	for name, want := range map[string][]byte{"raw.data": id, "x.data": nil} {
		r, err := perfdata.Open(filepath.Join(dir, name), perfdata.Options{})
		require.NoError(t, err)
		defer r.Close()
		found := 0
		for r.Next() {
			if m, ok := r.Record().(*perfdata.Mmap); ok && m.Exec && string(m.Name) == program {
				assert.Equal(t, want, m.File.BuildID, name)
				found++
			}
		}
		require.NoError(t, r.Err())
		assert.NotZero(t, found, name)
	}
	r := ehasm(t, "script", "--cache=false", "--format=folded", "-i", filepath.Join(dir, "x.data"))
	assert.Zero(t, r.code, r.stderr)
	assert.Contains(t, r.stdout, ";main ")
	assert.NotContains(t, r.stderr, "object missing")
}
