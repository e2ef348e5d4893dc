//go:build adversary && linux && amd64

package main

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	adversaryKills   = flag.Int("kills", 500, "moments at which each command is ended")
	adversaryWriters = flag.String("writers", "", "only commands whose names begin so")
)

// writer is a command that writes files below a folder.
type writer struct {
	name string
	args func(dir string) []string
	env  func(dir string) []string
	old  map[string]string // what is there before
}

func writers(t *testing.T) []writer {
	t.Helper()
	goBuild(t)
	var inputs []string
	for _, path := range []string{"/bin/ls", "/lib/x86_64-linux-gnu/libm.so.6"} {
		if _, err := os.Stat(path); err == nil {
			inputs = append(inputs, path)
		}
	}
	require.NotEmpty(t, inputs)
	in := t.TempDir()
	for i, s := range objects(t) {
		path := filepath.Join(in, fmt.Sprint("f", i))
		require.NoError(t, os.WriteFile(path, s.bytes, 0o644))
	}
	inputs = append(inputs, in)
	r, rec := recording(t, 20000)
	cache := func(dir string) []string { return []string{"XDG_CACHE_HOME=" + dir, "HOME=" + dir} }
	script := func(format string) writer {
		return writer{"script --format=" + format, func(dir string) []string {
			return []string{"script", "-q", "--cache=false", "--kallsyms=", "--symfs", r.root, "--format", format,
				"-i", rec, "-o", filepath.Join(dir, "out")}
		}, cache, map[string]string{"out": "old"}}
	}
	all := []writer{
		{"build", func(dir string) []string {
			return append([]string{"build", "-q", "--force", "-o", dir}, inputs...)
		}, cache, nil},
		{"build --cache", func(dir string) []string {
			return append([]string{"build", "-q", "--force", "--cache"}, inputs...)
		}, cache, nil},
		script("perf"), script("pprof"),
		{"script that fills the cache", func(dir string) []string {
			return []string{"script", "-q", "--kallsyms=", "--symfs", r.root, "-i", rec, "-o",
				filepath.Join(dir, "out")}
		}, cache, map[string]string{"out": "old"}},
	}
	return slices.DeleteFunc(all, func(w writer) bool { return !strings.HasPrefix(w.name, *adversaryWriters) })
}

func (w *writer) command(dir string, before ...string) *exec.Cmd {
	args := append(before, built.path)
	args = append(args, w.args(dir)...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), w.env(dir)...)
	return cmd
}

func (w *writer) prepare(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.Mkdir(dir, 0o755))
	for name, text := range w.old {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}

// contents returns the files below a folder, without those that are temporary, and their number.
func contents(t *testing.T, dir string) (all map[string]string, temporary int) {
	t.Helper()
	all = map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if strings.HasPrefix(d.Name(), ".ehasm-") || strings.HasPrefix(d.Name(), ".try") {
			temporary++
			return nil
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		all[rel] = string(b)
		return err
	}))
	return all, temporary
}

// requireWhole: each file is what it was before or what the whole run makes.
func (w *writer) requireWhole(t *testing.T, dir string, want map[string]string, how string) (whole, temporary int) {
	t.Helper()
	got, temporary := contents(t, dir)
	for name, text := range got {
		switch {
		case text == want[name]:
			whole++
		case w.old[name] != "" && text == w.old[name]:
		default:
			require.Failf(t, "half a file", "%s, %s: %s has %d bytes, not the %d of the whole one", w.name, how, name,
				len(text), len(want[name]))
		}
	}
	for name := range w.old {
		require.Contains(t, got, name, "%s, %s", w.name, how)
	}
	return whole, temporary
}

// reference returns what a run without disturbance makes, and how long it takes.
func (w *writer) reference(t *testing.T, dir string) (want map[string]string, took time.Duration, status int) {
	t.Helper()
	w.prepare(t, dir)
	begin := time.Now()
	cmd := w.command(dir)
	out, _ := cmd.CombinedOutput() // fails if some of the objects are refused
	took = time.Since(begin)
	require.NotContains(t, string(out), "internal")
	want, left := contents(t, dir)
	require.Zero(t, left)
	require.NotEmpty(t, want)
	return want, took, cmd.ProcessState.ExitCode()
}

