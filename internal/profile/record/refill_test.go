//go:build linux && amd64

package record

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestConfirm: the rest of a stack is believed if reads after two earlier samples, each before the next
// sample, have found the same frames from the copy's last ones on.
func TestConfirm(t *testing.T) {
	stack := func(sp uint64, pcs ...uint64) *frameStack {
		f := &frameStack{pcs: pcs, cause: unwind.Outermost}
		f.last.Reg[abi.RSP] = sp
		return f
	}
	const end, from = 0x7ffd0000, 2
	var o outer
	confirm := func(sample, read uint64, f *frameStack) bool {
		return o.confirm(&copied{time: sample}, f, from, read)
	}
	down, side := stack(end, 1, 2, 3, 4, 5), stack(end, 1, 2, 6, 4, 5)
	deeper := stack(end, 9, 8, 1, 2, 3, 4, 5)
	assert.False(t, confirm(10, 20, down), "nothing is known")
	assert.False(t, confirm(12, 22, down), "it was read after this sample")
	assert.False(t, confirm(30, 40, down), "one read before")
	assert.False(t, confirm(32, 42, down))
	assert.True(t, confirm(50, 60, down))
	assert.True(t, confirm(52, 62, deeper), "with more frames inside")
	assert.True(t, confirm(54, 64, down))
	assert.False(t, confirm(70, 80, side), "another caller")
	assert.False(t, confirm(90, 100, down), "and back")
	assert.False(t, confirm(110, 120, stack(end-16, 1, 2, 3, 4, 5)), "elsewhere")
	o.set(&copied{}, down, [confirmations]uint64{200, 200})
	assert.True(t, confirm(210, 220, down), "the sample before had it in its copy")
	o.set(&copied{}, stack(end, 2, 3, 4, 5), [confirmations]uint64{300, 300})
	assert.True(t, confirm(310, 320, down))
	o.set(&copied{}, stack(end, 4, 5), [confirmations]uint64{400, 400})
	assert.False(t, confirm(410, 420, down), "nothing of the copy's frames")
	o.set(&copied{}, &frameStack{pcs: []uint64{1, 2, 3, 4, 5}, cause: unwind.NoInfo}, [confirmations]uint64{500, 500})
	assert.False(t, confirm(510, 520, down), "the stack before was not whole")
}

// TestRefill: stacks of 17 KB with copies of 4 KB are whole, and all have as many calls as the program makes. Those of the
// last samples before it returns are read when the rest is overwritten.
func TestRefill(t *testing.T) {
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "deep.c"), filepath.Join(dir, "deep")
	require.NoError(t, os.WriteFile(src, []byte(deep), 0o666))
	out, err := exec.Command("gcc", "-O1", "-fno-optimize-sibling-calls", "-o", bin, src).CombinedOutput()
	require.NoError(t, err, "%s", out)
	opt := options(t)
	opt.Copy = 4 << 10
	const enough, atMost = 500, 30000
	p := recordUntil(t, opt, exec.Command(bin), func(c *Counts) bool { return c.Completed >= enough || c.Samples >= atMost })
	right := 0
	want := ";main" + strings.Repeat(";down", deepCalls) + ";work"
	for line := range strings.Lines(text(t, p, "folded")) {
		stack, count, _ := strings.Cut(line, " ")
		if !strings.Contains(stack, ";work") || strings.Contains(stack, "[truncated]") {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(count))
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(stack, "deep;_start;__libc_start_main") && strings.Contains(stack+";", want+";"), "%s", line)
		right += n
	}
	assert.GreaterOrEqual(t, right, enough)
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
