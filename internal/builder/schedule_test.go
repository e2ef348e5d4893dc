package builder

import (
	"context"
	"math"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/files/find"

	"github.com/stretchr/testify/assert"
)

// TestForEach: every job is done once, and what is under way at one time stays
// within the room, jobs larger than all of it aside.
func TestForEach(t *testing.T) {
	var jobs []*Job
	for i := range 200 {
		jobs = append(jobs, &Job{Input: &find.Input{Weight: int64(i%7) * maxInFlight / 4}})
	}
	var mu sync.Mutex
	var now int64
	done := make([]int, len(jobs))
	forEach(context.Background(), jobs, 16, func(i int) {
		weight := min(jobs[i].Weight, maxInFlight)
		mu.Lock()
		done[i]++
		now += weight
		assert.LessOrEqual(t, now, int64(maxInFlight))
		mu.Unlock()
		time.Sleep(time.Millisecond / 4)
		mu.Lock()
		now -= weight
		mu.Unlock()
	})
	for i, n := range done {
		assert.Equal(t, 1, n, "job %d", i)
	}
}

// TestForEachEnds: it returns while a call is under way.
func TestForEachEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	block := make(chan struct{})
	defer close(block)
	forEach(ctx, []*Job{{Input: &find.Input{}}, {Input: &find.Input{}}}, 2, func(int) {
		cancel()
		<-block
	})
	assert.Error(t, ctx.Err())
}

// TestLimitMemory: the limit grows with the heaviest job, the user's own stays, and it ends with the build.
func TestLimitMemory(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	limit := func() int64 { return debug.SetMemoryLimit(-1) }
	jobs := []*Job{{Input: &find.Input{Weight: 1000}}}
	restore := LimitMemory(jobs)
	assert.Equal(t, int64(300<<20), limit())
	restore()
	assert.Equal(t, int64(math.MaxInt64), limit())
	restore = LimitMemory(append(jobs, &Job{Input: &find.Input{Weight: 1 << 30}}))
	assert.Equal(t, int64(9<<30), limit())
	restore()
	t.Setenv("GOMEMLIMIT", "1GiB")
	defer LimitMemory(jobs)()
	assert.Equal(t, int64(math.MaxInt64), limit())
}
