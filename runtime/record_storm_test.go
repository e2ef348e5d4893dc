//go:build linux && amd64

package runtime_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// TestRecordAllocStorms: a program does under a recorder what it does alone, whatever it does: throw, fork, cancel
// threads, load objects, change its user and root folder, close all descriptors, forbid itself system calls, and so on.
// The profile has the bytes that it has counted itself.
func TestRecordAllocStorms(t *testing.T) {
	testtool.Need(t, "g++")
	r := newRecording(t)
	program := compileTo(t, filepath.Join(r.work, "allocating"),
		"g++ -std=c++17 -O2 -D_GNU_SOURCE -Wall -Wno-clobbered -Wno-cast-function-type stress/allocating.cc -pthread")
	for _, mode := range strings.Fields(
		"throwing cancelling forking spawning loading dropping confining switching interrupting " +
			"crowding closing calculating sealing limiting kinds ending") {
		t.Run(mode, func(t *testing.T) {
			alone, err := exec.Command(program, mode, "1").Output()
			want := 0
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				want = exit.ExitCode()
			}
			if mode == "sealing" && want != 0 {
				t.Skip("needs seccomp")
			}
			require.Contains(t, string(alone), " 0 wrong\n")
			out, said, status := r.record(t, "--period", "2K", "-o", "p.pb.gz", program, mode, "1")
			assert.Equal(t, want, status, said)
			assert.Equal(t, string(alone), out, said)
			found := regexp.MustCompile(`(?m)^bytes (\d+)$`).FindStringSubmatch(said)
			require.NotNil(t, found, said)
			bytes, err := strconv.ParseFloat(found[1], 64)
			require.NoError(t, err)
			sum := 0.0
			for _, s := range r.profile(t, "p.pb.gz").Sample {
				sum += float64(s.Value[1])
			}
			assert.InEpsilon(t, bytes, sum, 0.03, said)
			assert.NotContains(t, said, "samples without room")
			assert.Regexp(t, `complete +\d+ +(100\.0|9[5-9]\.\d) %`, said)
		})
	}
}
