package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// preloading runs the command with a library that announces itself.
type preloading struct {
	dir, prog, library, cache string
}

func newPreloading(t *testing.T) *preloading {
	t.Helper()
	testtool.Need(t, "gcc")
	p := &preloading{dir: t.TempDir(), prog: goBuild(t), cache: t.TempDir()}
	p.library = p.announcer(t, "lib/"+preloadName)
	return p
}

// announcer makes a library that writes its name where it is loaded.
func (p *preloading) announcer(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(p.dir, name)
	code := fmt.Sprintf(`#include <unistd.h>
__attribute__((constructor)) static void here(void) { if (write(2, "in %s\n", %d) < 0) _exit(9); }`,
		filepath.Base(name), len(filepath.Base(name))+4)
	source := writeFile(t, path+".c", []byte(code))
	out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", path, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

func (p *preloading) run(t *testing.T, env []string, args ...string) result {
	t.Helper()
	return p.runProgram(t, p.prog, env, append([]string{"--library", p.library}, args...)...)
}

func (p *preloading) runProgram(t *testing.T, prog string, env []string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(prog, append([]string{"preload"}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+p.cache, "LD_PRELOAD=")
	cmd.Env = append(cmd.Env, env...)
	require.NoError(t, cmd.Start())
	pid := cmd.Process.Pid
	err := cmd.Wait()
	if _, exited := err.(*exec.ExitError); !exited {
		require.NoError(t, err)
	}
	return result{cmd.ProcessState.ExitCode(), strings.ReplaceAll(stdout.String(), fmt.Sprint("pid ", pid),
		"pid OURS"), stderr.String()}
}

// cached returns the eh_elf of an object in the cache.
func (p *preloading) cached(t *testing.T, object string) string {
	t.Helper()
	f, err := os.Open(object)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	o, err := dwarfcfa.NewFile(object, f, info.Size())
	require.NoError(t, err)
	name, err := builder.CacheName(o.BuildID())
	require.NoError(t, err)
	return filepath.Join(p.cache, "ehasm", ".build-id", name)
}

const libc = "/lib/x86_64-linux-gnu/libc.so.6"

func TestPreload(t *testing.T) {
	p := newPreloading(t)
	program := []string{"sh", "-c", `echo "pid $$ $0 $* [$LD_PRELOAD]"; exit 7`, "zero", "-h", "--", "x y"}
	want := result{7, "pid OURS zero -h -- x y [" + p.library + "]\n", "in " + preloadName + "\n"}
	assert.Equal(t, want, p.run(t, nil, program...))
	assert.Equal(t, want, p.run(t, nil, append([]string{"--"}, program...)...))
	for _, object := range []string{"/bin/sh", libc, p.library} {
		assert.FileExists(t, p.cached(t, object))
	}

	// What is there already is left alone.
	stamp := time.Unix(1e9, 0)
	require.NoError(t, os.Chtimes(p.cached(t, libc), stamp, stamp))
	assert.Equal(t, want, p.run(t, nil, program...))
	st, err := os.Stat(p.cached(t, libc))
	require.NoError(t, err)
	assert.True(t, st.ModTime().Equal(stamp))

	// A signal that ends the program is the caller's to see.
	assert.Equal(t, -1, p.run(t, nil, "sh", "-c", "kill -9 $$").code)

	// A library that is preloaded already stays behind this one, and gets its
	// eh_elf.
	other := p.announcer(t, "other.so")
	r := p.run(t, []string{"LD_PRELOAD=" + other}, "sh", "-c", "echo $LD_PRELOAD")
	assert.Equal(t, p.library+":"+other+"\n", r.stdout)
	assert.FileExists(t, p.cached(t, other))

	// Signals that nohup has ignored.
	out, err := exec.Command("sh", "-c",
		"trap '' HUP; exec "+p.prog+" preload --library "+p.library+" grep SigIgn /proc/self/status").Output()
	require.NoError(t, err)
	ignored, err := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(string(out), "SigIgn:")), 16, 64)
	require.NoError(t, err, "%s", out)
	const own = 1<<31 - 1 // glibc's posix_spawn, by which make starts the tests, ignores 32 and 33
	assert.EqualValues(t, 1, ignored&own)

	// A timer that a profiler has set would end the program.
	const perl = "perl -MTime::HiRes=getitimer,setitimer,ITIMER_PROF -e "
	out, err = exec.Command("sh", "-c", perl+"'setitimer(ITIMER_PROF, 1000); exec @ARGV' "+p.prog+" preload --library "+
		p.library+" "+perl+"'print int getitimer(ITIMER_PROF)'").Output()
	require.NoError(t, err)
	assert.Equal(t, "0", string(out))
}

