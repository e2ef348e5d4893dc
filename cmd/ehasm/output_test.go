//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/testing/cdecltest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recording writes a recording of one program with n samples and returns its path.
func recording(t *testing.T, samples int) (r *perfRecorder, path string) {
	t.Helper()
	goBuild(t) // before HOME, and with it Go's caches, is another
	r = newRecorder(t)
	write(t, programOf("main"), r.root, "bin/prog")
	r.exec(1, "prog", "/bin/prog", nil)
	for range samples {
		r.sample(1, inFunction, false)
	}
	path = filepath.Join(r.root, "perf.data")
	write(t, r.File(), path)
	return r, path
}

// shell runs the command by way of a shell that has set limits or the umask before.
func shell(t *testing.T, set string, args ...string) result {
	t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-c", set + `; exec "$0" "$@"`, goBuild(t)}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Run()
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// TestOutputFull: what a verb cannot write whole does not take the place of what is there,
// and it is the output that is blamed.
func TestOutputFull(t *testing.T) {
	r, in := recording(t, 2000)
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	for _, format := range strings.Split(formatNames(recordFormats()...), ", ") {
		for _, trap := range []string{":", "trap '' XFSZ"} {
			write(t, []byte("good"), out)
			got := shell(t, trap+"; ulimit -f 0", "script", "-q", "--cache=false", "--kallsyms=", "--symfs", r.root,
				"--format", format, "-i", in, "-o", out)
			assert.Equal(t, result{exitFailed, "", "ehasm: " + out + ": cannot write: file too large\n"}, got, format)
			assert.Equal(t, []string{"out"}, files(t, dir))
			b, err := os.ReadFile(out)
			require.NoError(t, err)
			assert.Equal(t, "good", string(b))
		}
	}
	// Later than the first write, too.
	got := shell(t, "ulimit -f 8", "script", "-q", "--cache=false", "--kallsyms=", "--symfs", r.root, "-i", in, "-o",
		out)
	assert.Equal(t, result{exitFailed, "", "ehasm: " + out + ": cannot write: file too large\n"}, got)
	assert.Equal(t, []string{"out"}, files(t, dir))
	got = shell(t, "ulimit -f 0", "script", "-q", "--cache=false", "--kallsyms=", "--symfs", r.root, "-i", in, "-o",
		"/dev/null", "--stats", out)
	assert.Equal(t, result{exitFailed, "", "ehasm: " + out + ": cannot write: file too large\n"}, got)
	assert.Equal(t, []string{"out"}, files(t, dir))

	if _, err := os.Stat("/dev/full"); err == nil {
		const full = "no space left on device\n"
		got = ehasm(t, "script", "-q", "--kallsyms=", "--symfs", r.root, "-i", in, "-o", "/dev/full")
		assert.Equal(t, result{exitFailed, "", "ehasm: /dev/full: cannot write: " + full}, got)
		got = shell(t, "exec >/dev/full", "script", "-q", "--cache=false", "--kallsyms=", "--symfs", r.root, "-i", in)
		assert.Equal(t, result{exitFailed, "", "ehasm: standard output: write /dev/stdout: " + full}, got)
	}
}

// TestOutputInterrupted ends script by a signal while it waits for a pipe: the file keeps
// what it had, and nothing is left beside it.
func TestOutputInterrupted(t *testing.T) {
	r, _ := recording(t, 10)
	pipe := r.Pipe()
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		write(t, []byte("good"), out)
		cmd := exec.Command(goBuild(t), "script", "-q", "--cache=false", "--kallsyms=", "--symfs", r.root, "-i", "-",
			"-o", out)
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		require.NoError(t, cmd.Start())
		_, err = in.Write(pipe)
		require.NoError(t, err)
		for len(files(t, dir)) < 2 { // until there is a temporary file
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, cmd.Process.Signal(sig))
		cmd.Process.Signal(sig) // as timeout(1) does
		cmd.Wait()
		assert.Equal(t, 128+int(sig), cmd.ProcessState.ExitCode(), "%v: %v", sig, cmd.ProcessState)
		assert.Equal(t, "ehasm: interrupted: "+out+" is not written\n", stderr.String())
		assert.Equal(t, []string{"out"}, files(t, dir))
		b, err := os.ReadFile(out)
		require.NoError(t, err)
		assert.Equal(t, "good", string(b))
	}
}

