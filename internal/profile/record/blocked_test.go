//go:build linux && amd64

package record

import (
	"bufio"
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

// TestBlockedThroughout: a thread that never switches counts with the whole time, below the function that blocks, and
// goes on blocking. One that is busy does not count, one that sleeps now and then is not counted twice.
func TestBlockedThroughout(t *testing.T) {
	testtool.NeedRoot(t, "to record what happens in the kernel")
	bin := filepath.Join(t.TempDir(), "waits")
	require.NoError(t, os.WriteFile(bin+".c", []byte(waits), 0o666))
	out, err := exec.Command("gcc", "-O1", "-pthread", "-o", bin, bin+".c").CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.Command(bin)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)

	opt := options(t)
	opt.Event, opt.Target.PIDs = named("off-cpu"), []int{cmd.Process.Pid}
	begin := time.Now()
	s, err := Open(opt)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Start())
	done, result := make(chan struct{}), make(chan error)
	go func() { result <- s.Run(done, nil) }()
	const recorded = 300 * time.Millisecond
	time.Sleep(recorded)
	close(done)
	require.NoError(t, <-result)
	most := time.Since(begin).Microseconds()
	p := s.Take()
	require.NoError(t, stdin.Close())
	assert.NoError(t, cmd.Wait(), "a read was interrupted")

	got := map[string]int64{}
	for stack, n := range testtool.Folded(t, text(t, p, "folded")) {
		for _, name := range []string{"forever", "now_and_then", "busy"} {
			if strings.Contains(stack, ";"+name+";") {
				got[name] += int64(n)
			}
		}
	}
	assert.GreaterOrEqual(t, got["forever"], recorded.Microseconds()-1)
	assert.LessOrEqual(t, got["forever"], most)
	assert.NotZero(t, got["now_and_then"])
	assert.LessOrEqual(t, got["now_and_then"], most)
	assert.LessOrEqual(t, got["busy"], most)
}

const waits = `
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
volatile int go = 1, busy_now;
void *forever(void *_) { char c; if (read(0, &c, 1) != 0) _exit(1); go = 0; return 0; }
void *now_and_then(void *_) { while (go) { struct timespec t = {0, 20000000}; nanosleep(&t, 0); } return 0; }
void *busy(void *_) { while (go) busy_now++; return 0; }
int main(void) {
	pthread_t t[3]; void *(*all[])(void *) = {forever, now_and_then, busy};
	for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, all[i], 0);
	struct timespec rest = {0, 100000000}; nanosleep(&rest, 0);
	puts("ready"); fflush(stdout);
	for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
}
`
