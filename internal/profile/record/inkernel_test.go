//go:build linux && amd64

package record

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ehasm/ehasm/bpfunwind"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/profile/ondemand"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// kernelOptions returns options for stacks in the kernel; without the right to that, nil after a look at the refusal.
func kernelOptions(t *testing.T) *Options {
	opt := options(t)
	opt.Settings.Unwind, opt.Settings.MaxStack = KernelToo, 8192
	opt.Tables = func(o *unwind.Object, wanted bool) (*bpfunwind.Tables, error) {
		if !wanted {
			return nil, nil
		}
		file, size, err := o.Open()
		if err != nil {
			return nil, err
		}
		defer file.Close()
		object, err := dwarfcfa.NewFile(o.Name, file, size)
		if err != nil {
			return nil, err
		}
		table, _, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{})
		if err != nil {
			return nil, err
		}
		return bpfunwind.Make(table)
	}
	u, err := bpfunwind.Load(bpfunwind.Options{})
	if err == nil {
		u.Close()
		return &opt
	}
	_, err = Open(opt)
	assert.True(t, errors.Is(err, bpfunwind.ErrRights) || errors.Is(err, bpfunwind.ErrKernel) ||
		errors.Is(err, errNamespace), "%v", err)
	opt.Settings.Unwind = Anywhere
	s, err := Open(opt)
	require.NoError(t, err)
	defer s.Close()
	require.Error(t, s.NotInKernel())
	return nil
}

