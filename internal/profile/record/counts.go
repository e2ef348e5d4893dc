//go:build linux && amd64

package record

import (
	"time"

	"github.com/ehasm/ehasm/unwind"
)

// Counts holds what a Session counts besides stacks.
type Counts struct {
	Samples uint64 `json:"samples"`
	Kernel  uint64 `json:"samples_of_kernel_threads"`
	NoCopy  uint64 `json:"samples_without_stack"` // in execve, or exiting
	Compat  uint64 `json:"samples_of_32_bit_code"`
	Waited  uint64 `json:"preempted_ns,omitempty"` // off the processor, but not blocked
	ReadCounts
	WalkCounts
	RefillCounts
}

// ReadCounts holds what came of reading records.
type ReadCounts struct {
	Lost      uint64        `json:"lost"`         // samples that the kernel had no room for
	LostSide  uint64        `json:"lost_records"` // records of what processes do
	Bytes     uint64        `json:"bytes_read"`   // of samples, from the rings
	Throttled uint64        `json:"throttled"`    // times that the kernel stopped sampling for a while
	Bad       uint64        `json:"bad_records"`
	Reread    uint64        `json:"mappings_read_again"`
	Handling  time.Duration `json:"handling_ns"` // processor time spent on records
	Rounds    uint64        `json:"rounds"`
	Released  uint64        `json:"released_files"` // that no process had mapped any more
}

// WalkCounts holds what came of user stacks.
type WalkCounts struct {
	Unwound  uint64                   `json:"stacks_unwound"`
	Frames   uint64                   `json:"user_frames"`
	Ends     [unwind.NumCauses]uint64 `json:"-"`
	Guessed  uint64                   `json:"stacks_by_frame_pointer"`
	Long     uint64                   `json:"samples_with_longer_copies"`
	InKernel uint64                   `json:"stacks_unwound_in_the_kernel"`
}

// RefillCounts holds what came of stacks that are longer than their copies.
type RefillCounts struct {
	Cut         uint64 `json:"stacks_longer_than_their_copy"`
	Completed   uint64 `json:"refilled_from_memory"`
	Changed     uint64 `json:"not_refilled_memory_changed"`
	Unconfirmed uint64 `json:"not_refilled_other_callers_before"`
}

// addStack counts a stack by how its walk ended.
func (c *Counts) addStack(f *frameStack) {
	c.Unwound++
	c.Frames += uint64(len(f.pcs))
	c.Ends[f.cause]++
	if len(f.guesses) > 0 {
		c.Guessed++
	}
	if f.cut {
		c.Cut++
	}
	if f.long {
		c.Long++
	}
	switch f.refill {
	case completed:
		c.Completed++
	case changed:
		c.Changed++
	case unconfirmed:
		c.Unconfirmed++
	}
}

// Whole returns the fraction of stacks that are complete.
func (c *Counts) Whole() float64 {
	return float64(c.Ends[unwind.Outermost]+c.Ends[unwind.OutermostGuessed]) / float64(max(c.Unwound, 1))
}

// add adds what another part of a recording has counted.
func (c *Counts) add(d *Counts) {
	for _, f := range []struct {
		to   *uint64
		from uint64
	}{{&c.Samples, d.Samples}, {&c.Kernel, d.Kernel}, {&c.NoCopy, d.NoCopy}, {&c.Compat, d.Compat}, {&c.Waited, d.Waited},
		{&c.Lost, d.Lost}, {&c.Bytes, d.Bytes}, {&c.LostSide, d.LostSide}, {&c.Throttled, d.Throttled}, {&c.Bad, d.Bad},
		{&c.Reread, d.Reread}, {&c.Rounds, d.Rounds}, {&c.Released, d.Released},
		{&c.Unwound, d.Unwound}, {&c.Frames, d.Frames}, {&c.Guessed, d.Guessed}, {&c.Long, d.Long}, {&c.InKernel, d.InKernel},
		{&c.Cut, d.Cut}, {&c.Completed, d.Completed}, {&c.Changed, d.Changed}, {&c.Unconfirmed, d.Unconfirmed}} {
		*f.to += f.from
	}
	for i, n := range d.Ends {
		c.Ends[i] += n
	}
	c.Handling += d.Handling
}
