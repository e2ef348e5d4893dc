//go:build linux && amd64

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// touchProgram touches PAGES pages in one function.
const touchProgram = `#include <sys/mman.h>
__attribute__((noinline)) void touch(char *p) { for (int i = 0; i < PAGES; i++) p[i * 4096L] = 1; }
int main(void) {
	char *p = mmap(0, 4096L * PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(p, 4096L * PAGES, MADV_NOHUGEPAGE);
	touch(p);
	return 0;
}
`

// TestRecordEvents: each of several events has its values, which are as many as the program has caused.
func TestRecordEvents(t *testing.T) {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "touch.c"), []byte(touchProgram), 0o666))
	pages := int64(3000)
	if os.Geteuid() != 0 {
		pages = 100 // what an ordinary user may lock has room for these samples, however late they are read
	}
	out, err := exec.Command("gcc", "-O1", fmt.Sprintf("-DPAGES=%d", pages), "-o", filepath.Join(dir, "touch"),
		filepath.Join(dir, "touch.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	// Copies of 256 bytes: 6000 samples have room in the ring, however late they are read.
	for _, flags := range [][]string{{"-e", "page-faults,minor-faults"}, {"-e", "page-faults", "-e", "minor-faults", "-c",
		"10"}} {
		r := recordIn(t, dir, append(append([]string{"-q", "-o", "p.pb.gz", "--raw", "raw.data", "--stack-copy", "256"},
			flags...), "./touch")...)
		require.Zero(t, r.code, r.stderr)
		p := readPprof(t, filepath.Join(dir, "p.pb.gz"))
		var types []string
		for _, v := range p.SampleType {
			types = append(types, v.Type)
		}
		require.Equal(t, []string{"samples of page-faults", "page-faults", "samples of minor-faults", "minor-faults"}, types)
		faults := make([]int64, len(types))
		for _, s := range p.Sample {
			for _, l := range s.Location {
				if l.Line[0].Function.Name == "touch" {
					for i, v := range s.Value {
						faults[i] += v
					}
				}
			}
		}
		if len(flags) == 2 {
			assert.Equal(t, []int64{pages, pages, pages, pages}, faults)
		} else {
			for i := 0; i < len(faults); i += 2 { // each CPU counts to ten, and the program may move
				assert.Equal(t, 10*faults[i], faults[i+1])
				assert.InDelta(t, pages, faults[i+1], float64(10*runtime.NumCPU()))
			}
		}
		folded := ehasm(t, "script", "-q", "--cache=false", "--event", "minor-faults", "-i", filepath.Join(dir, "raw.data"))
		assert.Zero(t, folded.code, folded.stderr)
		assert.Contains(t, folded.stdout, "minor-faults")
		assert.NotContains(t, folded.stdout, "page-faults:")
	}
	for text, args := range map[string][]string{
		"-c and -F exclude each other":                             {"-c", "1", "-F", "9", "true"},
		"-c 9223372036854775808: want at most 9223372036854775807": {"-c", "9223372036854775808", "true"},
		"-c 0: want at least 1":                                    {"-c", "0", "true"},
		"page-faults is named twice":                               {"-e", "page-faults,page-faults", "true"},
		"use 'perf record --call-graph dwarf -e sched:*', and":     {"-e", "sched:*", "true"},
		"--filter goes with tracepoints, not with page-faults": {"-e", "cpu-clock", "-e", "page-faults", "--filter",
			"a == 1", "true"},
		"must follow the -e SYSTEM:TRACEPOINT that it is for": {"--filter", "a == 1", "-e", "cpu-clock", "true"},
		`unknown event "cyclse"; did you mean cycles?`:        {"-e", "cyclse", "true"},
		"no function nothing":                                 {"-e", "uprobe:/proc/self/exe:nothing", "true"},
		"the format svg holds one event":                      {"-e", "page-faults,cpu-clock", "-o", "p.svg", "true"},
		"off-cpu excludes other events and -c":                {"-e", "off-cpu,cpu-clock", "true"},
		"257 events: not possible: want at most 256":          {"-e", manyEvents(257), "true"},
	} {
		r := recordIn(t, dir, args...)
		assert.Equal(t, 2, r.code)
		assert.Contains(t, r.stderr, text)
	}
}

// manyEvents names n different events, which are all cpu-clock.
func manyEvents(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = "cpu-clock:" + strings.Repeat("u", i+1)
	}
	return strings.Join(names, ",")
}
