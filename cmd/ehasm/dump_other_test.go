package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// TestDumpOther compares the rows of a relocatable file, and of a debug file that synth wrote, with readelf's.
func TestDumpOther(t *testing.T) {
	testtool.Need(t, "readelf")
	debug := filepath.Join(t.TempDir(), "ls.debug")
	require.Equal(t, exitDone, ehasm(t, "synth", "-o", debug, "/bin/ls").code)
	addresses := regexp.MustCompile(`(?m)^[0-9a-f]{16}|pc=[0-9a-f.]+`) // a relocatable file has none yet
	lines := func(text string) (out []string) {
		for line := range strings.Lines(addresses.ReplaceAllString(text, "")) {
			if line = strings.Join(strings.Fields(line), " "); line != "" && !strings.Contains(line, "NOBITS") {
				out = append(out, line)
			}
		}
		return out
	}
	for _, path := range []string{wrongObject(t), debug} {
		want, err := exec.Command("readelf", "--debug-dump=frames-interp", path).Output()
		require.NotEmpty(t, want, "%v", err) // its status is 1 for sections without bytes, such as a debug file's notes
		r := ehasm(t, "dump", path)
		require.Equal(t, exitDone, r.code, r.stderr)
		assert.Equal(t, lines(string(want)), lines(r.stdout), path)
		r = ehasm(t, "dump", "--stage=table", path)
		require.Equal(t, exitDone, r.code, r.stderr)
		assert.Contains(t, r.stdout, "rsp+8 ra=c-8")
	}
}