// compileC compiles C sources, each to a file of its name.
func compileC(t *testing.T, sources map[string]string, flags ...string) string {
	dir := t.TempDir()
	for name, source := range sources {
		cmd := exec.Command("gcc", append(flags, "-O1", "-fno-optimize-sibling-calls", "-x", "c", "-o",
			filepath.Join(dir, name), "-")...)
		cmd.Stdin = strings.NewReader(source)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return dir
}

// recordInKernel records a shell command until the kernel has unwound some hundred stacks.
func recordInKernel(t *testing.T, opt Options, command string) *Profile {
	const enough, atMost = 300, 60000
	shell := exec.Command("sh", "-c", "("+strings.Replace(command, "; ", " && exec ",
		1)+") & p=$!; trap 'kill $p; exit 0' TERM; wait $p")
	p := recordUntil(t, opt, shell, func(c *Counts) bool { return c.InKernel >= enough || c.Samples >= atMost })
	require.GreaterOrEqual(t, p.Counts.InKernel, uint64(enough))
	return p
}

// TestInKernel: stacks of 5,000 frames, of more bytes than any copy has, are whole and right.
func TestInKernel(t *testing.T) {
	opt := kernelOptions(t)
	if opt == nil {
		return
	}
	const calls, enough, atMost = 5000, 500, 60000
	dir := compileC(t, map[string]string{"deep": strings.Replace(deep, "down(40)", fmt.Sprintf("down(%d)", calls-1), 1)})
	p := recordUntil(t, *opt, exec.Command(filepath.Join(dir, "deep")),
		func(c *Counts) bool { return c.InKernel >= enough || c.Samples >= atMost })
	assert.GreaterOrEqual(t, p.Counts.InKernel, uint64(enough))
	right := 0
	want := ";main" + strings.Repeat(";down", calls) + ";work"
	for stack, n := range testtool.Folded(t, text(t, p, "folded")) {
		if strings.Contains(stack, ";work") && !strings.Contains(stack, "[truncated]") {
			assert.True(t, strings.HasPrefix(stack, "deep;_start;__libc_start_main") && strings.Contains(stack+";", want+";"))
			right += n
		}
	}
	assert.GreaterOrEqual(t, right, enough)
}

// TestInKernelCalls: the kernel's part of a stack that the kernel has unwound is addresses alone.
func TestInKernelCalls(t *testing.T) {
	opt := kernelOptions(t)
	if opt == nil {
		return
	}
	p := recordInKernel(t, *opt, "true; dd if=/dev/zero of=/dev/null bs=1k")
	calls := 0
	for i := range p.Table.Stacks {
		for _, f := range p.Table.Frames(nil, &p.Table.Stacks[i]) {
			if f.Kernel {
				assert.Less(t, f.PC, perfdata.ContextMax)
				calls++
			}
		}
	}
	assert.NotZero(t, calls)
}

// TestInKernelCached: where tables are cached, none are made, and from the first deep stack that is whole on, all are:
// copies hold none of them.
func TestInKernelCached(t *testing.T) {
	opt := kernelOptions(t)
	if opt == nil {
		return
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	opt.Settings.Frequency, opt.Samples = 997, true
	const calls, enough, atMost, tries = 1000, 50, 6000, 8
	program := filepath.Join(compileC(t,
		map[string]string{"deep": strings.Replace(deep, "down(40)", fmt.Sprintf("down(%d)", calls-1), 1)}), "deep")
	cut, whole, made := 1, 0, 0
	for try := 0; try < tries && (cut > 0 || whole < enough/2); try++ { // on a busy machine a walk may take too long
		maker := ondemand.New(ondemand.Options{Keep: true})
		opt.Objects = unwind.NewObjects(unwind.Options{Prepare: maker.Prepare})
		opt.Tables = func(o *unwind.Object, wanted bool) (*bpfunwind.Tables, error) {
			if wanted && o.Name == program {
				made++
			}
			return maker.Tables(t.Context(), o, wanted)
		}
		p := recordUntil(t, *opt, exec.Command(program), func(c *Counts) bool {
			return c.InKernel >= enough ||
				c.Samples >= atMost
		})
		slices.SortFunc(p.Samples, func(a, b Sample) int { return cmp.Compare(a.Time, b.Time) })
		cut, whole = 0, 0
		for _, sample := range p.Samples {
			switch st := &p.Table.Stacks[sample.Stack]; {
			case p.Comms[st.Comm] != "deep":
			case st.End == unwind.Outermost && len(p.Table.Frames(nil, st)) > calls && st.Origin&fromLater == 0:
				whole++
			case whole > 0 && st.End != unwind.Outermost:
				cut++
			}
		}
	}
	assert.Zero(t, cut)
	assert.GreaterOrEqual(t, whole, enough/2)
	assert.Equal(t, 1, made, "the first time")
}

// TestInKernelGo: goroutines end where Go puts their end, also on the stacks that Go's runtime switches to.
func TestInKernelGo(t *testing.T) {
	opt := kernelOptions(t)
	if opt == nil {
		return
	}
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(source, []byte(`package main
import ("fmt"; "time")
var kept map[int]string
//go:noinline
func deep(n int, f func()) { if n > 0 { deep(n-1, f); return }; f() }
func main() {
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		deep(20, func() { kept = map[int]string{}; for i := range 3000 { kept[i] = fmt.Sprint(i) } })
	}
}`), 0o600))
	out, err := exec.Command("go", "build", "-o", program, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	made := ondemand.New(ondemand.Options{Keep: true})
	opt.Objects = unwind.NewObjects(unwind.Options{Prepare: made.Prepare})
	opt.Tables = func(o *unwind.Object, wanted bool) (*bpfunwind.Tables, error) {
		return made.Tables(t.Context(), o, wanted)
	}
	p := recordCommand(t, *opt, program)
	for tries := 0; tries < 10 && p.Counts.InKernel <= p.Counts.Unwound/2; tries++ { // until its tables are cached
		p = recordCommand(t, *opt, program)
	}
	assert.Greater(t, p.Counts.InKernel, p.Counts.Unwound/2)
	assert.Greater(t, p.Counts.Whole(), 0.98, "%v", p.Counts.Ends)
}

// openMaking opens a session that makes the tables of each object at once. dir has two libraries, one.so and two.so.
func openMaking(t *testing.T, opt *Options) (k *inKernel, tr *tracker, dir string) {
	dir = compileC(t, map[string]string{"one.so": "int one(void) { return 1; }", "two.so": "int two(void) { return 2; }"},
		"-shared", "-fPIC")
	tables := opt.Tables
	opt.Tables = func(o *unwind.Object, _ bool) (*bpfunwind.Tables, error) { return tables(o, true) }
	s, err := Open(*opt)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s.stacks.(*inKernel), s.tracker, dir
}

// TestInKernelGrow: copies grow if many are too short, not for those of a few programs that have just begun.
func TestInKernelGrow(t *testing.T) {
	opt := kernelOptions(t)
	if opt == nil {
		return
	}
	opt.Settings.Grow, opt.Target = 64000, Target{All: true}
	k, _, _ := openMaking(t, opt)
	k.copies.stacks = 100
	for k.copies.short = range uint64(21) {
		require.NoError(t, k.end(0))
		assert.Equal(t, k.copies.short == 20, k.copies.grown, "%d of 100", k.copies.short)
	}
}

// TestInKernelReleased: tables of an object that a process has unmapped are freed once the kernel is told of that, and
// those of objects that no stack has met once no process has them. Objects that stacks have met are known to those who
// name frames.
func TestInKernelReleased(t *testing.T) {
	opt := kernelOptions(t)
	if opt == nil {
		return
	}
	var met []*unwind.Object
	opt.OnObject = func(o *unwind.Object) { met = append(met, o) }
	k, tr, dir := openMaking(t, opt)
	const pid, start = gone, 0x10000
	tr.comm(&perfdata.Comm{PID: pid, TID: pid, Name: []byte("x"), Exec: true})
	objects := [2]*unwind.Object{}
	for i, name := range []string{"one.so", "two.so"} {
		objects[i] = objectAt(tr, pid, mappingAt(t, filepath.Join(dir, name)))
		tr.putObject(pid, uint64(i+1)*start, 0x1000, 0x1000, objects[i])
	}
	_, p := tr.sampledThread(pid, pid)
	k.tell(pid, p, time.Now())
	require.Len(t, k.views.list, 1)
	k.need(p.sampledMaps, []uint64{start + 0x10, start + 0x20, 0x900000})
	assert.Equal(t, objects[:1], met)
	assert.Len(t, k.tables.objects, 2)

	tr.putObject(pid, start, 0x1000, 0, nil)
	first := func(o *unwind.Object) bool { return o == objects[0] }
	k.release(first)
	require.Len(t, k.tables.leaving, 1)
	require.NoError(t, k.end(0))
	k.release(first)
	assert.Empty(t, k.tables.leaving)
	assert.Len(t, k.tables.objects, 1, "the process has it")
	tr.drop(pid)
	k.release(first)
	assert.Len(t, k.tables.objects, 1, "another process may soon have it")
	k.tables.tidied = time.Time{}
	k.release(first)
	assert.Empty(t, k.tables.objects)
}

// TestInKernelViews: samples of a round in which the kernel is told of libraries twice have their stacks, also those
// made before the first time. One is good as long as the code of its frames is where it was.
func TestInKernelViews(t *testing.T) {
	opt := kernelOptions(t)
	if opt == nil {
		return
	}
	k, tr, dir := openMaking(t, opt)
	const pid, base, size = gone, 0x10000, 0x1000
	tr.comm(&perfdata.Comm{PID: pid, TID: pid, Name: []byte("x"), Exec: true})
	one := objectAt(tr, pid, mappingAt(t, filepath.Join(dir, "one.so")))
	two := objectAt(tr, pid, mappingAt(t, filepath.Join(dir, "two.so")))
	begin := func() {
		_, err := k.begin()
		require.NoError(t, err)
	}
	tell := func(start uint64, o *unwind.Object) uint32 {
		tr.putObject(pid, start, size, size, o)
		_, p := tr.sampledThread(pid, pid)
		k.tell(pid, p, time.Now())
		return p.view
	}
	var cause unwind.Cause
	k.unwound = func(one *sampled, _ *thread, _ *process) { cause = one.user.cause }
	ended := func(view uint32) unwind.Cause {
		k.countWalk(&bpfunwind.Sample{View: view, PID: pid, TID: pid, User: []uint64{base + 0x10},
			Outcome: bpfunwind.EndOfStack})
		return cause
	}
	view := tell(base, one)
	begin()
	tell(2*base, two)
	tell(3*base, two)
	assert.Equal(t, unwind.Outermost, ended(view), "the same round")
	require.NoError(t, k.end(0))
	begin()
	assert.Equal(t, unwind.Outermost, ended(view), "the next one has those made before the call")
	last := tell(base, two)
	assert.Equal(t, unwind.NoMapping, ended(view), "other code is there")
	assert.Equal(t, unwind.Outermost, ended(last))
	require.NoError(t, k.end(0))
	assert.NotContains(t, k.views.list, view)
}

// worker is a program whose functions have a name of their own and frames of a size of their own; it ends as another
// program.
const worker = `
#include <unistd.h>
#include <stdio.h>
#include <stdlib.h>
volatile unsigned long sink;
__attribute__((noinline)) int NAME_work(void) { for (int i = 0; i < 20000000; i++) sink++; return 1; }
__attribute__((noinline)) int NAME_call(void) { volatile char pad[SIZE]; pad[0] = 1; return NAME_work() + pad[0]; }
int main(int argc, char **argv) {
	int n = atoi(argv[1]), got = NAME_call();
	char left[20];
	snprintf(left, sizeof left, "%%d", n - got / 2);
	if (n > 0) execl(argv[2], argv[2], left, argv[0], (char *)0);
	return 0;
}
`

// TestInKernelExec: a process that becomes another program again and again is walked by the tables of what it is.
func TestInKernelExec(t *testing.T) {
	opt := kernelOptions(t)
	if opt == nil {
		return
	}
	sources := map[string]string{}
	for name, size := range map[string]string{"one": "40", "two": "4000"} {
		sources[name] = strings.NewReplacer("NAME", name, "SIZE", size, "%%", "%").Replace(worker)
	}
	dir := compileC(t, sources, "-no-pie") // both have their code at the same addresses
	p := recordInKernel(t, *opt, fmt.Sprintf("cd %s; ./one 1000000 ./two", dir))
	seen := 0
	for stack, n := range testtool.Folded(t, text(t, p, "folded")) {
		comm, _, _ := strings.Cut(stack, ";")
		for _, name := range []string{"one", "two"} {
			if strings.Contains(stack, ";"+name+"_") {
				assert.Equal(t, name, comm, stack)
			}
			if strings.HasSuffix(stack, name+"_work") && !strings.Contains(stack, "[truncated]") {
				assert.Contains(t, stack, ";main;"+name+"_call;"+name+"_work")
				seen += n
			}
		}
	}
	assert.Positive(t, seen)
}

// TestInKernelReload: a library that takes the place of another one is not walked by that one's tables.
func TestInKernelReload(t *testing.T) {
	opt := kernelOptions(t)
	if opt == nil {
		return
	}
	const library = `
volatile unsigned long NAME_sink;
__attribute__((noinline)) int NAME_work(void) { for (int i = 0; i < 2000000; i++) NAME_sink++; return 1; }
int call(void) { volatile char pad[SIZE]; pad[0] = 1; return NAME_work() + pad[0]; }
`
	sources := map[string]string{}
	for name, size := range map[string]string{"one.so": "40", "two.so": "4000"} {
		sources[name] = strings.NewReplacer("NAME", strings.TrimSuffix(name, ".so"), "SIZE", size).Replace(library)
	}
	dir := compileC(t, sources, "-shared", "-fPIC")
	program := filepath.Join(compileC(t, map[string]string{"reload": `
#include <dlfcn.h>
#include <stdlib.h>
int main(int argc, char **argv) {
	for (int i = 0;; i++) {
		void *h = dlopen(argv[1 + i % 2], RTLD_NOW);
		if (!h || ((int (*)(void))dlsym(h, "call"))() != 2 || dlclose(h)) abort();
	}
}`}, "-ldl"), "reload")
	p := recordInKernel(t, *opt, fmt.Sprintf("cd %s; %s ./one.so ./two.so", dir, program))
	seen := 0
	for stack, n := range testtool.Folded(t, text(t, p, "folded")) {
		if strings.HasSuffix(stack, "_work") && !strings.Contains(stack, "[truncated]") {
			assert.Contains(t, stack, ";main;call;")
			seen += n
		}
	}
	assert.Positive(t, seen)
}

// TestInKernelBlocked: the time that a thread is blocked counts from a walk in the kernel to the record of its return.
func TestInKernelBlocked(t *testing.T) {
	opt := kernelOptions(t)
	if opt == nil {
		return
	}
	dir := compileC(t, map[string]string{"sleeper": `
#include <unistd.h>
__attribute__((noinline)) int nap(void) { return usleep(10000) + 1; }
int main(void) { int n = 0; for (int i = 0; i < 200; i++) n += nap(); return n != 200; }
`})
	opt.Event = named("off-cpu")
	p := recordCommand(t, *opt, filepath.Join(dir, "sleeper"))
	assert.Positive(t, p.Counts.InKernel)
	slept := 0
	for stack, n := range testtool.Folded(t, text(t, p, "folded")) {
		if strings.Contains(stack, ";main;nap;") {
			slept += n
		}
	}
	assert.GreaterOrEqual(t, slept, 1_900_000, "microseconds")
}

// TestInKernelBeside: a program whose runs that were left out cannot be read any more adds nothing to the counts.
func TestInKernelBeside(t *testing.T) {
	opt := kernelOptions(t)
	if opt == nil {
		return
	}
	s, err := Open(*opt)
	require.NoError(t, err)
	defer s.Close()
	k := s.stacks.(*inKernel)
	k.beside()
	const before = 5
	k.lost += before // as of earlier readings
	for _, p := range k.programs.bySource {
		require.NoError(t, p.Close())
	}
	lost, bytes := k.beside()
	assert.Zero(t, lost)
	assert.Zero(t, bytes)
	assert.GreaterOrEqual(t, k.lost, uint64(before), "the next reading counts on")
}