// TestPrivateObject: what is made from a file is no more open than that, also where root makes it for all users.
func TestPrivateObject(t *testing.T) {
	dir := t.TempDir()
	object := filepath.Join(dir, "private")
	b, err := os.ReadFile("/bin/true")
	require.NoError(t, err)
	for object, want := range map[string][2]fs.FileMode{filepath.Join(dir, "private"): {0o600, 0o700},
		filepath.Join(dir, "shared"): {0o640, 0o750}} {
		require.NoError(t, os.WriteFile(object, b, want[1]))
		for _, args := range [][]string{{"build", object}, {"convert", object, "-o", object + ".sframe"},
			{"synth", "--synth=all", object, "-o", object + ".debug"},
			{"convert", "--attach", object, "-o", object + ".attached"}} {
			r := ehasm(t, args...)
			require.Equal(t, exitDone, r.code, "%v %s", args, r.stderr)
		}
		for suffix, mode := range map[string]fs.FileMode{".eh_elf.so": want[0], ".sframe": want[0], ".debug": want[0],
			".attached": want[1]} {
			st, err := os.Stat(object + suffix)
			require.NoError(t, err)
			assert.Equal(t, mode, st.Mode(), object+suffix)
		}
	}
	require.NoError(t, os.WriteFile(object+".sframe", nil, 0o600))
	require.Equal(t, exitDone, ehasm(t, "convert", "/bin/true", "-o", object+".sframe").code)
	st, err := os.Stat(object + ".sframe")
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), st.Mode(), "of the file that was there")
}

// TestOutputMode: the output is no more open than the umask, the recording and what it
// replaces.
func TestOutputMode(t *testing.T) {
	r, in := recording(t, 1)
	out := filepath.Join(t.TempDir(), "out")
	for _, c := range []struct {
		umask           string
		in, before, out fs.FileMode
	}{{"022", 0o644, 0, 0o644}, {"077", 0o644, 0, 0o600}, {"0", 0o600, 0, 0o600}, {"0", 0o666, 0, 0o666},
		{"0", 0o640, 0, 0o640}, {"022", 0o644, 0o600, 0o600}} {
		for _, flags := range [][]string{{"-o", out}, {"-o", "/dev/null", "--stats", out}} {
			if c.before != 0 && len(flags) > 2 {
				continue
			}
			require.NoError(t, os.Chmod(in, c.in))
			os.Remove(out)
			if c.before != 0 {
				write(t, nil, out)
				require.NoError(t, os.Chmod(out, c.before))
			}
			got := shell(t, "umask "+c.umask,
				append([]string{"script", "-q", "--cache=false", "--kallsyms=", "--symfs", r.root, "-i", in},
					flags...)...)
			require.Equal(t, result{}, got)
			st, err := os.Stat(out)
			require.NoError(t, err)
			assert.Equal(t, c.out, st.Mode(), "%+v %v", c, flags)
		}
	}
}

// TestOutputPlaces has names for -o that are no regular file.
func TestOutputPlaces(t *testing.T) {
	r, in := recording(t, 3)
	want := "prog;_start;main 3\n"
	script := func(out string) []string {
		return []string{"script", "-q", "--cache=false", "--kallsyms=", "--symfs", r.root, "--format=folded", "-i",
			in, "-o", out}
	}
	dir := t.TempDir()
	assert.Equal(t, result{exitDone, want, ""}, ehasm(t, script("-")...))
	assert.Equal(t, result{exitDone, want, ""}, shell(t, ":", script("/dev/stdout")...))
	write(t, []byte("old\n"), dir, "file")
	assert.Equal(t, result{}, shell(t, "exec >>"+filepath.Join(dir, "file"), script("/dev/stdout")...))
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	read := make(chan string)
	go func() {
		f, err := os.Open(fifo)
		if err != nil {
			read <- fmt.Sprint(err)
			return
		}
		defer f.Close()
		b, _ := io.ReadAll(f)
		read <- string(b)
	}()
	assert.Equal(t, result{}, ehasm(t, script(fifo)...))
	assert.Equal(t, want, <-read)
	got := ehasm(t, script(filepath.Join(dir, "none", "out"))...)
	assert.Equal(t, exitFailed, got.code)
	assert.True(t, strings.HasSuffix(got.stderr,
		"/none/out: cannot create a temporary file beside it: no such file or directory\n"), got.stderr)
	assert.Equal(t, []string{"fifo", "file"}, files(t, dir))
	for _, dev := range []string{"/dev/stdout", "/dev/null"} {
		st, err := os.Lstat(dev)
		require.NoError(t, err)
		assert.False(t, st.Mode().IsRegular(), dev)
	}
}

