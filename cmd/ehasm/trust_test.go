//go:build linux && amd64

package main

import (
	"bytes"
	"context"
	"debug/elf"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/profile/ondemand"
	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const poisoned = 66 // exit status of a process that runs what poison writes

// poison has every function of the eh_elf at path end the process, and changes nothing else.
func poison(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	f, err := elf.NewFile(bytes.NewReader(b))
	require.NoError(t, err)
	info, err := elfout.ReadInfo(bytes.NewReader(b))
	require.NoError(t, err)
	i := slices.IndexFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 })
	require.GreaterOrEqual(t, i, 0)
	text := f.Progs[i]
	n := 0
	for _, s := range info.Symbols {
		if s.Exported {
			// mov $66, %edi; mov $SYS_exit_group, %eax; syscall
			code := []byte{0xbf, poisoned, 0, 0, 0, 0xb8, 231, 0, 0, 0, 0x0f, 0x05}
			copy(b[s.Addr-text.Vaddr+text.Off:], code)
			n++
		}
	}
	require.GreaterOrEqual(t, n, 2)
	require.NoError(t, os.WriteFile(path, b, 0o644))
}

// poisonedCache makes a recording, and a home with a cache that has a poisoned eh_elf for
// its program. It returns the home, the program, the eh_elf, and how script runs.
func poisonedCache(t *testing.T, samples int) (home, program, eh string, script func(args ...string) result) {
	t.Helper()
	r, in := recording(t, samples)
	home, program = t.TempDir(), filepath.Join(r.root, "bin/prog")
	require.NoError(t, os.Chmod(home, 0o755))
	require.NoError(t, os.Chmod(filepath.Dir(home), 0o755))
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", home)
	got := ehasm(t, "build", "-q", "--cache", "--synth=missing", program)
	require.Equal(t, result{}, got)
	for _, name := range files(t, home) {
		if strings.HasSuffix(name, abi.Suffix) {
			eh = filepath.Join(home, name)
		}
	}
	require.NotEmpty(t, eh)
	poison(t, eh)
	return home, program, eh, func(args ...string) result {
		cmd := exec.Command(goBuild(t),
			append([]string{"script", "--kallsyms=", "--format=folded", "--symfs", r.root, "-i", in}, args...)...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Run()
		return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	}
}

// ehElfFor returns what script makes in the background for a program. Unless proven, it
// takes what the cache has without a proof.
func ehElfFor(t *testing.T, program string, proven bool) []byte {
	t.Helper()
	opt := ondemand.Options{Keep: true}
	if !proven {
		opt.Proof = func([]byte, *dwarfcfa.Table) error { return nil }
	}
	return ehElfOf(t, ondemand.New(opt), program)
}

// ehElfOf returns the eh_elf of a program.
func ehElfOf(t *testing.T, d *ondemand.Maker, program string) []byte {
	t.Helper()
	f, err := os.Open(program)
	require.NoError(t, err)
	defer f.Close()
	st, err := f.Stat()
	require.NoError(t, err)
	image, err := d.EhElf(context.Background(), program, f, st.Size())
	require.NoError(t, err)
	return image
}

// TestCacheProven: script runs no code of the cache that it has not proven, whoever it
// is from, and tells of it.
func TestCacheProven(t *testing.T) {
	const variable = "EHASM_TEST_PROGRAM"
	if words := strings.Fields(os.Getenv(variable)); len(words) == 2 { // in a separate process
		o, err := ehelf.FromBytes(ehElfFor(t, words[1], words[0] == "proven"))
		require.NoError(t, err)
		regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
		regs.Reg[abi.RIP] = o.Note().Low
		o.Step(&regs, &ehelf.Memory{}, 0)
		return
	}
	whole := result{exitDone, "prog;_start;main 20000\n", ""}
	_, program, eh, script := poisonedCache(t, 20000)
	for how, want := range map[string]int{"unproven": poisoned, "proven": 0} {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
		cmd.Env = append(os.Environ(), variable+"="+how+" "+program)
		out, _ := cmd.CombinedOutput()
		assert.Equal(t, want, cmd.ProcessState.ExitCode(), "%s: %s", how, out)
	}
	assert.Equal(t, whole, script("-q", "--cache=false"))
	got := script("-q") // whether the eh_elf is looked at before the recording ends or not
	assert.Equal(t, whole.stdout, got.stdout)
	assert.Equal(t, exitDone, got.code)

	// What script does once the eh_elf has been looked at, in order.
	poison(t, eh)
	d := ondemand.New(ondemand.Options{Keep: true})
	ehElfOf(t, d, program)
	var stderr bytes.Buffer
	d.FillCache(context.Background(), 1, filling(newConsole(io.Discard, &stderr), false))
	assert.Contains(t, stderr.String(), "its eh_elf in the cache is not used, and made again: not proven: ")
	made, err := os.ReadFile(eh)
	require.NoError(t, err)
	assert.Equal(t, made, ehElfFor(t, program, true), "what is in the cache now is used")
}

// TestCacheOfOthers: script takes nothing from a cache that another user may have put there,
// and build --cache does not take it for up to date.
func TestCacheOfOthers(t *testing.T) {
	whole := result{exitDone, "prog;_start;main 10\n", ""}
	own := func(t *testing.T, path string) {
		testtool.NeedRoot(t, "to give a file away")
		require.NoError(t, os.Lchown(path, 65534, 65534))
	}
	// Where nothing is wrong, what the cache has is taken, if a proof does not stop it: the test can fail.
	_, program, eh, _ := poisonedCache(t, 10)
	before, err := os.ReadFile(eh)
	require.NoError(t, err)
	require.Equal(t, before, ehElfFor(t, program, false))

	for _, c := range []struct {
		name string
		do   func(t *testing.T, home, eh string) []string // what is added to the environment
	}{
		{"group may write the file", func(t *testing.T, home, eh string) []string {
			require.NoError(t, os.Chmod(eh, 0o664))
			return nil
		}},
		{"others may write the file", func(t *testing.T, home, eh string) []string {
			require.NoError(t, os.Chmod(eh, 0o666))
			return nil
		}},
		{"others may write the folder", func(t *testing.T, home, eh string) []string {
			require.NoError(t, os.Chmod(filepath.Dir(eh), 0o777))
			return nil
		}},
		{"shared XDG_CACHE_HOME", func(t *testing.T, home, eh string) []string {
			require.NoError(t, os.Chmod(filepath.Join(home, ".cache"), 0o777))
			return []string{"XDG_CACHE_HOME=" + filepath.Join(home, ".cache")}
		}},
		{"another's file", func(t *testing.T, home, eh string) []string {
			own(t, eh)
			return nil
		}},
		{"link to another's file", func(t *testing.T, home, eh string) []string {
			moved := filepath.Join(home, "moved")
			require.NoError(t, os.Rename(eh, moved))
			require.NoError(t, os.Symlink(moved, eh))
			own(t, moved)
			return nil
		}},
		{"link to a folder that others may write", func(t *testing.T, home, eh string) []string {
			moved := filepath.Join(home, "moved")
			require.NoError(t, os.Rename(filepath.Dir(eh), moved))
			require.NoError(t, os.Chmod(moved, 0o777))
			require.NoError(t, os.Symlink(moved, filepath.Dir(eh)))
			return nil
		}},
		{"another's home", func(t *testing.T, home, eh string) []string {
			require.NoError(t, filepath.WalkDir(home, func(path string, _ fs.DirEntry, err error) error {
				require.NoError(t, err)
				own(t, path)
				return nil
			}))
			return nil
		}},
		{"another's home with files of this user", func(t *testing.T, home, eh string) []string {
			own(t, home)
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			home, program, eh, script := poisonedCache(t, 10)
			for _, e := range c.do(t, home, eh) {
				name, value, _ := strings.Cut(e, "=")
				t.Setenv(name, value)
			}
			before, err := os.ReadFile(eh)
			require.NoError(t, err)
			assert.NotEqual(t, before, ehElfFor(t, program, false))
			assert.Equal(t, whole, script("-q", "--cache=false"))

			// A file that is not trusted is made again if the folder is this user's.
			got := ehasm(t, "build", "--cache", program)
			if got.code != exitDone {
				assert.Contains(t, got.stderr, "not trusted: ")
				after, err := os.ReadFile(eh)
				require.NoError(t, err)
				assert.Equal(t, before, after)
				return
			}
			assert.NotContains(t, got.stdout, "up to date")
			st, err := os.Lstat(eh)
			require.NoError(t, err)
			assert.Equal(t, fs.FileMode(0o644), st.Mode())
			assert.Equal(t, whole, script("-q", "--cache=false"))
		})
	}
}

// objectOf writes the program of a recording.
func objectOf(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "prog")
	write(t, programOf("main"), path)
	return path
}

