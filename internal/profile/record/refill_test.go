//go:build linux && amd64

package record

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestConfirms: callers read behind a copy are believed if three earlier stacks in a row had them, each read before the
// next sample.
func TestConfirms(t *testing.T) {
	stack := func(sp uint64, pcs ...uint64) *frameStack {
		f := &frameStack{pcs: pcs, cause: unwind.Outermost}
		f.last.Reg[abi.RSP] = sp
		return f
	}
	const end, from = 0x7ffd0000, 2
	var o outer
	confirms := func(sample, read uint64, f *frameStack) bool {
		c := &copied{time: sample}
		defer o.see(c, f, read)
		return o.confirms(c, f, from)
	}
	down, side := stack(end, 1, 2, 3, 4, 5), stack(end, 1, 2, 6, 4, 5)
	other := stack(end, 9, 8, 3, 4, 5)
	assert.False(t, confirms(10, 20, down), "nothing is known")
	assert.False(t, confirms(12, 22, down), "it was read after this sample")
	assert.False(t, confirms(30, 40, down), "one read before")
	assert.False(t, confirms(32, 42, down))
	assert.False(t, confirms(50, 60, down), "two")
	assert.True(t, confirms(70, 80, down))
	assert.True(t, confirms(72, 82, other), "other frames inside")
	assert.False(t, confirms(90, 100, side), "another caller")
	assert.False(t, confirms(110, 120, down), "and back")
	assert.True(t, o.confirms(&copied{time: 130}, down, 3), "whose caller stayed")
	assert.False(t, confirms(140, 150, stack(end-16, 1, 2, 3, 4, 5)), "elsewhere")
	assert.False(t, confirms(160, 170, stack(end, 1, 2)), "no callers")

	short := &copied{limit: 4096, time: 10}
	short.regs.Reg[abi.RSP] = end - 1024
	var fresh outer
	fresh.see(short, down, 20)
	assert.Empty(t, fresh.frames, "a short stack is not worth it")
}

// TestRefill: stacks of 17 KB with copies of 4 KB are whole, and all have as many calls as the program makes. Those of
// the last samples before it returns are read when the rest is overwritten.
func TestRefill(t *testing.T) {
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "deep.c"), filepath.Join(dir, "deep")
	require.NoError(t, os.WriteFile(src, []byte(deep), 0o666))
	out, err := exec.Command("gcc", "-O1", "-fno-optimize-sibling-calls", "-o", bin, src).CombinedOutput()
	require.NoError(t, err, "%s", out)
	opt := options(t)
	opt.Settings.Copy = 4 << 10
	const enough, atMost = 500, 30000
	p := recordUntil(t, opt, exec.Command(bin), func(c *Counts) bool {
		return c.Completed >= enough ||
			c.Samples >= atMost
	})
	right := 0
	want := ";main" + strings.Repeat(";down", deepCalls) + ";work"
	for stack, n := range testtool.Folded(t, text(t, p, "folded")) {
		if !strings.Contains(stack, ";work") || strings.Contains(stack, "[truncated]") {
			continue
		}
		assert.True(t, strings.HasPrefix(stack, "deep;_start;__libc_start_main") &&
			strings.Contains(stack+";", want+";"), "%s", stack)
		right += n
	}
	assert.GreaterOrEqual(t, right, enough)
}

// TestUntouchedPages: the kernel's copy ends at a page of a large frame that was never touched. Reading it later maps
// it, and the next copies are complete.
func TestUntouchedPages(t *testing.T) {
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "large.c"), filepath.Join(dir, "large")
	require.NoError(t, os.WriteFile(src, []byte(large), 0o666))
	out, err := exec.Command("gcc", "-O1", "-o", bin, src).CombinedOutput()
	require.NoError(t, err, "%s", out)
	opt := options(t)
	opt.Settings.Copy = 60 << 10
	const enough, atMost = 300, 30000
	p := recordUntil(t, opt, exec.Command(bin), func(c *Counts) bool {
		return c.Ends[unwind.Outermost] >= enough ||
			c.Samples >= atMost
	})
	assert.GreaterOrEqual(t, p.Counts.Ends[unwind.Outermost], uint64(enough))
	assert.Less(t, p.Counts.Ends[unwind.Unreadable], uint64(enough))
}

// recordUntil records a command that ends when it gets a SIGTERM, which it does once there is enough.
func recordUntil(t *testing.T, opt Options, cmd *exec.Cmd, enough func(*Counts) bool) *Profile {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, err := Open(opt)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	require.NoError(t, s.Start())
	done, result := make(chan struct{}), make(chan error)
	stop := sync.OnceFunc(func() { _ = cmd.Process.Signal(unix.SIGTERM) })
	go func() {
		result <- s.Run(done, func() {
			if enough(&s.part.counts) {
				stop()
			}
		})
	}()
	require.NoError(t, cmd.Wait())
	close(done)
	require.NoError(t, <-result)
	return s.Take()
}

// deepCalls is how often the function down of deep is on the stack below work.
const deepCalls = 41

const deep = `
#include <signal.h>
#include <string.h>
volatile unsigned long sink;
volatile sig_atomic_t done;
static void stop(int s) { done = s; }
__attribute__((noinline)) int work(void) { while (!done) sink++; return 0; }
__attribute__((noinline)) int down(int n) {
	volatile char pad[400]; memset((char *)pad, n, sizeof pad);
	return n ? down(n - 1) + pad[n % 400] : work() + pad[0];
}
int main(void) { signal(SIGTERM, stop); return down(40) == 12345; }
`

const large = `
#include <signal.h>
volatile unsigned long sink;
volatile sig_atomic_t done;
static void stop(int s) { done = s; }
__attribute__((noinline)) int work(volatile char *p) { while (!done) sink++; return p[0]; }
__attribute__((noinline)) int hollow(void) { volatile char pad[40000]; pad[0] = 1; return work(pad) + pad[0]; }
int main(void) { signal(SIGTERM, stop); return hollow() == 12345; }
`
