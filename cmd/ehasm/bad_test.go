//go:build unix

package main

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/inspect"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// checkBad builds a bad file together with a good one: one line that begins with
// the file's name, status 1, no file left but the good one's.
func checkBad(t *testing.T, bad []byte, want string) {
	t.Helper()
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	path := writeFile(t, filepath.Join(dir, "bad.so"), bad)
	good := writeFile(t, filepath.Join(dir, "good.so"), smallELF(t, 0))
	r := ehasm(t, "build", "-o", out, path, good)
	assert.Equal(t, exitFailed, r.code)
	assert.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
	assert.True(t, strings.HasPrefix(r.stderr, "ehasm: "+path+": "), r.stderr)
	assert.Contains(t, r.stderr, want)
	assert.Equal(t, []string{"good.so.eh_elf.so"}, files(t, out))
}

// sectionField returns the offset of a field of section 2, .eh_frame.
func sectionField(t *testing.T, off int) int {
	return int(binary.LittleEndian.Uint64(smallELF(t, 0)[40:])) + 2*64 + off
}

func TestBadFiles(t *testing.T) {
	bigEndian := patched(t, elf.EI_DATA, byte(elf.ELFDATA2MSB))
	copy(bigEndian[16:], []byte{0, 3, 0, 22}) // ET_DYN, EM_S390
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":            {nil, "not an ELF file"},
		"text":             {[]byte("#!/bin/sh\necho no\n"), "not an ELF file"},
		"short":            {[]byte("\x7fELF"), "truncated"},
		"ELF32":            {patched(t, elf.EI_CLASS, byte(elf.ELFCLASS32)), "ELF32"},
		"class":            {patched(t, elf.EI_CLASS, 9), "class"},
		"other machine":    {patched(t, 18, byte(elf.EM_AARCH64)), "EM_AARCH64"},
		"big-endian":       {bigEndian, "big-endian"},
		"core":             {patched(t, 16, byte(elf.ET_CORE)), "core file"},
		"relocatable":      {patched(t, 16, byte(elf.ET_REL)), "relocatable"},
		"ELF type":         {patched(t, 16, 77), "not an executable or shared object"},
		"no unwind tables": {patched(t, sectionField(t, 0), 1), "no unwind tables"}, // a second .text
		"section outside":  {patched(t, sectionField(t, 24), 0, 0, 0, 0x7f), ".eh_frame"},
		"section too large": {patched(t, sectionField(t, 32), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f),
			".eh_frame"},
		"section wraps": {patched(t, sectionField(t, 32), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
			"section size"},
		"program headers": {patched(t, 32, 0xff, 0xff, 0xff), "program headers"},
		"section headers": {patched(t, 40, 0xff, 0xff, 0xff), "section headers"},
		"all FDEs bad":    {patched(t, 0x140+8, 77), "77"},
	} {
		t.Run(name, func(t *testing.T) { checkBad(t, c.file, c.want) })
	}
}

// TestDumpBadFile: each stage says the same of a file that is no x86-64 ELF file.
func TestDumpBadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad")
	for want, file := range map[string][]byte{
		"not an ELF file":        []byte("#!/bin/sh\n"),
		"not an x86-64 ELF file": patched(t, 18, byte(elf.EM_AARCH64)),
		"truncated: ":            smallELF(t, 0)[:400],
	} {
		writeFile(t, path, file)
		for _, stage := range inspect.Stages() {
			if stage == "types" && want == "not an ELF file" { // which may be BTF
				want = "neither an ELF file nor BTF"
			}
			r := ehasm(t, "dump", "--stage", stage, path)
			assert.Equal(t, exitFailed, r.code, stage)
			assert.True(t, strings.HasPrefix(r.stderr, "ehasm: "+path+": "+want), "%s: %s", stage, r.stderr)
			assert.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
		}
	}
}

// TestTruncated cuts a small file at every byte.
func TestTruncated(t *testing.T) {
	whole := smallELF(t, 0)
	dir := t.TempDir()
	path := filepath.Join(dir, "cut.so")
	for n := range whole {
		writeFile(t, path, whole[:n])
		r := ehasm(t, "build", path)
		require.Equal(t, exitFailed, r.code, "%d bytes", n)
		require.Equal(t, 1, strings.Count(r.stderr, "\n"), "%d bytes: %s", n, r.stderr)
		require.True(t, strings.HasPrefix(r.stderr, "ehasm: "+path+": "), "%d bytes: %s", n, r.stderr)
		require.Empty(t, r.stdout)
		require.Equal(t, []string{"cut.so"}, files(t, dir), "%d bytes", n)
	}
}

