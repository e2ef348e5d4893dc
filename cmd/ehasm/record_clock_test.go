//go:build linux && amd64

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// TestRecordClocks records where the clock of programs is behind the clock of the kernel's records,
// and CLOCK_BOOTTIME two hours further than CLOCK_MONOTONIC, as after two hours in which the
// machine was suspended. Samples are counted when they are taken, not all at the end, and times are
// those for which programs ran.
func TestRecordClocks(t *testing.T) {
	testtool.NeedRoot(t, "for a time namespace")
	testtool.Need(t, "unshare")
	b, err := os.ReadFile("/proc/uptime")
	require.NoError(t, err)
	var up float64
	_, err = fmt.Sscan(string(b), &up)
	require.NoError(t, err)
	cmd := verbCommand(t, t.TempDir(), "agent", "--every", "1s", "-o", "out", "--", "sh", "-c", busy+"sleep 1.1; "+busy)
	cmd.Args = append([]string{"unshare", "-T", fmt.Sprintf("--monotonic=-%d", int(min(up/2, 3600))),
		"--boottime=7200"}, cmd.Args...)
	cmd.Path = "/usr/bin/unshare"
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	parts := 0
	for line := range strings.Lines(string(out)) {
		var n int
		var seconds float64
		_, figures, _ := strings.Cut(line, ".pb.gz: ")
		if k, _ := fmt.Sscanf(figures, "%d samples of %f s", &n, &seconds); k == 2 && n > 0 {
			parts++
			assert.Less(t, seconds, 60.)
		}
	}
	assert.GreaterOrEqual(t, parts, 2, "%s", out)
}
