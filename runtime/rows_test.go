//go:build unix

package runtime_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
)

var nothingWrong = regexp.MustCompile(`\d{2,} FDEs, \d{4,} instructions, (99\.9\d|100\.00) % judged .* 100\.0000 % agree; 0 errors, 0 warnings, 0 notes\n`)

// TestRows: the libraries' own unwind tables agree with their code. Profilers unwind through it, too.
func TestRows(t *testing.T) {
	k := makeKit(t)
	for _, lib := range []string{"libgcc/libgcc_s.so.1", "libehunwind.so.2", "libehunwind-preload.so", "libehunwind-record.so"} {
		assert.Regexp(t, nothingWrong, mustOutput(t, k.path("ehasm"), "check", k.path(lib)))
	}
}
