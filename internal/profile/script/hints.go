package script

import (
	"fmt"

	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// maxStackCopy is the largest copy of a stack that the kernel makes, in bytes: a sample's
// size has 16 bits, and the copy's a multiple of 8 (perf_event_open(2), sample_stack_user).
const maxStackCopy = 65528

// hints returns what would give better stacks, the most likely cause first, as sentences with the flag to give. A hint
// must rest on a count: one that is wrong costs another recording.
func (run *runner) hints(s *Summary, nameless []string) (hints []string) {
	if s.Read == 0 {
		return []string{"the recording has no samples"}
	}
	if s.Samples == 0 {
		return []string{run.seen.nothing(&run.opt.Filter)}
	}
	copied := uint32(0) // bytes of stacks, at most
	for _, e := range run.reader.Events() {
		if e.SampleType&perfdata.SampleStackUser != 0 && e.SampleType&perfdata.SampleRegsUser != 0 {
			copied = max(copied, e.StackUser)
		}
	}
	if copied == 0 {
		hints = append(hints, "the recording has no copies of stacks, so there is nothing to unwind: record with perf record --call-graph dwarf")
	}
	// From 0.05 % on the text shows 0.1 %: a hint about 0.0 % of the stacks would puzzle.
	if share(s.Elsewhere, s.Unwound) >= 0.05 {
		hints = append(hints, fmt.Sprintf(
			"%.1f %% of the stacks go on elsewhere, such as on the stack that a signal has interrupted, which perf does not copy",
			share(s.Elsewhere, s.Unwound)))
	}
	if cut := s.Ends[unwind.Unreadable.String()] - s.Elsewhere; share(cut, s.Unwound) >= 0.05 {
		// four times: doubling would need several recordings until most stacks fit
		remedy := fmt.Sprintf("record with perf record --call-graph dwarf,%d", min(4*copied, maxStackCopy))
		if copied >= maxStackCopy {
			remedy = "the copies are as large as the kernel makes them"
		}
		hints = append(hints, fmt.Sprintf("%.1f %% of the stacks are cut, since they are larger than the %d bytes copied: %s",
			share(cut, s.Unwound), copied, remedy))
	}
	if full := s.Ends[unwind.Full.String()]; full > 0 {
		hints = append(hints, fmt.Sprintf("%.1f %% of the stacks are cut after %d frames: --max-stack=%d",
			share(full, s.Unwound), run.opt.MaxStack, 8*run.opt.MaxStack))
	}
	if below := s.Ends[unwind.BelowStack.String()]; below > 0 {
		hints = append(hints, fmt.Sprintf(
			"%.1f %% of the stacks end in functions that keep their caller's frame below the stack pointer, "+
				"which perf does not copy", share(below, s.Unwound)))
	}
	// a lost mapping leaves addresses without an object, which looks like code that is made at run time
	if s.Lost > 0 {
		hints = append(hints, "the lost records may include mappings: record with perf record -m 16M, at a lower rate or with smaller copies")
	}
	return append(hints, nameless...)
}

// share returns a part of all in percent.
func share(part, all uint64) float64 { return 100 * float64(part) / float64(max(all, 1)) }
