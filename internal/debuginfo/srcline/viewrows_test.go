package srcline

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestViewRows compares all rows with objdump's: address, view, line, file and is_stmt.
func TestViewRows(t *testing.T) {
	for _, flags := range [][]string{{"-O2"}, {"-O2", "-gdwarf-4"}, {"-O3", "-gdwarf-3"}, {"-O0"}} {
		p := compile(t, t.TempDir(), "prog", flags...)
		out, err := exec.Command("objdump", "--dwarf=decodedline", p).Output()
		require.NoError(t, err)
		format := regexp.MustCompile(`^(\S+) +(\d+|-) +0x([0-9a-f]+)(?: +(\d+))?( +x)?\s*$`)
		var want []string
		for line := range strings.Lines(string(out)) {
			m := format.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			n, _ := strconv.Atoi(m[4])
			want = append(want, fmt.Sprint(m[1], " ", m[2], " 0x", m[3], " ", n, " ", m[5] != ""))
		}
		var got []string
		views, unlike := 0, 0
		for v := range open(t, p, Options{}).Views() {
			line, file := strconv.Itoa(v.Line), filepath.Base(v.File)
			if v.End { // its file is not of interest
				line = "-"
			}
			if i := len(got); v.End && i < len(want) {
				file, _, _ = strings.Cut(want[i], " ")
			}
			if v.View > 0 {
				views++
			}
			if !v.Statement {
				unlike++
			}
			got = append(got, fmt.Sprintf("%s %s %#x %d %v", file, line, v.Addr, v.View, v.Statement))
		}
		require.Greater(t, len(want), 50)
		assert.Equal(t, want, got, flags)
		t.Logf("%v: %d rows, %d with a view above 0, %d without is_stmt", flags, len(got), views, unlike)
		assert.True(t, flags[0] == "-O0" || views > 20 && unlike > 20)
	}
}
