//go:build unix

package runtime_test

import (
	"debug/elf"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/dwarfcfa"
)

var nothingWrong = regexp.MustCompile(
	`\d,\d{3} instructions, (99\.9\d|100\.00) % checked: 0 errors, 0 warnings(, \d notes?)?\n`)

// TestRows: the libraries' own unwind tables agree with their code, but for those of the compiler's
// libgcc where it changes the context, and have each function. Profilers unwind through it, too.
func TestRows(t *testing.T) {
	k := makeKit(t)
	for _, lib := range []string{"libgcc/libgcc_s.so.1", "libehunwind.so.2", "libehunwind-preload.so",
		"libehunwind-record.so"} {
		out := mustOutput(t, k.path("ehasm"), "check", "--notes", k.path(lib))
		assert.Regexp(t, nothingWrong, out)
		for line := range strings.Lines(out) {
			if _, note, found := strings.Cut(line, ": note: "); found {
				assert.Regexp(t, `^libgcc__Unwind_.*\(change of context\)`, note)
			}
		}
		requireRows(t, k.path(lib))
	}
}

// requireRows requires a row at each end of each function that has a size: the C library's start
// files have functions without.
func requireRows(t *testing.T, path string) {
	t.Helper()
	o, err := dwarfcfa.Open(path)
	require.NoError(t, err)
	defer o.Close()
	table, _, err := dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{})
	require.NoError(t, err)
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.Symbols()
	require.NoError(t, err)
	functions := 0
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF || s.Size == 0 {
			continue
		}
		functions++
		for _, pc := range []uint64{s.Value, s.Value + s.Size - 1} {
			_, found := table.Lookup(dwarfcfa.Addr(pc))
			assert.True(t, found, "%s: %s, %#x", path, s.Name, pc)
		}
	}
	assert.Greater(t, functions, 50, path)
}
