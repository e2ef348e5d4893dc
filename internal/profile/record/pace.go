//go:build linux && amd64

package record

import "time"

// pace decides when the rings are read next. A round costs about 30 us however few samples
// it finds, so samples are left to accumulate. But if a stack is longer than its copy, the
// rest must be read before it changes.
type pace struct {
	period uint64   // ns between two samples of a CPU; 0: not known
	due    []uint64 // by CPU, when its next sample will be taken; 0: not known
	alert  uint64   // until then stacks longer than their copies are expected
	moving uint64   // until then processes are expected to map files, which may be gone soon
	fresh  bool     // the last round had samples
	// mapWait is how long a round waits while processes map files.
	mapWait time.Duration
	// slow says that rings fill in seconds, so that nothing is lost if the reader is late.
	slow bool
}

// Intervals at which rings are read.
const (
	cutWait   = time.Millisecond       // at most, while stacks longer than their copies are expected, or half a period
	leastWait = 150 * time.Microsecond // at least
	settle    = 40 * time.Microsecond  // after which a sample that was due is in its ring
	leastMap  = 10 * time.Millisecond  // at least while processes map files: two periods
	mostMap   = 25 * time.Millisecond  // at most
	calmWait  = 100 * time.Millisecond // else: rings that fill faster wake the reader
	// alertTime is how long after a long stack the next one is expected, movingTime after a
	// mapping.
	alertTime  = 100 * uint64(time.Millisecond)
	movingTime = 500 * uint64(time.Millisecond)
)

// newPace returns the pace of a recording; size is the bytes of a ring.
func newPace(o *Options, ring int) pace {
	p := pace{mapWait: leastMap}
	if o.Event.every == 0 && len(o.More) == 0 {
		const lateness = 2 * time.Second // of a thread without priority on a busy machine
		period := time.Second / time.Duration(o.Settings.Frequency)
		p.period = uint64(period)
		p.mapWait = min(max(leastMap, 2*period), mostMap)
		p.slow = !o.Settings.Realtime && fillTime(period, ring, max(o.Settings.Copy, o.Settings.Grow)) >= lateness
	}
	return p
}

// fillTime returns how long a ring takes to fill with copies of a number of bytes, one each period.
func fillTime(period time.Duration, ring, size int) time.Duration {
	return period * time.Duration(ring/max(size, 1))
}

// note notes a sample.
func (p *pace) note(cpu uint32, when uint64) {
	p.fresh = true
	if p.period > 0 {
		for uint32(len(p.due)) <= cpu {
			p.due = append(p.due, 0)
		}
		p.due[cpu] = when + p.period
	}
}

// wait returns how long the next round can wait.
func (p *pace) wait(now uint64) time.Duration {
	fresh := p.fresh
	p.fresh = false
	most := max(cutWait, time.Duration(p.period/2))
	switch {
	case now < p.alert && fresh:
		next := most
		for cpu, due := range p.due {
			left := time.Duration(due - now)
			if due == 0 || left <= -settle { // it was none: the CPU does something else
				p.due[cpu] = 0
				continue
			}
			next = min(next, left+settle)
		}
		return max(next, leastWait)
	case now < p.alert:
		return most
	case now < p.moving:
		return p.mapWait
	}
	return calmWait
}
