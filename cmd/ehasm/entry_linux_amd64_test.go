package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/asmgen/goenv"
	"github.com/ehasm/ehasm/compile"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const golangAsm = "github.com/twitchyliquid64/golang-asm"

// unknownToGolangAsm are values that end a process in golang-asm's initialisation.
func unknownToGolangAsm() []string {
	return []string{"GOARM=7,hardfloat", "GOMIPS=x", "GOPPC64=power10", "GOWASM=x", "GOOS=nowhere"}
}

// requireEnvironment: the program works in that environment, and hands it on.
func requireEnvironment(t *testing.T, prog string) {
	t.Helper()
	file := writeFile(t, filepath.Join(t.TempDir(), "a.so"), smallELF(t, 0))
	env := append(os.Environ(), unknownToGolangAsm()...)
	cmd := exec.Command(prog, "build", file)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd = exec.Command(prog, "preload", "--", "/usr/bin/env")
	cmd.Env = append(env, preloadVariable+"="+newPreloading(t).library, "XDG_CACHE_HOME="+t.TempDir())
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, variable := range unknownToGolangAsm() {
		assert.Contains(t, "\n"+string(out), "\n"+variable+"\n")
	}
	assert.NotContains(t, string(out), goenv.Hide)
}

// TestInitOrder: a program without its own entry, as go install makes it, and any that
// imports asmgen, depends on the order of import paths. Whoever gives the module a path that
// sorts after golang-asm's hears of it here.
func TestInitOrder(t *testing.T) {
	assert.Less(t, reflect.TypeFor[compile.Options]().PkgPath(), golangAsm)
	assert.Less(t, modulePath(t), golangAsm)
	prog := filepath.Join(t.TempDir(), "ehasm")
	out, err := exec.Command("go", "build", "-o", prog, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	requireEnvironment(t, prog)
}

func modulePath(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// TestModulePath: the command of make build works under a module path that sorts after golang-asm's.
func TestModulePath(t *testing.T) {
	top, dir, old := filepath.Join("..", ".."), t.TempDir(), []byte(modulePath(t))
	require.NoError(t, filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(top, path)
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && rel != "." && (name[0] == '.' || name == "testdata" || rel == "bench" || rel == "build"):
			return fs.SkipDir
		case strings.HasSuffix(name, "_test.go"):
		case strings.HasSuffix(name, ".go"), strings.HasSuffix(name,
			".s"), filepath.Dir(rel) == "internal/profile/flamegraph", name == "go.mod", name == "go.sum":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			writeFile(t, filepath.Join(dir, rel), bytes.ReplaceAll(text, old, []byte("zzz.example/last")))
		}
		return nil
	}))
	prog := filepath.Join(t.TempDir(), "ehasm")
	cmd := exec.Command("go", "build", "-ldflags", entryFlag, "-o", prog, "./cmd/ehasm")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	requireEnvironment(t, prog)
}

// TestHiddenNames: the names in entry's table are goenv's.
func TestHiddenNames(t *testing.T) {
	text, err := os.ReadFile("entry_linux_amd64.s")
	require.NoError(t, err)
	for _, name := range goenv.Names() {
		rest, ok := strings.CutPrefix(name+"=", "GO")
		require.True(t, ok)
		require.LessOrEqual(t, len(rest), 8)
		assert.Contains(t, string(text), `$"`+rest+strings.Repeat(`\x00`, 8-len(rest))+`"`)
	}
	assert.Equal(t, len(goenv.Names()), strings.Count(string(text), "DATA hiddennames")/2)
	assert.Equal(t, "\x01", goenv.Hide)
}

// TestOutputClosed: what cannot be written is a failure, also without a standard output.
func TestOutputClosed(t *testing.T) {
	prog := goBuild(t)
	for _, redirection := range []string{">&-", ">/dev/full"} {
		cmd := exec.Command("sh", "-c", `exec "$0" version `+redirection, prog)
		out, _ := cmd.CombinedOutput()
		assert.Equal(t, exitFailed, cmd.ProcessState.ExitCode(), redirection)
		assert.Regexp(t, `^ehasm: standard output: [^\n]+\n$`, string(out), redirection)
	}
	file := writeFile(t, filepath.Join(t.TempDir(), "a.so"), smallELF(t, 0))
	out, err := exec.Command("sh", "-c", `exec "$0" build -q "$1" >&-`, prog, file).CombinedOutput()
	assert.NoError(t, err, "nothing is to be written: %s", out)
}
