//go:build adversary && linux && amd64

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/cdecltest"
)

// TestAdversarySignatures has damaged debug information of types and lines.
func TestAdversarySignatures(t *testing.T) {
	goBuild(t)
	dir := t.TempDir()
	source := cdecltest.Source(t)
	var seeds []seed
	for _, flag := range []string{"-g", "-gdwarf-4", "-gbtf"} {
		path := cdecltest.Build(t, source, filepath.Join(dir, "prog"), "-O1", "-shared", "-fPIC", flag)
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		seeds = append(seeds, elfSeed(t, flag, b))
	}
	newAdversary(t, "signatures").turns(seeds, "dump --stage=types IN", "dump --stage=types --json IN",
		"dump --stage=lines IN")
}

// TestAdversaryFix has damaged objects beside their source, and damaged sources beside their object.
func TestAdversaryFix(t *testing.T) {
	goBuild(t)
	for _, assembler := range [][]string{{"as", "-g", "-o"}, {"clang", "-c", "-gdwarf-5", "-o"}} {
		begin := func(target string) (a *adversary, object []byte) {
			a = newAdversary(t, target)
			t.Chdir(a.dir)
			require.NoError(t, os.WriteFile("f.s", []byte(badDirectives), 0o600))
			out, err := exec.Command(assembler[0], append(assembler[1:], "f.o", "f.s")...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			object, err = os.ReadFile("f.o")
			require.NoError(t, err)
			return a, object
		}
		a, object := begin("fix")
		a.turns([]seed{elfSeed(t, assembler[0], object)}, "check --fix IN")
		a, _ = begin("fix-source")
		a.each([]seed{textSeed("source", badDirectives)}, func(i int, b []byte) int {
			require.NoError(t, os.WriteFile("f.s", b, 0o600))
			require.NoError(t, os.Chtimes("f.s", time.Unix(1, 0), time.Unix(1, 0))) // older than the object
			return a.command(i, "check", "--fix", "f.o").code
		})
	}
}
