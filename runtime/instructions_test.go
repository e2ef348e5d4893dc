//go:build unix

package runtime_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestInstructions bounds what a walk costs: single steps of walks of two depths give the instructions of a frame,
// and those of a walk without frames.
func TestInstructions(t *testing.T) {
	k := makePreload(t)
	program, preload := k.path("instructions"), k.path("libehunwind-preload.so")
	require.Empty(t, runAll([][]string{
		k.gcc("instructions", "testdata/instructions.c", k.path("libehunwind.a"), "-lunwind", "-lgcc_s", "-pthread"),
		{k.path("ehasm"), "build", "-q", "--deps", "-o", k.path("eh-instructions"), program, preload},
	}))
	cmd := exec.Command(program, "6", "46")
	cmd.Env = append(os.Environ(), "EHASM_PATH="+k.path("eh-instructions"), "XDG_CACHE_HOME="+t.TempDir(),
		"LD_PRELOAD="+preload)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	shallow, deep, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	few, many := walksOf(t, shallow), walksOf(t, deep)
	for name, most := range map[string]cost{
		"ehu_backtrace":     {walk: 130, frame: 7},
		"recorder":          {walk: 150, frame: 7},
		"backtrace":         {walk: 205, frame: 7},
		"unw_backtrace":     {walk: 195, frame: 7},
		"_Unwind_Backtrace": {walk: 225, frame: 55},
		"cursor":            {walk: 790, frame: 70},
	} {
		a, b := few[name], many[name]
		require.Equal(t, a.frames+40, b.frames, name)
		frame := (b.instructions - a.instructions) / 40
		walk := a.instructions - a.frames*frame
		t.Logf("%s: %d + %d a frame", name, walk, frame)
		assert.LessOrEqual(t, walk, most.walk, name)
		assert.LessOrEqual(t, frame, most.frame, name)
	}
}

// cost is in instructions.
type cost struct{ walk, frame int }

type counted struct{ frames, instructions int }

// walksOf reads a line of testdata/instructions.c.
func walksOf(t *testing.T, line string) map[string]counted {
	walks := map[string]counted{}
	for _, text := range strings.Split(line, ", ") {
		var name string
		var c counted
		_, err := fmt.Sscan(text, &name, &c.frames, &c.instructions)
		require.NoError(t, err, "%q", line)
		walks[name] = c
	}
	return walks
}
