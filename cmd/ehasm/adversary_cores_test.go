//go:build adversary && linux && amd64

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/profile/ondemand"
	"github.com/ehasm/ehasm/internal/profile/perfcall"
	"github.com/ehasm/ehasm/stack"
)

// sleeper is a small program, so that its core is small.
const sleeper = `
__attribute__((noinline)) static long call(long n, long a, long b) { long r; asm volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(6L) : "rcx", "r11", "memory"); return r; }
__attribute__((noinline)) static long deep(long n) { volatile long k = n; if (n > 0) return deep(n - 1) + k; call(1, 1, (long)"ready\n"); return call(34, 0, 0); }
void start(void) { call(60, deep(8), 0); }
asm(".globl _start\n_start: .cfi_startproc\n.cfi_undefined rip\nxor %ebp, %ebp\ncall start\nhlt\n.cfi_endproc");
`

// cores has the core of a small program, as gdb and as the kernel write it: the order of its segments differs.
func cores(t *testing.T) (all []seed) {
	t.Helper()
	dir := t.TempDir()
	source, program := filepath.Join(dir, "s.c"), filepath.Join(dir, "sleeper")
	require.NoError(t, os.WriteFile(source, []byte(sleeper), 0o644))
	out, err := exec.Command("gcc", "-g", "-O1", "-static", "-nostdlib", "-Wl,--build-id", "-o", program,
		source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	pid := startTarget(t, program)
	for _, flags := range [][]string{nil, {"-a"}} {
		out, err = exec.Command("gcore", append(flags, "-o", filepath.Join(dir, "core"), fmt.Sprint(pid))...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("core.%d", pid)))
		require.NoError(t, err)
		s := elfSeed(t, fmt.Sprint("core ", flags), b)
		le := binary.LittleEndian
		for i := range int(le.Uint16(b[56:])) {
			p := b[64+56*i:]
			if le.Uint32(p) == 4 { // PT_NOTE
				for range 8 {
					s.regions = append(s.regions, [2]int{int(le.Uint64(p[8:])), int(le.Uint64(p[8:]) + le.Uint64(p[32:]))})
				}
			}
		}
		all = append(all, s)
	}
	require.Contains(t, ehasm(t, "stack", filepath.Join(dir, fmt.Sprintf("core.%d", pid))).stdout, " deep+0x")
	return all
}

func TestAdversaryStack(t *testing.T) {
	goBuild(t)
	newAdversary(t, "stack").turns(cores(t), "stack IN", "stack --merge --no-lines IN",
		"stack --frame-pointers=never --signatures IN",
		"stack --format=json -o OUT IN", "stack --format=pprof -o OUT IN", "stack --format=folded -o OUT IN")
}

// TestAdversaryCorePipe has cores that come by a pipe, in small parts.
func TestAdversaryCorePipe(t *testing.T) {
	seeds := cores(t)
	a := newAdversary(t, "corepipe")
	a.each(seeds, func(_ int, b []byte) int {
		require.NoError(t, os.WriteFile(filepath.Join(a.dir, "in"), b, 0o644))
		if _, err := stack.OpenDump(io.LimitReader(bytes.NewReader(b), int64(len(b)))); err != nil {
			return exitFailed
		}
		return exitDone
	})
}

// TestAdversaryOutputs has damaged recordings with chains, and what script makes of them for perf and as a timeline.
func TestAdversaryOutputs(t *testing.T) {
	goBuild(t)
	root, seeds := recordings(t)
	a := newAdversary(t, "outputs")
	in, out := filepath.Join(a.dir, "in"), filepath.Join(a.dir, "out")
	formats := []string{"perf.data", "firefox", "json --inline --lines", "pprof --lines"}
	a.each(seeds, func(i int, b []byte) int {
		require.NoError(t, os.WriteFile(in, b, 0o644))
		os.Remove(out)
		args := []string{"script", "--cache=false", "--kallsyms=", "--symfs", root, "-i", in, "-o", out, "--format"}
		code := a.command(i, append(args, strings.Fields(formats[i%len(formats)])...)...).code
		if i%len(formats) > 0 || code != exitDone {
			return code
		}
		return a.command(i, append(args[:5:5], "-i", out, "-o", os.DevNull)...).code // it reads what it writes
	})
}

