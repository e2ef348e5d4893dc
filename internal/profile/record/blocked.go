//go:build linux && amd64

package record

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/stack"
	"github.com/ehasm/ehasm/unwind"
)

// away is a thread's time off the processor.
type away struct {
	since  uint64 // ns
	tid    int32
	cpu    uint32
	stack  uint32 // index of Table.Stacks
	asleep bool   // it is away
	ready  bool   // it was preempted and could run
	ran    bool   // it was on the processor during the recording
}

// Bits of a PERF_RECORD_SWITCH's misc field.
const (
	switchOut     = 1 << 13 // PERF_RECORD_MISC_SWITCH_OUT
	switchPreempt = 1 << 14 // PERF_RECORD_MISC_SWITCH_OUT_PREEMPT
)

// switched handles PERF_RECORD_SWITCH: a thread leaves the processor, right
// after its sample, or is back.
func (s *Session) switched(raw []byte, misc uint16) {
	const sampleID = 32 // TID, TIME, CPU, IDENTIFIER: see sampleType
	if len(raw) < sampleID {
		s.part.counts.Bad++
		return
	}
	id := raw[len(raw)-sampleID:]
	th := s.tracker.threads[int32(binary.LittleEndian.Uint32(id[4:]))]
	if th == nil {
		return
	}
	if th.off.ran = true; !th.off.asleep {
		return
	}
	if misc&switchOut != 0 {
		th.off.ready = misc&switchPreempt != 0
		return
	}
	s.back(th, binary.LittleEndian.Uint64(id[8:]))
}

// back counts the time that a thread was away.
func (s *Session) back(th *thread, now uint64) {
	off := th.off
	th.off = away{ran: true}
	switch {
	case now < off.since:
	case off.ready:
		s.part.counts.Waited += now - off.since
	default:
		s.count(Sample{Time: off.since, Period: now - off.since, Stack: off.stack, TID: off.tid, CPU: off.cpu})
	}
}

// allBack counts the time of all threads that are still away.
func (s *Session) allBack(now uint64) {
	for _, th := range s.tracker.threads {
		if th.off.asleep {
			s.back(th, now)
		}
	}
	s.throughout(now)
}

// throughout counts the whole time for threads of Target.PIDs that were blocked all the time: no switch tells their
// stacks, so each is stopped for a moment, as far as this user may. The kernel's part of the stacks is missing.
func (s *Session) throughout(now uint64) {
	ctx, target := context.Background(), &s.opt.Target
	live := stack.NewLive(stack.Options{FramePointers: s.opt.Settings.Pointers, MaxFrames: s.opt.Settings.MaxStack,
		Objects: stack.NewObjects(ctx, unwind.Options{VDSO: func() ([]byte, error) { return procfs.VDSO("/proc/self") }}),
		Only: func(tid int32) bool {
			th := s.tracker.threads[tid]
			return th != nil && !th.off.ran
		}})
	defer live.Close()
	began := now - uint64(time.Since(s.part.began))
	for _, pid := range slices.Concat(target.PIDs, target.children) {
		found, err := live.Take(ctx, int32(pid), false)
		if err != nil {
			continue // it has ended, or this user may not look at it
		}
		for _, t := range found.Threads {
			if t.Missing != "" || !strings.HasPrefix(t.State, "blocked") {
				continue
			}
			one := sampled{Sample: Sample{Time: began, TID: t.TID}, pid: int32(pid),
				user: frameStack{pcs: t.PCs, guesses: t.Guessed, cause: t.End}}
			th, p := s.tracker.sampledThread(one.pid, one.TID)
			s.part.counts.addStack(&one.user)
			s.add(&one, th, p)
			s.back(th, now)
		}
	}
}