// TestBadFolder: in a folder, what is none of ours is skipped; what is damaged
// is skipped, counted and named, and with --strict a failure.
func TestBadFolder(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "core"), patched(t, 16, byte(elf.ET_CORE)))
	writeFile(t, filepath.Join(dir, "elf32"), patched(t, elf.EI_CLASS, 1))
	writeFile(t, filepath.Join(dir, "text"), []byte("text"))
	writeFile(t, filepath.Join(dir, "good.so"), smallELF(t, 0))
	writeFile(t, filepath.Join(dir, "notables"), patched(t, sectionField(t, 0), 1))
	r := ehasm(t, "build", dir)
	assert.Equal(t, exitDone, r.code, r.stderr)
	assert.Empty(t, r.stderr)
	assert.Contains(t, r.stdout,
		"\nskipped: no unwind tables (1), not an ELF file (1), not an executable or shared object (1), not an x86-64 ELF file (1)\n")

	writeFile(t, filepath.Join(dir, "cut.so"), smallELF(t, 0)[:400])
	r = ehasm(t, "build", dir)
	assert.Equal(t, exitDone, r.code)
	assert.Regexp(t, `^ehasm: .*cut\.so: truncated.*\n$`, r.stderr)
	assert.Contains(t, r.stdout, "good.so")
	assert.Contains(t, r.stdout, "damaged (1)")
	r = ehasm(t, "build", "--strict", dir)
	assert.Equal(t, exitFailed, r.code)
	assert.Regexp(t, `^ehasm: .*cut\.so: truncated.*\n$`, r.stderr)
	r = ehasm(t, "build", filepath.Join(dir, "cut.so"))
	assert.Equal(t, exitFailed, r.code, "named by the user")
}

// TestSomeFDEsBad: the rest of the object is compiled, and it is said; --strict
// makes it a failure, for an up-to-date file as well.
func TestSomeFDEsBad(t *testing.T) {
	dir := t.TempDir()
	file := smallELF(t, 0)
	second := 0x140 + 0x38
	file[second+4+4+4+4+1] = 0x3f // an unknown DW_CFA_*
	path := writeFile(t, filepath.Join(dir, "a.so"), file)
	r := ehasm(t, "build", "--strict", path)
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stderr, "ehasm: "+path+": .eh_frame+0x38: FDE 0x120..0x140: ")
	assert.Equal(t, []string{"a.so"}, files(t, dir))

	r = ehasm(t, "build", path)
	assert.Equal(t, exitDone, r.code, r.stderr)
	assert.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
	assert.Contains(t, r.stderr, "left out: FDEs unsupported (1); the first: .eh_frame+0x38: ")
	assert.Contains(t, r.stdout, "  FDEs unsupported (1)\n")
	r = ehasm(t, "build", path)
	assert.Contains(t, r.stdout, "up to date  FDEs unsupported (1)")
	r = ehasm(t, "build", "-v", "--force", path)
	assert.Contains(t, r.stderr, ": left out: .eh_frame+0x38: ")
	assert.Equal(t, exitFailed, ehasm(t, "build", "--strict", path).code)
}

func TestBadTarget(t *testing.T) {
	dir := t.TempDir()
	a := writeFile(t, filepath.Join(dir, "a.so"), smallELF(t, 0))
	b := writeFile(t, filepath.Join(dir, "b.so"), smallELF(t, 1))
	line := func(r result, want string) {
		t.Helper()
		assert.Equal(t, exitFailed, r.code)
		assert.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
		assert.Contains(t, r.stderr, want)
	}
	out := filepath.Join(dir, "out")
	require.NoError(t, os.MkdirAll(filepath.Join(out, "a.so.eh_elf.so"), 0o755))
	line(ehasm(t, "build", "-o", out, a, b), "ehasm: "+a+": "+out+"/a.so.eh_elf.so: is a folder")
	assert.Equal(t, []string{"b.so.eh_elf.so"}, files(t, out))

	require.NoError(t, os.Remove(filepath.Join(out, "a.so.eh_elf.so")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(out, "a.so.eh_elf.so"), 0o644))
	line(ehasm(t, "build", "-o", out, a, b), "is not a regular file")

	line(ehasm(t, "build", "-o", a, b), "ehasm: "+a+": cannot make the folder: not a directory")
	line(ehasm(t, "build", "-o", filepath.Join(a, "x"), b), "not a directory")

	link := filepath.Join(dir, "c.so") // its eh_elf would be a link where a folder is
	require.NoError(t, os.Symlink("a.so", link))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "c.so.eh_elf.so"), 0o755))
	line(ehasm(t, "build", a, link), "c.so.eh_elf.so: is a folder")
	assert.Equal(t, []string{"a.so", "a.so.eh_elf.so", "b.so", "c.so", "out/a.so.eh_elf.so", "out/b.so.eh_elf.so"},
		files(t, dir))
}

