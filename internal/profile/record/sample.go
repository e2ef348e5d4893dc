//go:build linux && amd64

package record

import (
	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// foreign reports whether a sample is of a process that is not recorded, since a probe stops all that come there. Those
// recorded were running at the start, or records tell that they began.
func (s *Session) foreign(r *perfdata.Sample) bool {
	return !s.opt.Target.All && s.opt.event(s.numbers[r.ID]).wide && s.tracker.processes[r.PID] == nil
}

// sample unwinds a sample, whose record is raw, and counts its stack. next is what is known of its ring.
func (s *Session) sample(r *perfdata.Sample, raw []byte, next *ahead) {
	counts := &s.part.counts
	counts.Samples++
	s.pace.sampled(r.CPU, r.Time)
	th := s.tracker.thread(r.PID, r.TID)
	p, maps := s.tracker.sampled(r.PID)
	stack := Stack{Comm: s.tracker.commID(p.Name(th.comm)), PID: r.PID, End: stackfmt.NoUserStack,
		Labels: s.labeler.number(s.tracker, r.PID, r.TID, r.CPU, p.space), Event: s.numbers[r.ID]}
	s.kernel = chainPart(s.kernel[:0], r, perfdata.ModeKernel)
	var user frameStack
	switch {
	case r.UserRegs.ABI == perfdata.ABI32:
		stack.Origin |= is32
		counts.Compat++
	case r.UserRegs.ABI == perfdata.ABINone:
		counts.Kernel++
	case len(r.Stack) == 0 && s.opt.Copy > 0:
		stack.Origin |= noCopy
		counts.NoCopy++
	default:
		user = s.userPart(r, th, maps, next)
		stack.End = user.cause
		if user.refill == completed {
			stack.Origin |= fromLater
		}
	}
	if s.opt.Samples {
		s.part.mains[r.PID] = p.Name(s.tracker.thread(r.PID, r.PID).comm)
	}
	if w := s.opt.Raw; w != nil && w.Chains {
		w.chained(r, raw, s.instructions(maps, user.pcs))
	}
	words := append(s.words[:0], uint64(stack.Labels)<<32|uint64(p.space), uint64(stack.Comm)<<32|uint64(stack.Event)<<16|uint64(stack.End)<<8|uint64(stack.Origin), uint64(len(s.kernel))<<32|uint64(len(user.guesses)))
	for _, i := range user.guesses {
		words = append(words, uint64(i))
	}
	words = append(append(words, s.kernel...), user.pcs...)
	s.words = words
	table := s.part.table
	h := table.hash(words)
	id, ok := table.index[h]
	if !ok {
		id = table.insert(h, stack, maps, s.kernel, user.pcs, user.guesses)
	}
	if s.opt.Event.blocked {
		if r.TID != 0 { // not the idle thread
			th.off = away{since: r.Time, tid: r.TID, cpu: r.CPU, stack: id, asleep: true}
		}
		return
	}
	s.count(Sample{Time: r.Time, Period: max(r.Period, s.opt.event(stack.Event).every), Stack: id, TID: r.TID, CPU: r.CPU})
}

// instructions returns the addresses of a stack with return addresses minus 1, so that they lie in the instruction that called.
func (s *Session) instructions(maps *unwind.Maps, pcs []uint64) []uint64 {
	list, exact := s.calls[:0], true
	for _, pc := range pcs {
		if !exact {
			pc--
		}
		list = append(list, pc)
		exact = maps.SignalFrame(pc)
	}
	s.calls = list
	return list
}

// count counts a sample of a stack in the table.
func (s *Session) count(one Sample) {
	s.part.table.count(one.Stack, one.Period)
	if s.opt.Samples {
		s.part.samples = append(s.part.samples, one)
	}
}

// chainPart appends those addresses of a sample's call chain that are of a mode.
func chainPart(list []uint64, r *perfdata.Sample, of perfdata.CPUMode) []uint64 {
	mode := r.Mode()
	for _, ip := range r.Callchain {
		if next, marker := perfdata.ContextMode(ip); marker {
			mode = next
		} else if mode == of {
			list = append(list, ip)
		}
	}
	return list
}

// dwarfRegs is the registers of a sample, in the order in which the mask
// perfevent.RegsUser has them, by their DWARF numbers.
var dwarfRegs = [...]int{abi.RAX, abi.RBX, abi.RCX, abi.RDX, abi.RSI, abi.RDI, abi.RBP, abi.RSP, abi.RIP,
	abi.R8, abi.R9, abi.R10, abi.R11, abi.R12, abi.R13, abi.R14, abi.R15}

// userPart walks the user stack.
func (s *Session) userPart(r *perfdata.Sample, th *thread, maps *unwind.Maps, next *ahead) frameStack {
	if len(maps.All()) == 0 || len(r.UserRegs.Values) != len(dwarfRegs) {
		f := frameStack{cause: unwind.NoMapping}
		s.part.counts.walked(&f)
		return f
	}
	c := copied{pid: r.PID, time: r.Time, limit: s.opt.Copy, maps: maps, regs: abi.Regs{Exact: 1}}
	for i, v := range r.UserRegs.Values {
		c.regs.Reg[dwarfRegs[i]] = v
		c.regs.Valid |= 1 << dwarfRegs[i]
	}
	c.memory = ehelf.Memory{Lo: c.regs.Reg[abi.RSP], Bytes: r.Stack}
	if r.StackSize > uint64(s.opt.Copy) {
		c.limit = s.opt.Grow
		s.part.counts.Long++
	}
	f := s.unwinder.walk(&c, th)
	s.pointers = chainPart(s.pointers[:0], r, perfdata.ModeUser)
	s.unwinder.follow(&c, &f, s.pointers)
	next.learn(&c.memory, f.extent(&c), f.pcs)
	s.part.counts.walked(&f)
	if s.opt.Refill {
		s.copies.walked++
		if f.cut {
			s.pace.alert = s.now + alertTime
		}
		if f.cut && !f.whole() && c.full() {
			s.copies.short++
		}
	}
	return f
}
