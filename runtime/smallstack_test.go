//go:build unix

package runtime_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// TestSmallStack throws on a stack that has no room for paths of files, where the eh_elf of an
// object is looked for and loaded that has come since the last exception.
func TestSmallStack(t *testing.T) {
	testtool.Need(t, "g++")
	k := makePreload(t)
	program := compileTo(t, filepath.Join(t.TempDir(), "smallstack"), "g++ -O1 -Wl,-z,now eh/testdata/smallstack.cc")
	out, err := exec.Command(program).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "caught 3\n", string(out))
	library, err := exec.Command("gcc", "-print-file-name=libresolv.so.2").Output()
	require.NoError(t, err)
	for _, with := range []string{program, strings.TrimSpace(string(library))} {
		got, _ := ehasmPreload(t, k, nil, "-q", "--with", with, "--", program)
		assert.Equal(t, "caught 3\n", got)
	}
}

// TestSwitchedStack: a walk on the stack of a makecontext reads no memory behind it, whichever thread switched to it.
func TestSwitchedStack(t *testing.T) {
	k := makeKit(t)
	require.Empty(t, runAll([][]string{
		k.gcc("switched", "testdata/switched.c", k.path("libehunwind.a"), "-pthread"),
		{k.path("ehasm"), "build", "-q", "--deps", "-o", k.path("eh-switched"), k.path("switched")},
	}))
	assert.Equal(t, "0 failures\n", k.mustRun(t, k.path("eh-switched"), nil, k.path("switched")))
}
