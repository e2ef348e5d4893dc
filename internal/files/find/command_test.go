package find

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

func script(t *testing.T, path, content string, mode os.FileMode) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), mode))
	return path
}

func TestCommand(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	plain := script(t, filepath.Join(a, "tool"), "", 0o644)
	tool := script(t, filepath.Join(b, "tool"), "", 0o755)
	script(t, filepath.Join(a, "plain"), "", 0o644)
	require.NoError(t, os.Mkdir(filepath.Join(a, "folder"), 0o755))
	path := a + ":" + filepath.Join(plain, "no folder") + "::" + b

	found, err := Command("tool", path)
	require.NoError(t, err)
	assert.Equal(t, tool, found, "the first that is executable")
	for name, want := range map[string]error{
		"none": ErrCommandNotFound, "": ErrCommandNotFound, "plain": ErrNotExecutable, "folder": ErrNotExecutable,
		plain: ErrNotExecutable, plain + "/x": ErrCommandNotFound, dir: ErrNotExecutable,
		dir + "/none": ErrCommandNotFound,
	} {
		_, err := Command(name, path)
		assert.ErrorIs(t, err, want, name)
	}
	t.Chdir(b)
	found, err = Command("tool", ":"+a)
	require.NoError(t, err)
	assert.Equal(t, "./tool", found, "an empty folder is the current one")

	own := script(t, filepath.Join(dir, "own"), "", 0o700)
	closed := filepath.Join(dir, "closed")
	script(t, filepath.Join(closed, "tool"), "", 0o755)
	require.NoError(t, os.Chmod(closed, 0o700))
	testtool.AsOther(t, dir, func() {
		_, err := Command(tool, "")
		assert.NoError(t, err)
		if _, err = Command(own, ""); os.Geteuid() == 0 { // or it is the other's own
			assert.ErrorIs(t, err, ErrNotExecutable)
			_, err = Command("tool", closed)
			assert.ErrorIs(t, err, ErrCommandNotFound, "as shells have it")
			_, err = Command(filepath.Join(closed, "tool"), "")
			assert.ErrorIs(t, err, ErrNotExecutable)
		}
	})
}

func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	const sh = "/bin/sh"
	for content, want := range map[string][]string{
		"#!/bin/sh\n":                            {sh},
		"#! \t/bin/sh\t-e  x \n":                 {sh},
		"#!/bin/sh":                              {sh},
		"#!/usr/bin/env sh\n":                    {"/usr/bin/env", dir + "/sh"},
		"#!/usr/bin/env -S A=1 sh -e\n":          {"/usr/bin/env", dir + "/sh"},
		"#!/usr/bin/env -Ssh -e\n":               {"/usr/bin/env", dir + "/sh"},
		"#!/usr/bin/env no-such-program-at-all":  {"/usr/bin/env"},
		"#!/usr/bin/env":                         {"/usr/bin/env"},
		"echo neither ELF nor a line with #!\n":  {sh},
		"":                                       {sh},
		"#!\n":                                   {sh},
		"#!" + dir + "/inner\n":                  {sh},
		"#!" + sh + strings.Repeat(" x", 300):    {sh},
		"\x7fELF":                                {dir + "/script"},
		"#!/usr/bin/env sh\n#!/bin/something\n":  {"/usr/bin/env", dir + "/sh"},
		"#!/bin/sh\n\x7fELF the rest is nothing": {sh},
	} {
		script(t, dir+"/inner", "#!/bin/sh\n", 0o755)
		if _, err := os.Lstat(dir + "/sh"); err != nil {
			require.NoError(t, os.Symlink(sh, dir+"/sh"))
		}
		got, err := Programs(script(t, dir+"/script", content, 0o755), dir)
		require.NoError(t, err, content)
		assert.Equal(t, want, got, content)
	}
	_, err := Programs(script(t, dir+"/a", "#!/nowhere/sh\n", 0o755), dir)
	assert.ErrorIs(t, err, ErrCommandNotFound)
	assert.ErrorContains(t, err, "its interpreter /nowhere/sh")
	_, err = Programs(script(t, dir+"/b", "#!/etc/passwd\n", 0o755), dir)
	assert.ErrorIs(t, err, ErrNotExecutable)
	_, err = Programs(script(t, dir+"/c", "#!"+dir+"/c\n", 0o755), dir)
	assert.ErrorContains(t, err, "lead to one another")
}

func TestPreloadObstacle(t *testing.T) {
	assert.NoError(t, PreloadObstacle("/bin/sh"))
	assert.NoError(t, PreloadObstacle("/lib64/ld-linux-x86-64.so.2"), "of the program that it is given")
	dir := t.TempDir()
	assert.ErrorContains(t, PreloadObstacle(script(t, dir+"/text", "text", 0o755)), "not an x86-64 ELF object")
	assert.Error(t, PreloadObstacle(dir+"/none"))
	assert.ErrorContains(t, PreloadObstacle("/usr/lib/x86_64-linux-musl/libc.so"), "statically linked", "no PT_INTERP")

	// A program of another user that is set-uid.
	program := "/bin/su"
	if os.Getuid() == 0 {
		b, err := os.ReadFile("/bin/true")
		require.NoError(t, err)
		program = script(t, dir+"/setuid", string(b), 0o755)
		require.NoError(t, PreloadObstacle(program))
		require.NoError(t, os.Chmod(program, 0o755|os.ModeSetuid))
		assert.NoError(t, PreloadObstacle(program), "one's own")
		require.NoError(t, os.Chown(program, 1, -1))
		require.NoError(t, os.Chmod(program, 0o755|os.ModeSetuid))
	}
	assert.ErrorContains(t, PreloadObstacle(program), "set-uid")
}

func TestSharedObject(t *testing.T) {
	assert.NoError(t, SharedObject("/usr/lib/x86_64-linux-musl/libc.so"))
	assert.ErrorIs(t, SharedObject("/etc/passwd"), errNotCandidate)
	assert.Error(t, SharedObject(t.TempDir()))
	assert.Error(t, SharedObject("/dev/null"))
}