func TestPreloadScripts(t *testing.T) {
	p := newPreloading(t)
	for content, program := range map[string]string{
		"#!/bin/sh -e\necho $LD_PRELOAD $1\n":               "/bin/sh",
		"#!/usr/bin/env perl\nprint \"$ENV{LD_PRELOAD} a\"": "/usr/bin/perl",
		"echo $LD_PRELOAD $1\n":                             "/bin/sh",
	} {
		name := writeFile(t, filepath.Join(p.dir, "script"), []byte(content))
		r := p.run(t, nil, name, "a")
		assert.Equal(t, exitDone, r.code, r.stderr)
		assert.Equal(t, p.library+" a", strings.TrimSpace(r.stdout))
		assert.FileExists(t, p.cached(t, program))
	}
}

// TestPreloadLibrary is about where the library is looked for.
func TestPreloadLibrary(t *testing.T) {
	p := newPreloading(t)
	b, err := os.ReadFile(p.prog)
	require.NoError(t, err)
	install := func(prog, library string) string {
		dir := t.TempDir()
		if library != "" {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, library)), 0o755))
			require.NoError(t, os.Symlink(p.library, filepath.Join(dir, library)))
		}
		return writeFile(t, filepath.Join(dir, prog), b)
	}
	for _, prog := range []string{
		install("bin/ehasm", "lib/"+preloadName), install("ehasm", "build/runtime/"+preloadName),
		install("ehasm", preloadName),
		install("bin/ehasm", "lib/x86_64-linux-gnu/"+preloadName),
	} {
		assert.Equal(t, result{exitDone, "", "in " + preloadName + "\n"}, p.runProgram(t, prog, nil, "true"))
	}
	none := install("ehasm", "")
	r := p.runProgram(t, none, nil, "true")
	assert.Equal(t, exitFailed, r.code)
	assert.Regexp(t, `^ehasm: libehunwind-preload\.so: not found beside .*'make runtime'.*\n$`, r.stderr)
	r = p.runProgram(t, none, []string{preloadVariable + "=" + p.library}, "true")
	assert.Equal(t, result{exitDone, "", "in " + preloadName + "\n"}, r)
	for _, bad := range []string{"/nowhere/x.so", "/etc/passwd", "/", p.announcer(t, "a b.so")} {
		r = p.runProgram(t, none, []string{preloadVariable + "=" + p.library}, "--library", bad, "true")
		assert.Equal(t, exitFailed, r.code)
		assert.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
	}
}

func TestPreloadRefusals(t *testing.T) {
	p := newPreloading(t)
	static := writeFile(t, filepath.Join(p.dir, "static"), smallELF(t, 0))
	text := writeFile(t, filepath.Join(p.dir, "text"), nil)
	require.NoError(t, os.Chmod(text, 0o644))
	for command, want := range map[string]struct {
		code int
		line string
	}{
		"no-such-command": {exitNotFound, "not found"},
		"./no/such":       {exitNotFound, "not found"},
		text:              {exitNotExecutable, "not executable"},
		p.dir:             {exitNotExecutable, "is a folder"},
		static:            {exitFailed, "statically linked"},
	} {
		r := p.run(t, nil, command)
		assert.Equal(t, want.code, r.code, command)
		assert.Contains(t, r.stderr, want.line)
		assert.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
	}
}

// TestPreloadWarnings: what cannot be compiled does not stop the program.
func TestPreloadWarnings(t *testing.T) {
	p := newPreloading(t)
	damaged := writeFile(t, filepath.Join(p.dir, "damaged.so"), smallELF(t, 0)[:0x150])
	sound := p.announcer(t, "plugins/sound.so")
	r := p.run(t, nil, "--with", damaged, "--with", "/nowhere/x.so", "--with", filepath.Dir(sound), "echo", "on")
	assert.Equal(t, exitDone, r.code)
	assert.Equal(t, "on\n", r.stdout)
	assert.Regexp(t, `(?m)^ehasm: .*/damaged\.so: .*$`, r.stderr)
	assert.Regexp(t, `(?m)^ehasm: /nowhere/x\.so: .*$`, r.stderr)
	assert.FileExists(t, p.cached(t, sound))
	r = p.run(t, nil, "-q", "--with", damaged, "echo", "on")
	assert.Equal(t, result{exitDone, "on\n", "in " + preloadName + "\n"}, r)

	// No place for a cache: the program runs.
	r = p.run(t, []string{"XDG_CACHE_HOME=", "HOME="}, "echo", "on")
	assert.Equal(t, exitDone, r.code)
	assert.Equal(t, "on\n", r.stdout)
	assert.Contains(t, r.stderr, "neither XDG_CACHE_HOME nor HOME is set")
}
