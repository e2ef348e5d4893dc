//go:build linux && amd64

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bombs is a program of functions with given names: of C++, Rust, one that is inlined, and one made at run time.
const bombs = `#include <cstdio>
#include <cstring>
#include <ctime>
#include <sys/mman.h>
#include <unistd.h>
volatile int n;
inline __attribute__((always_inline)) void spin() { clock_t end = clock() + CLOCKS_PER_SEC / 10; do n = n + 1; while (clock() < end); }
__attribute__((noinline)) void cpp() asm("%[1]s");
void cpp() { spin(); n = 1; }
__attribute__((noinline)) void rust() asm("%[2]s");
void rust() { spin(); n = 2; }
inline __attribute__((always_inline)) void inlined() asm("%[3]s");
inline void inlined() { spin(); n = 3; }
__attribute__((noinline)) void outside() { inlined(); n = 4; }
int main() {
	cpp(); rust(); outside();
	const char code[] = "\xb9\x00\x00\x00\x08\xff\xc9\x75\xfc\xc3"; // mov $1<<27, %%ecx; 1: dec %%ecx; jnz 1b; ret
	void *made = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(made, code, sizeof code);
	char path[64];
	snprintf(path, sizeof path, "/tmp/perf-%%d.map", getpid());
	FILE *map = fopen(path, "w");
	fprintf(map, "%%lx 1000 %%s\n", (long)made, "%[3]s");
	fclose(map);
	((void (*)())made)();
	puts(path);
}
`

// TestNameBombs: names that doubling makes of are cut, wherever they come from, and the profile is written.
func TestNameBombs(t *testing.T) {
	testtool.Need(t, "g++")
	dir := t.TempDir()
	source, program := filepath.Join(dir, "a.cc"), filepath.Join(dir, "a")
	cpp, rust := testtool.NameBombs(40)
	inlined, _ := testtool.NameBombs(41)
	require.NoError(t, os.WriteFile(source, fmt.Appendf(nil, bombs, cpp, rust, inlined), 0o666))
	out, err := exec.Command("g++", "-O1", "-g", "-o", program, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	const most = 64 << 10
	run := func(args ...string) string {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		cmd := exec.CommandContext(ctx, goBuild(t), args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "XDG_CACHE_HOME="+dir, "HOME="+dir)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		require.NoError(t, cmd.Run(), "%s", &stderr)
		if path := strings.TrimSpace(stdout.String()); strings.HasPrefix(path, "/tmp/perf-") {
			t.Cleanup(func() { os.Remove(path) })
		}
		return stderr.String()
	}
	for _, args := range [][]string{
		{"record", "-o", "p.folded", "--raw", "raw.data", program},
		{"record", "-o", "p.folded", "--inline", "--signatures", program},
		{"script", "--format=folded", "--inline", "-o", "p.folded", "-i", "raw.data"},
		{"record", "--no-demangle", "-o", "p.folded", program},
	} {
		run(args...)
		b, err := os.ReadFile(filepath.Join(dir, "p.folded"))
		require.NoError(t, err)
		assert.Less(t, len(b), 100*most, "%q", args)
		for _, name := range []string{"f<a<int, int>, a<a<int", "a::f::<(isize, isize), ((isize"} {
			assert.Equal(t, args[1] != "--no-demangle", strings.Contains(string(b), name), "%q %s", args, name)
		}
		for _, name := range strings.FieldsFunc(string(b), func(r rune) bool { return r == ';' || r == '\n' }) {
			assert.Less(t, len(name), most+len("()_[i] 1000000"))
			if len(name) >= most {
				assert.Regexp(t, `\.\.\.(\(\))?(_\[[ij]\])?( [0-9]+)?$`, name[most-3:])
			}
		}
	}
}

// workerProgram has a thread of another name, which takes the time.
const workerProgram = `#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>
static volatile int n;
static void *work(void *arg) {
	pthread_setname_np(pthread_self(), "worker");
	for (clock_t end = clock() + CLOCKS_PER_SEC / 5; clock() < end;) n = n + 1;
	return arg;
}
int main(void) {
	pthread_t t;
	pthread_create(&t, 0, work, 0);
	pthread_join(t, 0);
	return 0;
}
`

// TestProcessNames: in timelines a process has the name of its main thread, although others take the time.
func TestProcessNames(t *testing.T) {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "server.c"), []byte(workerProgram), 0o666))
	out, err := exec.Command("gcc", "-O1", "-pthread", "-o", filepath.Join(dir, "server"),
		filepath.Join(dir, "server.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	r := recordIn(t, dir, "-q", "-F", "199", "-o", "p.json.gz", "--raw", "p.data", "./server")
	require.Zero(t, r.code, r.stderr)
	r = ehasm(t, "script", "-q", "--cache=false", "-i", filepath.Join(dir, "p.data"), "-o",
		filepath.Join(dir, "s.json.gz"))
	require.Zero(t, r.code, r.stderr)
	for _, name := range []string{"p.json.gz", "s.json.gz"} {
		file, err := os.Open(filepath.Join(dir, name))
		require.NoError(t, err)
		defer file.Close()
		zip, err := gzip.NewReader(file)
		require.NoError(t, err)
		var p struct {
			Threads []struct{ Name, ProcessName string }
		}
		require.NoError(t, json.NewDecoder(zip).Decode(&p))
		names := make(map[string]string) // of processes, by thread
		for _, th := range p.Threads {
			names[th.Name] = th.ProcessName
		}
		assert.Equal(t, "server", names["worker"], "%s: %v", name, p.Threads)
	}
}