// TestOutputIsInput: no verb overwrites what it reads, nor one of its outputs with another.
func TestOutputIsInput(t *testing.T) {
	r, in := recording(t, 1)
	dir := t.TempDir()
	object := writeFile(t, filepath.Join(dir, "a.so"), smallELF(t, 0))
	other := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(object, other))
	folder := filepath.Join(dir, "folder")
	write(t, r.File(), folder, "data")
	script := []string{"script", "-q", "--cache=false", "--kallsyms=", "--symfs", r.root}
	before := contentsOf(t, object, in, filepath.Join(folder, "data"))
	for _, args := range [][]string{
		{"convert", object, "-o", object},
		{"convert", object, "-o", other},
		{"synth", "--synth=all", object, "-o", object},
		{"check", object, "--write-baseline", object},
		append(script, "-i", in, "-o", in),
		append(script, "-i", in, "--stats", in, "-o", filepath.Join(dir, "x.svg")),
		append(script, "-i", object, "--before", in, "-o", in, "--format=svg"),
		append(script, "-i", folder, "-o", filepath.Join(folder, "data")),
	} {
		got := ehasm(t, args...)
		assert.Equal(t, exitUsage, got.code, "%q", args)
		assert.Contains(t, got.stderr, " would be overwritten: it is the input ", "%q", args)
	}
	got := ehasm(t, append(script, "-i", in, "-o", filepath.Join(dir, "new"), "--stats", dir+"/./new")...)
	assert.Equal(t, exitUsage, got.code)
	assert.Contains(t, got.stderr, "is named for two outputs")
	assert.Equal(t, before, contentsOf(t, object, in, filepath.Join(folder, "data")))
	assert.Equal(t, []string{"a.so", "folder/data", "link"}, files(t, dir))

	assert.Equal(t, exitDone, ehasm(t, "convert", object, "-o", os.DevNull).code)
	known := filepath.Join(dir, "known")
	for _, args := range [][]string{{"check", object, "--write-baseline", known},
		{"check", object, "--baseline", known, "--write-baseline", known}} {
		assert.Equal(t, exitDone, ehasm(t, args...).code, "a baseline may be brought up to date")
	}
}

func contentsOf(t *testing.T, paths ...string) (all []string) {
	t.Helper()
	for _, path := range paths {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		all = append(all, string(b))
	}
	return all
}

// TestOutputDash: -o - gives the bytes of the file and nothing else on standard output.
func TestOutputDash(t *testing.T) {
	dir := t.TempDir()
	object := cdecltest.Build(t, cdecltest.Source(t), filepath.Join(dir, "a.so"))
	for _, verb := range [][]string{{"convert", object}, {"convert", "--json", object},
		{"synth", "--synth=all", object}} {
		file := filepath.Join(dir, "file")
		named := ehasm(t, append(verb, "-o", file)...)
		require.Equal(t, exitDone, named.code, named.stderr)
		piped := ehasm(t, append(verb, "-o", "-")...)
		assert.Equal(t, exitDone, piped.code, piped.stderr)
		assert.Equal(t, contentsOf(t, file)[0], piped.stdout)
		assert.Equal(t, strings.ReplaceAll(named.stdout, file, "-"), piped.stderr)
	}
}
