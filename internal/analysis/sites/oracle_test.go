package sites_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/sites"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// TestPersonality compares sites with what libstdc++'s own personality routine
// answers about the same file: at the first and last byte of each site and at
// the bytes around it.
func TestPersonality(t *testing.T) {
	testtool.Need(t, "g++")
	testtool.DependsOn(t, "testdata")
	dir := t.TempDir()
	oracle := filepath.Join(dir, "oracle")
	out, err := exec.Command("g++", "-O1", "-w", "-o", oracle, "testdata/oracle.cc").CombinedOutput()
	require.NoError(t, err, "%s", out)
	files := map[string]bool{} // the value: must have sites
	lib, err := exec.Command("g++", "-print-file-name=libstdc++.so.6").Output()
	require.NoError(t, err)
	files[strings.TrimSpace(string(lib))] = true
	for i, flags := range testtool.Sweep([]string{"-O0", "-O2", "-O2 -no-pie", "-O2 -static"}) {
		exe := filepath.Join(dir, fmt.Sprint("p", i))
		require.NoError(t, os.WriteFile(exe, compiled(t, strings.Fields(flags)...), 0o755))
		files[exe] = true
	}
	for _, more := range strings.Fields(os.Getenv("EHASM_SITES_FILES")) {
		files[more] = true
	}
	for file := range files {
		require.NotZero(t, compare(t, oracle, file), file)
	}
}

// compare returns how many pcs were compared.
func compare(t *testing.T, oracle, file string) int {
	t.Helper()
	o, err := dwarfcfa.Open(file)
	require.NoError(t, err)
	defer o.Close()
	sections, err := o.Sections(dwarfcfa.SourceEHFrame)
	require.NoError(t, err)
	table, _ := sites.Build(o, sections)
	type question struct {
		f  *sites.Function
		pc sites.Addr
	}
	var asked []question
	var in bytes.Buffer
	for i := range table.Functions {
		f := &table.Functions[i]
		if f.Personality < 0 || f.LSDA == 0 {
			continue
		}
		for _, s := range f.Sites {
			for _, pc := range []sites.Addr{s.Start - 1, s.Start, s.End - 1, s.End} {
				if pc >= f.Start && pc < f.End {
					asked = append(asked, question{f, pc})
					fmt.Fprintf(&in, "%x %x %x\n", uint64(f.Start), uint64(f.LSDA), uint64(pc))
				}
			}
		}
	}
	cmd := exec.Command(oracle, file)
	cmd.Stdin = &in
	out, err := cmd.Output()
	require.NoError(t, err, file)
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	require.Len(t, lines, len(asked))
	const handler, install, goOn = 6, 7, 8
	for i, q := range asked {
		var search, clean int
		var pad uint64
		var selector int64
		_, err := fmt.Sscanf(lines[i], "%d %d %x %d", &search, &clean, &pad, &selector)
		require.NoError(t, err)
		_, s := table.Lookup(q.pc)
		where := fmt.Sprintf("%s: %#x: %v, the routine says %s", file, uint64(q.pc), s, lines[i])
		switch s.Kind {
		case sites.Skip:
			require.True(t, search == goOn && clean == goOn, where)
		case sites.Cleanup:
			require.True(t, search == goOn && clean == install && pad == uint64(s.Pad) && selector == 0, where)
		case sites.Action:
			require.True(t, search == handler || search == goOn && clean == goOn, where)
		case sites.ActionCleanup:
			require.True(t, search == handler || search == goOn && clean == install && pad == uint64(s.Pad) &&
				selector == 0, where)
		case sites.Ask:
			// No call site: terminate; or an exception specification.
			require.True(t, search == handler || s.Start != 0, where)
		}
	}
	t.Logf("%s: %d pcs", file, len(asked))
	return len(asked)
}
