package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/ehasm/ehasm/compile"

	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	testscript.Main(cleaning{m}, map[string]func(){"ehasm": main})
}

// cleaning removes the built command after the tests.
type cleaning struct{ *testing.M }

func (m cleaning) Run() int {
	os.Unsetenv("DEBUGINFOD_URLS") // tests ask no server but their own
	testtool.CatchIgnored()
	defer func() {
		if built.path != "" {
			os.RemoveAll(filepath.Dir(built.path))
		}
	}()
	return m.M.Run()
}

// TestScript runs the scripts of testdata/script at the top of the repository.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("..", "..", "testdata", "script"),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// smallelf FILE [SEED] writes a small x86-64 shared object.
			"smallelf": func(ts *testscript.TestScript, _ bool, args []string) {
				seed := byte(0)
				if len(args) > 1 {
					seed = args[1][0] - '0'
				}
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), smallELF(t, seed), 0o755))
			},
		},
	})
}

// result is what a call of the command came to.
type result struct {
	code           int
	stdout, stderr string
}

// ehasm calls the command.
func ehasm(t testing.TB, args ...string) result {
	t.Helper()
	return ehasmContext(t, context.Background(), args...)
}

func ehasmContext(t testing.TB, ctx context.Context, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// entryFlag is what make build has the linker do.
const entryFlag = "-E main.entry"

// program is the built command; goBuild makes it once.
type program struct {
	once sync.Once
	path string
	err  error
}

var built program

func goBuild(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		dir, err := os.MkdirTemp("", "ehasm-test-")
		if err != nil {
			built.err = err
			return
		}
		os.Chmod(dir, 0o755) // another user runs it, too
		built.path = filepath.Join(dir, "ehasm")
		// Without the commit, which Go stamps only for the checkout's owner: the release in files
		// would depend on who tests.
		args := []string{"build", "-buildvcs=false", "-o", built.path}
		if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
			args = append(args, "-ldflags", entryFlag)
		}
		cmd := exec.Command("go", append(args, ".")...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			built.err = assert.AnError
			t.Logf("%s", out)
		}
	})
	require.NoError(t, built.err)
	return built.path
}

// files lists what is below a folder, sorted.
func files(t testing.TB, dir string) []string {
	t.Helper()
	var names []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			names = append(names, rel)
		}
		return err
	}))
	sort.Strings(names)
	return names
}

func writeFile(t testing.TB, path string, content []byte) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, content, 0o755))
	return path
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{}, {"frobnicate"}, {"build"}, {"build", "--frobnicate", "x"}, {"build", "-j", "0", "x"},
		{"check", "-j", "0", "x"}, {"synth", "-j", "0", "x"}, {"script", "-j", "0"}, {"build", "-j", "many", "x"},
		{"build", "--pid", "0"}, {"build", "--source=stabs", "x"}, {"build", "--dispatch=hash", "x"},
		{"build", "-q", "-v", "x"},
		{"build", "-o", "", "x"}, {"build", "--system", "--root", "", "x"}, {"dump", "--pc", "", "x"},
		{"build", "--root", "r", "x"}, {"build", "--system", "--root", "r", "--vdso"},
		{"build", "--system", "--root", "r", "--pid", "1"},
		{"dump"}, {"dump", "a", "b"}, {"dump", "--stage=tea", "x"}, {"dump", "--pc", "main", "x"},
		{"dump", "--source=stabs", "x"},
		{"info"}, {"version", "x"}, {"help", "frobnicate"},
		{"preload"}, {"preload", "--"}, {"preload", "--frobnicate", "x"}, {"preload", "-j", "0", "x"},
		{"preload", "--dispatch=hash", "x"},
	} {
		r := ehasm(t, args...)
		assert.Equal(t, exitUsage, r.code, "%q", args)
		assert.Empty(t, r.stdout, "%q", args)
		assert.NotEmpty(t, r.stderr, "%q", args)
	}
	assert.Equal(t, usage(), ehasm(t).stderr)
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"--help"}, {"-h"}, {"help", "help"}} {
		assert.Equal(t, result{exitDone, usage(), ""}, ehasm(t, args...), "%q", args)
	}
	for _, v := range verbs() {
		r := ehasm(t, v.name, "--help")
		assert.Equal(t, exitDone, r.code)
		assert.Empty(t, r.stderr)
		assert.Contains(t, r.stdout, "Examples:\n  ehasm "+v.name)
		assert.Equal(t, r, ehasm(t, "help", v.name))
		if v.command {
			args, code := []string{v.name, "no such command", "-h"}, exitNotFound
			switch v.name {
			case "top": // there is no terminal
				code = exitFailed
			case "agent":
				args = []string{v.name, "--flight=1s", "no such command", "-h"}
			}
			assert.Equal(t, code, ehasm(t, args...).code, "the command's flag")
		} else {
			assert.Equal(t, r, ehasm(t, v.name, "x", "-h"), "flags may follow arguments")
		}
		for line := range strings.Lines(r.stdout) {
			assert.LessOrEqual(t, len(line), 121, line)
		}
		assert.Contains(t, usage(), "\n  "+v.name)
	}
}

