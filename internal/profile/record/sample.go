//go:build linux && amd64

package record

import (
	"encoding/binary"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// sample unwinds a sample and counts its stack.
func (s *Session) sample(r *perfdata.Sample) {
	s.counts.Samples++
	s.pace.sampled(r.CPU, r.Time)
	th := s.tracker.thread(r.PID, r.TID)
	p, maps := s.tracker.sampled(r.PID)
	stack := Stack{Comm: s.tracker.commID(th.comm), PID: r.PID, End: stackfmt.NoUserStack}
	s.kernelPart(r)
	s.guesses = s.guesses[:0]
	n := 0
	switch {
	case r.UserRegs.ABI == perfdata.ABI32:
		stack.Origin |= is32
		s.counts.Compat++
	case r.UserRegs.ABI == perfdata.ABINone:
		s.counts.Kernel++
	case len(r.Stack) == 0 && s.opt.Copy > 0:
		stack.Origin |= noCopy
		s.counts.NoCopy++
	default:
		n = s.userPart(r, th, maps, &stack)
	}
	words := append(s.words[:0], uint64(p.space), uint64(stack.Comm)<<32|uint64(stack.End)<<8|uint64(stack.Origin), uint64(len(s.kernel))<<32|uint64(len(s.guesses)))
	for _, i := range s.guesses {
		words = append(words, uint64(i))
	}
	words = append(append(words, s.kernel...), s.pcs[:n]...)
	s.words = words
	h := s.table.hash(words)
	id, ok := s.table.index[h]
	if !ok {
		id = s.table.insert(h, stack, maps, s.kernel, s.pcs[:n], s.guesses)
	}
	if s.opt.Event.blocked {
		if r.TID != 0 { // not the idle thread
			th.off = away{since: r.Time, stack: id, asleep: true}
		}
		return
	}
	s.table.count(id, r.Period)
	if s.opt.Samples {
		s.samples = append(s.samples, Sample{Time: r.Time, Period: r.Period, Stack: id, TID: r.TID, CPU: r.CPU})
	}
}

// kernelPart sets s.kernel to the kernel's addresses of the call chain.
func (s *Session) kernelPart(r *perfdata.Sample) {
	s.kernel = s.kernel[:0]
	mode := r.Mode()
	for _, ip := range r.Callchain {
		switch {
		case ip == perfdata.ContextKernel:
			mode = perfdata.ModeKernel
		case ip == perfdata.ContextUser:
			mode = perfdata.ModeUser
		case ip >= perfdata.ContextMax:
			mode = perfdata.ModeUnknown
		case mode == perfdata.ModeKernel:
			s.kernel = append(s.kernel, ip)
		}
	}
}

// dwarfRegs is the registers of a sample, in the order in which the mask
// perfevent.RegsUser has them, by their DWARF numbers.
var dwarfRegs = [...]int{abi.RAX, abi.RBX, abi.RCX, abi.RDX, abi.RSI, abi.RDI, abi.RBP, abi.RSP, abi.RIP,
	abi.R8, abi.R9, abi.R10, abi.R11, abi.R12, abi.R13, abi.R14, abi.R15}

// userPart walks the user stack into s.pcs and returns the number of frames.
func (s *Session) userPart(r *perfdata.Sample, th *thread, maps *unwind.Maps, stack *Stack) int {
	if len(maps.All()) == 0 || len(r.UserRegs.Values) != len(dwarfRegs) {
		stack.End = unwind.NoMapping
		s.counts.Unwound++
		s.counts.Ends[unwind.NoMapping]++
		return 0
	}
	first := abi.Regs{Exact: 1}
	for i, v := range r.UserRegs.Values {
		first.Reg[dwarfRegs[i]] = v
		first.Valid |= 1 << dwarfRegs[i]
	}
	mem := ehelf.Memory{Lo: first.Reg[abi.RSP], Bytes: r.Stack}
	s.copied = s.opt.Copy
	if r.StackSize > uint64(s.opt.Copy) {
		s.copied = s.opt.Grow
		s.counts.Long++
	}
	n, cause, how := s.walk(r.PID, th, maps, first, &mem)
	s.current.learn(&mem, s.extent, s.pcs[:n])
	stack.End, stack.Origin = cause, how
	s.note(n, cause, how)
	return n
}

// note counts a walk.
func (s *Session) note(n int, cause unwind.Cause, how Origin) {
	c := &s.counts
	c.Unwound++
	c.Frames += uint64(n)
	c.Ends[cause]++
	s.walked++
	if len(s.guesses) > 0 {
		c.Guessed++
	}
	if how&fromLast != 0 {
		c.FromLast++
	}
	if how&fromLater != 0 {
		c.FromLater++
	}
}

// walk walks a stack, and where the copy has not all of it, makes it whole if that is
// wanted and possible.
func (s *Session) walk(pid int32, th *thread, maps *unwind.Maps, first abi.Regs, mem *ehelf.Memory) (int, unwind.Cause, Origin) {
	regs := first
	n, cause, _ := s.walker.Walk(maps, &regs, mem, s.pcs)
	s.extent = regs.Reg[abi.RSP] - first.Reg[abi.RSP]
	s.guesses = append(s.guesses[:0], s.walker.Guesses...)
	var how Origin
	if s.opt.Refill && s.isLong(cause) {
		s.pace.alert = s.now + alertTime
	}
	if s.opt.Refill && s.isCut(cause, &regs, mem) {
		s.counts.Cut++
		n, cause, how = s.refill.complete(s, pid, th, maps, first, regs, mem, n, s.pcs)
		if !isWhole(cause) && len(mem.Bytes)+word > s.copied { // else the copy has ended at a page that was never touched
			s.short++
		}
	} else if s.opt.Refill {
		s.refill.remember(s, th, maps, first, regs, mem, s.pcs[:n], cause)
	}
	return n, cause, how
}

// isLong reports whether a stack is so long that the thread's next ones may be longer than
// their copies.
func (s *Session) isLong(cause unwind.Cause) bool {
	return cause == unwind.Unreadable || s.extent > uint64(s.copied)/2
}

// isCut reports whether a walk has ended at the end of the copy: the return address is
// not in it, or the frame that a frame pointer leads to.
func (s *Session) isCut(cause unwind.Cause, at *abi.Regs, mem *ehelf.Memory) bool {
	switch cause {
	case unwind.Unreadable:
		return true
	case unwind.NoInfo, unwind.NoObject:
		const frame, most = 16, 8 << 20
		over := at.Reg[abi.RBP] + frame - (mem.Lo + uint64(len(mem.Bytes)))
		return s.opt.Pointers != unwind.Never && at.Valid>>abi.RBP&1 != 0 && over-1 < most
	}
	return false
}

// growCopies switches to longer copies if too many stacks have stayed incomplete, and back to shorter ones
// for good if samples are lost, since nothing is known of the stack of a lost sample.
func (s *Session) growCopies() error {
	const few, inMany = 2, 400
	if s.crowded {
		s.crowded = false
		if s.grown && !s.shrunk {
			s.shrunk, s.muted = true, nil
			s.open.samples.unmute(s.opt.Event, s.opt.Frequency)
			return replace(&s.open.long, &s.open.samples)
		}
		s.grown = true // it never is
		s.shrunk = true
	}
	if s.grown || len(s.open.long.all) == 0 || s.short < few || s.short*inMany < s.walked {
		return nil
	}
	s.grown = true
	if err := replace(&s.open.samples, &s.open.long); err != nil {
		return err
	}
	var err error
	s.mutedAt, err = s.clock.now()
	s.muted = s.open.samples.mute(s.opt.Event)
	return err
}

// isMuted reports whether a sample is of an event that was replaced before.
func (s *Session) isMuted(raw []byte, at uint64) bool {
	const header = 8 // the event's number follows: see sampleType
	return s.muted != nil && at > s.mutedAt && s.muted[binary.LittleEndian.Uint64(raw[header:])]
}
