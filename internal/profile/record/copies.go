//go:build linux && amd64

package record

import "encoding/binary"

// copies holds how long the kernel's copies of stacks are.
type copies struct {
	muted   map[uint64]bool // numbers of the events that were replaced by longer copies; nil: none
	mutedAt uint64
	walked  uint64 // stacks
	short   uint64 // those that stayed incomplete because the copy was too short
	grown   bool   // copies are as long as Options.Grow, or were
	crowded bool   // samples were lost since the last round
	shrunk  bool   // copies are as long as Options.Copy for good
}

// growCopies switches to longer copies if too many stacks have stayed incomplete, and back to shorter ones
// for good if samples are lost, since nothing is known of the stack of a lost sample.
func (s *Session) growCopies() error {
	const few, inMany = 2, 400
	c := &s.copies
	if c.crowded {
		c.crowded = false
		if c.grown && !c.shrunk {
			c.shrunk, c.muted = true, nil
			s.open.samples.unmute(s.opt.Event, s.opt.Frequency)
			return replace(&s.open.long, &s.open.samples)
		}
		c.grown = true // it never is
		c.shrunk = true
	}
	if c.grown || len(s.open.long.all) == 0 || c.short < few || c.short*inMany < c.walked {
		return nil
	}
	c.grown = true
	if err := replace(&s.open.samples, &s.open.long); err != nil {
		return err
	}
	var err error
	c.mutedAt, err = s.clock.now()
	c.muted = s.open.samples.mute(s.opt.Event)
	return err
}

// isMuted reports whether a sample is of an event that was replaced before.
func (c *copies) isMuted(raw []byte, at uint64) bool {
	const header = 8 // the event's number follows: see sampleType
	return c.muted != nil && at > c.mutedAt && c.muted[binary.LittleEndian.Uint64(raw[header:])]
}
