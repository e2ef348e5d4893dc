package builder

import (
	"cmp"
	"context"
	"os"
	"runtime/debug"
	"slices"
	"sync"
)

// Compiling takes memory in proportion to the unwind tables of the object.
// maxInFlight bounds the bytes of tables compiled at one time, so that many
// workers on large objects stay within the memory that one of them needs.
const maxInFlight = 20 << 20

// LimitMemory makes the collector work harder once a process that does nothing but jobs has leastMemory or, for the
// heaviest of jobs, some more than compiling it needs. Without this, as much garbage as live data would pile up.
// GOMEMLIMIT in the environment wins. The returned function restores the limit that was there.
func LimitMemory(jobs []*Job) (restore func()) {
	const (
		leastMemory = 300 << 20
		perByte     = 9 // of tables; live data has up to 8
	)
	if os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	limit := int64(leastMemory)
	for _, j := range jobs {
		limit = max(limit, perByte*j.Weight)
	}
	before := debug.SetMemoryLimit(limit)
	return func() { debug.SetMemoryLimit(before) }
}

// room is a weighted semaphore that serves its callers in order.
type room struct {
	mu   sync.Mutex
	cond *sync.Cond
	free int64
	size int64 // bytes in all
	next int   // whose turn it is
	last int   // turns given out
}

// newRoom returns an empty room.
func newRoom(size int64) *room {
	r := &room{free: size, size: size}
	r.cond = sync.NewCond(&r.mu)
	return r
}

// enter waits for room and returns the function to leave. A weight above the
// limit waits for all room.
func (r *room) enter(weight int64) (leave func()) {
	weight = min(weight, r.size)
	r.mu.Lock()
	defer r.mu.Unlock()
	turn := r.last
	r.last++
	// The turn keeps a heavy job from waiting for ever behind light ones.
	for r.next != turn || r.free < weight {
		r.cond.Wait()
	}
	r.next++
	r.free -= weight
	r.cond.Broadcast()
	return func() {
		r.mu.Lock()
		r.free += weight
		r.mu.Unlock()
		r.cond.Broadcast()
	}
}

// forEach calls do for every job, on as many goroutines as workers says, the
// heaviest jobs first. It returns when all are done or, with calls still under
// way, when ctx ends.
func forEach(ctx context.Context, jobs []*Job, workers int, do func(i int)) {
	order := make([]int, len(jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(jobs[b].Weight, jobs[a].Weight) })
	next := make(chan int)
	go func() {
		defer close(next)
		for _, i := range order {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	room := newRoom(maxInFlight)
	var group sync.WaitGroup
	for range min(workers, len(jobs)) {
		group.Go(func() {
			for i := range next {
				leave := room.enter(jobs[i].Weight)
				if ctx.Err() == nil {
					do(i)
				}
				leave()
			}
		})
	}
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