// TestCacheFolders: they are for one user, whatever the umask.
func TestCacheFolders(t *testing.T) {
	object := objectOf(t)
	goBuild(t)
	for _, verb := range []string{"build", "script"} {
		home := t.TempDir()
		r, in := recording(t, 1000)
		t.Setenv("XDG_CACHE_HOME", "")
		t.Setenv("HOME", home)
		args := []string{"build", "-q", "--cache", object}
		if verb == "script" {
			args = []string{"script", "-q", "--kallsyms=", "--symfs", r.root, "-i", in, "-o", "/dev/null"}
		}
		require.Equal(t, result{}, shell(t, "umask 0", args...))
		n := 0
		require.NoError(t, filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
			require.NoError(t, err)
			st, err := os.Stat(path)
			require.NoError(t, err)
			switch {
			case path == home:
			case d.IsDir():
				n++
				assert.Equal(t, fs.FileMode(0o700), st.Mode().Perm(), path)
			case strings.HasSuffix(path, abi.TablesSuffix):
				n++
				assert.Equal(t, fs.FileMode(0o600), st.Mode().Perm(), path)
			default:
				n++
				assert.Equal(t, fs.FileMode(0o644), st.Mode().Perm(), path)
			}
			return nil
		}))
		assert.GreaterOrEqual(t, n, 4, verb)
		if verb == "build" {
			assert.Equal(t, 6, n, "folders, an eh_elf and tables")
		}
	}
}
