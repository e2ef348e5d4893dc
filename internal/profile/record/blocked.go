//go:build linux && amd64

package record

import "encoding/binary"

// away is a thread's time off the processor.
type away struct {
	since  uint64 // ns
	tid    int32
	cpu    uint32
	stack  uint32 // index of Table.Stacks
	asleep bool   // it is away
	ready  bool   // it was preempted and could run
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
	if th == nil || !th.off.asleep {
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
	th.off = away{}
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
}
