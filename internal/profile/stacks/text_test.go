package stacks

import (
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/stack"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
)

// TestThreadsInStates: a thread that was seen in two states is one thread.
func TestThreadsInStates(t *testing.T) {
	gs := NewGroups(symbolize.New(symbolize.Options{}).NewCache(nil), true)
	take := func(threads ...stack.Thread) *stack.Target {
		target := &stack.Target{PID: 1, Threads: threads, Maps: unwind.NewProcesses().Space(1).Maps()}
		gs.Add(target)
		return target
	}
	thread := func(tid int32, state string) stack.Thread {
		return stack.Thread{TID: tid, Comm: "x", State: state, PCs: []uint64{1}, End: unwind.Outermost}
	}
	take(thread(5, "running"))
	last := take(thread(5, "sleeping"))
	assert.Contains(t, string(gs.Text(nil, last, false)), "2 times: thread 5 (x), running and sleeping:\n")
	last = take(thread(5, "running"), thread(6, "running"))
	text := string(gs.Text(nil, last, false))
	assert.Contains(t, text, "4 times: 2 threads, running (2), sleeping (1); x; ids 5 6:\n")
	assert.Equal(t, 1, strings.Count(text, "#0"))
}

// TestRepeated: frames that come again and again are written once, with their number; both ends of a stack are shown.
func TestRepeated(t *testing.T) {
	th := stack.Thread{TID: 1, PCs: []uint64{1}, End: unwind.Outermost}
	for range 20 {
		th.PCs = append(th.PCs, 2, 3)
	}
	th.PCs = append(th.PCs, 4, 5, 5, 6)
	gs := NewGroups(symbolize.New(symbolize.Options{}).NewCache(nil), false)
	target := &stack.Target{PID: 1, Threads: []stack.Thread{th}, Maps: unwind.NewProcesses().Space(1).Maps()}
	gs.Add(target)
	_, text, _ := strings.Cut(string(gs.Text(nil, target, false)), "thread 1:\n")
	var lines []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " ??")
		lines = append(lines, line)
	}
	assert.Equal(t, []string{"#0   0x0000000000000001", "#1   0x0000000000000002", "#2   0x0000000000000003",
		"... these 2 frames again, 19 times, to #40", "#41  0x0000000000000004", "#42  0x0000000000000005",
		"#43  0x0000000000000005",
		"#44  0x0000000000000006"}, lines)
}

// TestManyThreads: threads of one stack take time as their number does.
func TestManyThreads(t *testing.T) {
	const n = 400_000
	g := Group{states: make(map[int32][]string)}
	for i := range 2 * n {
		g.add(stack.Thread{TID: int32(i % n), State: "runs"})
	}
	assert.Len(t, g.Threads, n)
	assert.Equal(t, 2*n, g.Count)
	assert.Contains(t, string(g.head(nil, false, false)), "400000 threads, runs; ids 0 1 2")
}
