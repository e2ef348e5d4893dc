package srcline

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestViews compares the lines of all addresses with objdump's rows. Where several begin at one
// address, GCC numbers them as views of it: what the program is about to execute there is the last,
// and so is what a call at that address belongs to.
func TestViews(t *testing.T) {
	p := compile(t, t.TempDir(), "prog", "-O2")
	out, err := exec.Command("objdump", "--dwarf=decodedline", p).Output()
	require.NoError(t, err)
	type view struct {
		addr uint64
		file string
		line int // 0: the code ends here
	}
	var rows []view
	format := regexp.MustCompile(`^(\S+)\s+(\d+|-)\s+0x([0-9a-f]+)(\s|$)`)
	for line := range strings.Lines(string(out)) {
		m := format.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		addr, err := strconv.ParseUint(m[3], 16, 64)
		require.NoError(t, err)
		n, _ := strconv.Atoi(m[2])
		rows = append(rows, view{addr, m[1], n})
	}
	require.Greater(t, len(rows), 50)
	sort.SliceStable(rows, func(i, j int) bool { return rows[i].addr < rows[j].addr })
	o := open(t, p, Options{})
	several, compared := 0, 0
	for i, r := range rows {
		if i+1 < len(rows) && rows[i+1].addr == r.addr {
			if rows[i+1].line != r.line {
				several++
			}
			continue // not the last view
		}
		if r.line == 0 || i+1 == len(rows) {
			continue
		}
		for addr := r.addr; addr < rows[i+1].addr; addr++ {
			got := o.Lookup(addr, Want{Lines: true})
			require.NotEmpty(t, got, "%#x", addr)
			assert.Equal(t, r.line, got[0].Line, "%#x", addr)
			assert.Equal(t, r.file, filepath.Base(got[0].File), "%#x", addr)
			compared++
		}
	}
	all := 0
	for l := range o.Lines() {
		got := o.Lookup(l.Start, Want{Lines: true})
		require.NotEmpty(t, got)
		assert.Equal(t, Frame{File: l.File, Line: l.Line}, got[0])
		assert.Equal(t, got, o.Lookup(l.End-1, Want{Lines: true}))
		all += int(l.End - l.Start)
	}
	assert.Equal(t, compared, all)
	t.Logf("%d addresses; %d times a view of an address is followed by one of another line", compared, several)
	assert.Greater(t, compared, 200)
	assert.Greater(t, several, 5)
}
