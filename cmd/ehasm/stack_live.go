//go:build linux && amd64

package main

import (
	"context"
	"time"

	"github.com/ehasm/ehasm/internal/files/interrupt"
	"github.com/ehasm/ehasm/internal/profile/ondemand"
	"github.com/ehasm/ehasm/internal/profile/stacks"
	"github.com/ehasm/ehasm/stack"
)

// ofProcess writes the stacks of a process: those of one moment, or with --watch of many.
func (r *stackRun) ofProcess(ctx context.Context, pid int32) error {
	name := processName(pid)
	s := r.open(ctx, func() ([]byte, error) { return ondemand.VDSO(ctx) })
	live := stack.NewLive(r.how(s))
	defer live.Close()
	defer r.close(s, name)
	t, err := live.Take(ctx, pid, r.consistent)
	if err != nil {
		return err
	}
	groups := stacks.NewGroups(s.cache, r.merged(t))
	r.add(s, groups, t)
	if r.watch > 0 {
		t = r.watchOn(ctx, live, s, groups, t)
	}
	r.write(name, groups, t)
	return nil
}

// watchOn takes the stacks again and again, until there were enough, the process ends or an interruption, and
// returns the last ones.
func (r *stackRun) watchOn(ctx context.Context, live *stack.Live, s *source, groups *stacks.Groups, t *stack.Target) *stack.Target {
	ctx, stop := interrupt.Context(ctx)
	defer stop()
	tick := time.NewTicker(r.watch)
	defer tick.Stop()
	for n := 1; r.rounds == 0 || n < r.rounds; n++ {
		select {
		case <-ctx.Done():
			return t
		case <-tick.C:
		}
		next, err := live.Take(ctx, t.PID, r.consistent)
		if err != nil { // it has ended, or an interruption came
			return t
		}
		t = next
		r.add(s, groups, t)
	}
	return t
}