// TestHelpWidth: help fits a terminal of 80 columns.
func TestHelpWidth(t *testing.T) {
	texts := []string{usage(), perfHelp}
	for _, v := range verbs() {
		texts = append(texts, ehasm(t, v.name, "--help").stdout)
	}
	for _, text := range texts {
		for line := range strings.Lines(text) {
			assert.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), helpWidth, line)
		}
	}
}

// TestNearest: a mistyped verb is answered with the one that was meant.
func TestNearest(t *testing.T) {
	for name, want := range map[string]string{"biuld": "build", "recrod": "record", "scr": "script", "prov": "prove",
		"chekc":   "check",
		"versoin": "version", "p": "", "frobnicate": "", "": "", "dumpp": "dump",
		"halp": "help", "heap-": "heap", "dupm": "dump", "hea": "heap", "hexp": ""} {
		if want != "" {
			want = fmt.Sprintf("; did you mean %q?", want)
		}
		assert.Equal(t, want, meant(name), name)
	}
	assert.Contains(t, ehasm(t, "biuld").stderr, "unknown verb \"biuld\"; did you mean \"build\"?\n")
}

func TestVersion(t *testing.T) {
	r := ehasm(t, "version")
	assert.Equal(t, exitDone, r.code)
	assert.Contains(t, r.stdout, "ehasm "+compile.Release+"\neh_elf ABI version 1\n")
	for _, other := range []string{"--version", "-V", "-v"} {
		assert.Equal(t, r, ehasm(t, other))
	}
	assert.Contains(t, ehasm(t, "man").stdout, `"ehasm `+compile.Release+`"`)
	// Of a checkout, too, whose commit Go knows.
	prog := filepath.Join(t.TempDir(), "ehasm")
	out, err := exec.Command("go", "build", "-buildvcs=auto", "-o", prog, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(prog, "version").Output()
	require.NoError(t, err)
	assert.Equal(t, r.stdout, string(out))
}

// TestGoEnvironment: golang-asm's initialisation ends the process on values of
// these that are newer than itself.
func TestGoEnvironment(t *testing.T) {
	prog := goBuild(t)
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "a.so"), smallELF(t, 0))
	for _, env := range []string{"GOARM=7,hardfloat", "GOARM=x", "GOMIPS=x", "GOMIPS64=x", "GOPPC64=power10",
		"GOPPC64=x", "GOWASM=x",
		"GOAMD64=x", "GO386=x", "GOOS=darwin", "GOARCH=arm", "GOEXPERIMENT=x", "GOROOT=/nowhere"} {
		cmd := exec.Command(prog, "build", "--force", file)
		cmd.Env = append(os.Environ(), env)
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s: %s", env, out)
	}
}
