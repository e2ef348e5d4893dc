//go:build linux && amd64

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRecordGrow: programs that are executed once copies have grown are sampled once, not also with the shorter
// copies.
func TestRecordGrow(t *testing.T) {
	testtool.NeedRoot(t, "as the program is in the kernel most of the time")
	dir := t.TempDir()
	source, program := filepath.Join(dir, "a.c"), filepath.Join(dir, "a")
	require.NoError(t, os.WriteFile(source, []byte(`#include <time.h>
volatile int n;
__attribute__((noinline)) void spin(volatile char *p) { do p[0] = n++; while (clock() < CLOCKS_PER_SEC / 4); }
__attribute__((noinline)) void big(void) { volatile char room[30000]; for (int i = 0; i < 30000; i++) room[i] = 1; spin(room); room[1] = 2; }
int main(void) { big(); return 0; }
`), 0o666))
	out, err := exec.Command("gcc", "-O1", "-o", program, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	r := recordIn(t, dir, "--unwind=copy", "-o", "p.folded", "--stats", "stats.json", "sh", "-c",
		strings.Repeat(program+"; ", 6))
	require.Zero(t, r.code, r.stderr)
	b, err := os.ReadFile(filepath.Join(dir, "stats.json"))
	require.NoError(t, err)
	var s struct {
		Samples uint64
		Long    uint64 `json:"samples_with_longer_copies"`
	}
	require.NoError(t, json.Unmarshal(b, &s))
	const all = 6 * 999 / 4
	assert.Greater(t, s.Long, uint64(all/3), "copies have grown")
	assert.InDelta(t, all, s.Samples, all/4)
}

// TestRecordReleased: programs that are run once each and deleted have their names in the profile,
// though what is known of most is released before its end.
func TestRecordReleased(t *testing.T) {
	testtool.NeedRoot(t, "to have samples of each")
	dir := t.TempDir()
	source, program := filepath.Join(dir, "a.c"), filepath.Join(dir, "a")
	require.NoError(t, os.WriteFile(source, []byte(`#include <time.h>
int usleep(unsigned);
volatile int n;
__attribute__((noinline)) void spin(void) { do n++; while (clock() < CLOCKS_PER_SEC / 50); }
int main(void) { spin(); usleep(400000); return 0; }
`), 0o666))
	out, err := exec.Command("gcc", "-O1", "-o", program, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	const count, waiting = 80, 25 // programs of 20 MB each, and how many of them at most wait to be released
	r := recordIn(t, dir, "-o", "p.folded", "--stats", "stats.json", "sh", "-c",
		fmt.Sprintf("for i in $(seq %d); do (cp a b$i; truncate -s 20M b$i; ./b$i; rm b$i) & done; wait; sleep 1.5", count))
	require.Zero(t, r.code, r.stderr)
	b, err := os.ReadFile(filepath.Join(dir, "stats.json"))
	require.NoError(t, err)
	var s struct {
		Released int `json:"released_files"`
	}
	require.NoError(t, json.Unmarshal(b, &s))
	assert.Greater(t, s.Released, (count-waiting)/2)
	b, err = os.ReadFile(filepath.Join(dir, "p.folded"))
	require.NoError(t, err)
	named := 0
	for i := range count {
		if strings.Contains(string(b),
			fmt.Sprintf("b%d;_start;__libc_start_main@@GLIBC_2.34;__libc_start_call_main;main;spin", i+1)) {
			named++
		}
	}
	assert.GreaterOrEqual(t, named, count-count/15, "%s", b) // the reader may be late
}
