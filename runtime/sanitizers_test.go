//go:build unix

package runtime_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// sanitized are ways to link a sanitizer's runtime with sanitizers.cc. All are tried with EHASM_SANITIZERS=all.
var sanitized = []struct {
	sanitizer, compile string
	always             bool
}{
	{"address", "g++", true},
	{"address", "g++ -static-libasan", false},
	{"address", "clang++", true},
	{"address", "clang++ -shared-libasan", false},
	{"leak", "g++", true},
	{"leak", "clang++", false},
	{"undefined", "g++", false},
	{"undefined", "g++ -static-libubsan", false},
	{"undefined", "clang++", true},
	{"undefined", "clang++ -shared-libsan", false},
	{"thread", "g++", true},
	{"thread", "g++ -static-libtsan", false},
	{"thread", "clang++", false},
	{"memory", "clang++", true},
}

// Of a report, the lines that say what is wrong and the frames, without addresses and process ids,
// which differ from run to run.
var (
	telling  = regexp.MustCompile(`^ +#\d+ |ERROR|WARNING|SUMMARY|runtime error|CHECK`)
	changing = regexp.MustCompile(`0x[0-9a-f]{6,}|==\d+==|\(pid=\d+\)`)
)

func told(report []byte) string {
	var lines []string
	for line := range strings.Lines(string(report)) {
		if telling.MatchString(line) {
			lines = append(lines, changing.ReplaceAllString(line, ""))
		}
	}
	return strings.Join(lines, "")
}

// TestPreloadSanitizers: sanitizers take stacks by _Unwind_Backtrace from the first allocation on,
// before any constructor has run, if they are not to follow frame pointers. Reports and exit status
// are those without the preload.
func TestPreloadSanitizers(t *testing.T) {
	k := makePreload(t)
	testtool.Need(t, "g++", "clang++", "setarch")
	cache := t.TempDir()
	for _, way := range sanitized {
		if !way.always && os.Getenv("EHASM_SANITIZERS") != "all" {
			continue
		}
		t.Run(way.sanitizer+" "+way.compile, func(t *testing.T) {
			program := compileTo(t, filepath.Join(t.TempDir(), "program"),
				way.compile+" -O1 -fno-omit-frame-pointer -fsanitize="+way.sanitizer+
					" testdata/preload/sanitizers.cc -pthread")
			libraries := filepath.Dir(strings.TrimSpace(mustOutput(t, "clang++",
				"-print-file-name=libclang_rt.asan-x86_64.so")))
			for _, fast := range []string{"0", "1"} {
				run := func(preload ...string) (string, int) {
					options := "fast_unwind_on_malloc=" + fast + ":fast_unwind_on_fatal=" + fast +
						":symbolize=0:print_stacktrace=1:exitcode=77"
					cmd := exec.Command("setarch", append(append([]string{"-R"}, preload...), program,
						way.sanitizer)...)
					cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+cache, "LD_LIBRARY_PATH="+libraries)
					for _, name := range []string{"ASAN", "LSAN", "UBSAN", "TSAN", "MSAN"} {
						cmd.Env = append(cmd.Env, name+"_OPTIONS="+options)
					}
					out, _ := cmd.CombinedOutput()
					return told(out), cmd.ProcessState.ExitCode()
				}
				want, code := run()
				require.Regexp(t, `#[12] .*program\+0x`, want, "a report with a stack")
				got, gotCode := run(k.path("ehasm"), "preload", "-q", "--library", k.path("libehunwind-preload.so"),
					"--")
				assert.Equal(t, want, got)
				assert.Equal(t, code, gotCode)
			}
		})
	}
}