// TestFullTarget builds to a file system that has no room.
func TestFullTarget(t *testing.T) {
	dir := t.TempDir()
	full := filepath.Join(dir, "full")
	require.NoError(t, os.Mkdir(full, 0o755))
	if err := mountSmall(full, 16<<10); err != nil {
		t.Skip("needs to mount a small file system:", err)
	}
	defer syscall.Unmount(full, 0)
	writeFile(t, filepath.Join(full, "filler"), make([]byte, 16<<10))
	a := writeFile(t, filepath.Join(dir, "a.so"), smallELF(t, 0))
	r := ehasm(t, "build", "-o", full, a)
	assert.Equal(t, exitFailed, r.code)
	assert.Equal(t, "ehasm: "+a+": "+full+"/a.so.eh_elf.so: cannot write: no space left on device\n", r.stderr)
	assert.Equal(t, []string{"filler"}, files(t, full))
}

// TestNoRights runs the command as someone who may not read or write.
func TestNoRights(t *testing.T) {
	prog := goBuild(t)
	dir, err := os.MkdirTemp("", "ehasm-rights-")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	require.NoError(t, os.Chmod(dir, 0o777))
	call := func(args ...string) result {
		cmd := exec.Command(prog, args...)
		cmd.Dir = dir
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Run()
		return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	}
	writeFile(t, filepath.Join(dir, "in/good.so"), smallELF(t, 0))
	require.NoError(t, os.Chmod(writeFile(t, filepath.Join(dir, "in/secret.so"), smallELF(t, 1)), 0))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "in/closed"), 0o700))
	require.NoError(t, os.Chmod(filepath.Join(dir, "in/closed"), 0))
	defer os.Chmod(filepath.Join(dir, "in/closed"), 0o700)

	r := call("build", "-o", "out", "in")
	assert.Equal(t, exitFailed, r.code)
	assert.Equal(t, "ehasm: in/closed: open: permission denied\nehasm: in/secret.so: open: permission denied\n",
		r.stderr)
	assert.Equal(t, []string{"good.so.eh_elf.so"}, files(t, filepath.Join(dir, "out")))
	assert.Contains(t, r.stdout, "in/good.so")

	r = call("build", "-o", "out2", "in/secret.so", "in/good.so")
	assert.Equal(t, exitFailed, r.code)
	assert.Equal(t, "ehasm: in/secret.so: open: permission denied\n", r.stderr)
	assert.Equal(t, []string{"good.so.eh_elf.so"}, files(t, filepath.Join(dir, "out2")))

	require.NoError(t, os.Chmod(filepath.Join(dir, "in"), 0o555))
	r = call("build", "in/good.so")
	assert.Equal(t, exitFailed, r.code)
	assert.Equal(t, "ehasm: in/good.so: in/good.so.eh_elf.so: cannot create a temporary file beside it: permission denied\n", r.stderr)
	require.NoError(t, os.Chmod(filepath.Join(dir, "in"), 0o755))
	require.NoError(t, os.Chmod(filepath.Join(dir, "in/closed"), 0o700))
	assert.Equal(t, []string{"good.so", "secret.so"}, files(t, filepath.Join(dir, "in")))
}

// TestNames: names that would break a line are quoted.
func TestNames(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"new\nline.so", "\x1b[31mred.so", "\xff\xfe.so", "quote\".so", " .so", "größe.so",
		strings.Repeat("x", 255-len(".eh_elf.so"))} {
		path := writeFile(t, filepath.Join(dir, fmt.Sprint(i), name), smallELF(t, 0))
		r := ehasm(t, "build", path)
		assert.Equal(t, exitDone, r.code, r.stderr)
		assert.Equal(t, 3, strings.Count(r.stdout, "\n"), r.stdout)
		assert.Contains(t, r.stdout, output.Name(path))
		assert.FileExists(t, path+".eh_elf.so")
		r = ehasm(t, "prove", path+".eh_elf.so")
		assert.Equal(t, exitDone, r.code, r.stderr)
		assert.True(t, strings.HasPrefix(r.stdout, output.Name(path+".eh_elf.so")+": proven: "), r.stdout)
		assert.Equal(t, 1, strings.Count(r.stdout, "\n"), r.stdout)

		bad := writeFile(t, filepath.Join(dir, "bad", fmt.Sprint(i), name), []byte("text"))
		r = ehasm(t, "build", bad)
		assert.Equal(t, "ehasm: "+output.Name(bad)+": not an ELF file\n", r.stderr)
		r = ehasm(t, "build", bad+"gone")
		assert.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
	}
	long := writeFile(t, filepath.Join(dir, strings.Repeat("x", 250)), smallELF(t, 0))
	r := ehasm(t, "build", long)
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stderr, "file name too long")
	assert.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
}
