//go:build linux && amd64

package stacks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/stack"
)

// This file looks at processes that run: which ones, once or again and again, and what is a failure among many.

// ofProcesses writes the stacks of the processes that the arguments name, and reports whether there are any. What goes
// wrong with one does not keep the others from being shown.
func (r *run) ofProcesses(ctx context.Context) (any bool) {
	pids, err := r.chosen()
	if err != nil {
		r.c.Fail("processes", err)
		return false
	}
	s := r.open(ctx, true, func() ([]byte, error) { return procfs.VDSO("/proc/self") })
	live := stack.NewLive(r.how(s))
	defer live.Close()
	defer r.close(s, "stacks")
	named := make(map[int32]bool) // by the user: what is wrong with them is a failure
	for _, pid := range r.Processes.PIDs {
		named[int32(pid)] = true
	}
	refused := 0 // processes that this user may not look at
	for _, pid := range pids {
		err := r.ofProcess(ctx, s, live, pid, any)
		switch {
		// An interruption is no failure of this process.
		case ctx.Err() != nil:
			return any
		case err == nil:
			any = true
		case named[pid]:
			r.c.Fail(processName(pid), err)
		case errors.Is(err, fs.ErrPermission):
			// With --all there may be hundreds: one message counts them.
			refused++
		// Processes may end while others are looked at.
		case !errors.Is(err, stack.ErrNoProcess) && !errors.Is(err, stack.ErrEnded):
			r.c.Note(processName(pid), err)
		}
	}
	// Nothing at all is a failure; a part is a note.
	switch {
	case refused > 0 && any:
		r.c.Note("processes", fmt.Errorf("no permission to read %d of them%s", refused, whoMay()))
	case refused > 0:
		r.c.Fail("processes", fmt.Errorf("no permission to read any of %d%s", refused, whoMay()))
	case !any && len(r.Processes.PIDs) == 0:
		r.c.Fail("processes", errors.New("all have ended"))
	}
	return any
}

// whoMay says who may read other processes: ptrace(2), "Ptrace access mode checking". Root without the capability is
// usual in containers.
func whoMay() string {
	if os.Geteuid() != 0 {
		return "; root may read all"
	}
	return ": CAP_SYS_PTRACE is missing, or they have rights that this process has not"
}

// processName is how messages name a process.
func processName(pid int32) string { return fmt.Sprintf("process %d", pid) }

// chosen returns the processes that the arguments name. Kernel threads and this process have no stacks to show. An
// error says that nothing can be chosen; processes that have ended meanwhile are found out later.
func (r *run) chosen() (pids []int32, err error) {
	for _, pid := range r.Processes.PIDs {
		pids = append(pids, int32(pid))
	}
	// Only PIDs: no list of all processes is needed.
	if !r.Processes.Every && !r.Processes.Children && r.Processes.Name == nil {
		return procfs.WithChildren(nil, pids), nil
	}
	list, err := procfs.All()
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(p procfs.Process) bool { return p.Kernel || p.PID == int32(os.Getpid()) })
	pattern := r.Processes.Name
	if r.Processes.Every {
		pattern = regexp.MustCompile("")
	}
	if pattern != nil {
		found := procfs.Named(list, pattern)
		if len(found) == 0 {
			return nil, fmt.Errorf("none has a name that matches %q", pattern)
		}
		pids = append(pids, found...)
	}
	// Without a list no children are found.
	if !r.Processes.Children {
		list = nil
	}
	return procfs.WithChildren(list, pids), nil
}

// ofProcess writes the stacks of a process: those of one moment, or with --watch of many. more says that others come
// before it. The error is of the first look: with --watch, a process that ends later is shown as far as it was seen.
func (r *run) ofProcess(ctx context.Context, s *source, live *stack.Live, pid int32, more bool) error {
	t, err := live.Take(ctx, pid, r.Consistent)
	if err != nil {
		return err
	}
	groups := NewGroups(s.cache, r.merged(t))
	r.add(s, groups, t)
	if r.Watch > 0 {
		t = r.watchOn(ctx, live, s, groups, t)
	}
	// An empty line between processes, in text.
	if more && r.format == nil {
		r.out.Write([]byte("\n"))
	}
	r.write(processName(pid), groups, t)
	return nil
}

// watchOn takes the stacks again and again, until there were enough, the process ends or an interruption, and returns
// the last ones. A look that takes longer than the time between two leaves out ticks; it does not make up for them.
func (r *run) watchOn(ctx context.Context, live *stack.Live, s *source, groups *Groups, t *stack.Target) *stack.Target {
	tick := time.NewTicker(r.Watch)
	defer tick.Stop()
	// The first look is already taken.
	for n := 1; r.Rounds == 0 || n < r.Rounds; n++ {
		select {
		case <-ctx.Done():
			return t
		case <-tick.C:
		}
		next, err := live.Take(ctx, t.PID, r.Consistent)
		if err != nil { // it has ended, or an interruption came
			return t
		}
		t = next
		r.add(s, groups, t)
	}
	return t
}