// TestAdversaryKill ends the commands at random moments.
func TestAdversaryKill(t *testing.T) {
	r := rand.New(rand.NewPCG(*adversarySeed, 0))
	for _, w := range writers(t) {
		dir := filepath.Join(t.TempDir(), "out")
		want, took, status := w.reference(t, dir)
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
			ended, whole, left, none := 0, 0, 0, 0
			dir := filepath.Join(t.TempDir(), "out")
			w.prepare(t, dir)
			for i := range *adversaryKills {
				if sig != syscall.SIGKILL || i%4 == 0 { // else over what the run before has left
					w.prepare(t, dir)
				}
				cmd := w.command(dir)
				require.NoError(t, cmd.Start())
				time.Sleep(time.Duration(r.Float64() * 1.2 * float64(took)))
				cmd.Process.Signal(sig)
				cmd.Wait()
				if cmd.ProcessState.ExitCode() != status { // -1 if killed
					ended++
				}
				n, temporary := w.requireWhole(t, dir, want, fmt.Sprint(sig, " ", i))
				whole += n
				left += temporary
				if n == 0 {
					none++
				}
				if sig != syscall.SIGKILL {
					require.Zero(t, temporary, "%s, %v %d: temporary files are left", w.name, sig, i)
				}
			}
			t.Logf("%s: %v at %d moments of %.2f s: %d ended by it, %d files whole, 0 in part, %d runs with none, %d temporary files left", w.name, sig,
				*adversaryKills, took.Seconds(), ended, whole, none, left)
		}
		out, _ := w.command(dir).CombinedOutput() // fails for what is refused
		require.NotContains(t, string(out), "internal")
		n, _ := w.requireWhole(t, dir, want, "afterwards")
		require.Equal(t, len(want), n, "%s: all is made afterwards", w.name)
	}
}

// TestAdversaryNoSpace has every size of file system and of files up to what the commands take.
func TestAdversaryNoSpace(t *testing.T) {
	for _, w := range writers(t) {
		dir := filepath.Join(t.TempDir(), "out")
		want, _, _ := w.reference(t, dir)
		largest := 0
		for _, text := range want {
			largest = max(largest, len(text))
		}
		runs, failed := 0, 0
		once := func(how string, cmd *exec.Cmd, dir string) {
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			cmd.Run()
			runs++
			require.False(t, cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled(), "%s, %s: %v", w.name, how,
				cmd.ProcessState)
			n, temporary := w.requireWhole(t, dir, want, how)
			require.Zero(t, temporary, "%s, %s", w.name, how)
			if n < len(want) {
				failed++
				if !strings.HasSuffix(w.name, "cache") { // what cannot be kept is no failure there
					require.Equal(t, exitFailed, cmd.ProcessState.ExitCode(), "%s, %s", w.name, how)
					require.Contains(t, stderr.String(), "ehasm: ", "%s, %s", w.name, how)
				}
			}
		}
		// RLIMIT_FSIZE, in blocks of 512 bytes.
		const steps = 40
		for i := range steps + 1 {
			blocks := (largest/512 + 1) * i / steps
			w.prepare(t, dir)
			once(fmt.Sprintf("files of at most %d blocks", blocks),
				w.command(dir, "/bin/sh", "-c", fmt.Sprintf(`ulimit -f %d; exec "$0" "$@"`, blocks)), dir)
		}
		limited := runs
		small := filepath.Join(t.TempDir(), "small")
		require.NoError(t, os.Mkdir(small, 0o755))
		all := 0
		for _, text := range want {
			all += len(text)/4096 + 2
		}
		for i := range steps + 1 {
			pages := 2 + (all+32)*i/steps
			require.NoError(t, mountSmall(small, pages*4096), "takes root")
			for name, text := range w.old {
				require.NoError(t, os.WriteFile(filepath.Join(small, name), []byte(text), 0o644))
			}
			once(fmt.Sprintf("file system of %d pages", pages), w.command(small), small)
			require.NoError(t, syscall.Unmount(small, syscall.MNT_DETACH))
		}
		require.Less(t, failed, runs, "%s: the last has enough room", w.name)
		t.Logf("%s: %d limits of file size, %d sizes of file system: %d of the runs could not write all; 0 files in part, 0 temporary files left",
			w.name, limited, runs-limited, failed)
	}
}