// TestAdversaryCache has damaged eh_elfs in the user's cache: the command takes those that package prove accepts, and
// makes the others again.
func TestAdversaryCache(t *testing.T) {
	goBuild(t)
	r, _ := recording(t, 10)
	program := filepath.Join(r.root, "bin/prog")
	a := newAdversary(t, "cache")
	require.Equal(t, result{}, ehasm(t, "build", "-q", "--cache", "--synth=missing", program))
	found, err := filepath.Glob(filepath.Join(a.dir, "cache/*/.build-id/*/*.eh_elf.so"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	good, err := os.ReadFile(found[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(found[0], []byte("damaged"), 0o644))
	made := ehElfFor(t, program, true)
	a.each([]seed{elfSeed(t, "cached", good), elfSeed(t, "made", made)}, func(i int, b []byte) int {
		require.NoError(t, os.WriteFile(found[0], b, 0o644))
		d := ondemand.New(ondemand.Options{Keep: true})
		image := ehElfOf(t, d, program)
		switch err := d.Wants()[program]; {
		case bytes.Equal(image, b):
			return exitDone // proven
		case !bytes.Equal(image, made):
			a.keep(i, "neither what the cache had nor what is made")
		case err != nil:
			d.FillCache(context.Background(), 1, filling(newConsole(io.Discard, io.Discard), true))
			if kept, err := os.ReadFile(found[0]); err != nil || bytes.Equal(kept, b) {
				a.keep(i, "not proven, and not made again: %v", err)
			}
		}
		return exitFailed
	})
}

// perfWords are words of command lines of perf script.
var perfWords = strings.Fields(`-i --input --input= -F --fields -F+period -F-sym comm,tid,ip,sym,dso +srcline,-dso trace:ip -f --force -G
	--header --inline --inline=x --no-inline --max-stack --max-stack=0 --max-stack=99999999999999999999 -c --comm prog,other, --pid
	--tid=1,2 1 -1 0,0 1,x -C --cpu 0-3,7 3-0 0-16384 0-16385 --time 1.5,2 ,1% 10%-20% 1e9, nan,inf -- - perf.data --ns -h --xed`)

// TestAdversaryPerfArguments has command lines of perf script: those that the stand-in takes for itself are run.
func TestAdversaryPerfArguments(t *testing.T) {
	goBuild(t)
	_, seeds := recordings(t)
	a := newAdversary(t, "perfarguments")
	in := filepath.Join(a.dir, "perf.data")
	require.NoError(t, os.WriteFile(in, seeds[0].bytes, 0o644))
	a.each([]seed{textSeed("words", strings.Repeat("x", 64))}, func(i int, junk []byte) int {
		r := rand.New(rand.NewPCG(*adversarySeed, uint64(i)))
		args := []string{"script"}
		for range r.IntN(6) {
			word := perfWords[r.IntN(len(perfWords))]
			if r.IntN(20) == 0 {
				word = word[:r.IntN(len(word))] + string(junk[:min(len(junk), r.IntN(8))])
			}
			args = append(args, word)
		}
		p, err := perfcall.Parse(args)
		if err != nil {
			return exitFailed
		}
		p.Input = in
		rec, err := openRecording(p.Input, false)
		require.NoError(t, err)
		defer rec.Close()
		var stdout, stderr bytes.Buffer
		writePerf(context.Background(), p, rec, newConsole(&stdout, &stderr))
		a.check(i, fmt.Sprintf("%q: ", args), result{exitDone, stdout.String(), stderr.String()})
		return exitDone
	})
}
