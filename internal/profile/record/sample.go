//go:build linux && amd64

package record

import (
	"slices"

	"github.com/ehasm/ehasm/bpfunwind"
	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// foreign reports whether a sample is of a process that is not recorded, since a probe stops all that come there. Those
// recorded were running at the start, or records tell that they began.
func (s *Session) foreign(r *perfdata.Sample) bool {
	e := s.opt.event(s.numbers[r.ID])
	return !s.opt.Target.All && (e.wide || e.hooked) && s.tracker.processes[r.PID] == nil
}

// sampled is a sample of a thread with its stack.
type sampled struct {
	Sample // without Stack
	pid    int32
	event  uint8 // place in Options.events
	origin Origin
	kernel []uint64 // innermost first
	user   frameStack
}

// sample takes a sample of which the kernel has copied registers and stack. raw is its record.
func (s *Session) sample(r *perfdata.Sample, raw []byte) {
	one := sampled{Sample: Sample{Time: r.Time, Period: r.Period, TID: r.TID, CPU: r.CPU}, pid: r.PID,
		event: s.numbers[r.ID],
		user:  frameStack{cause: stackfmt.NoUserStack}}
	s.kernelPart = chainPart(s.kernelPart[:0], r, perfdata.ModeKernel)
	one.kernel = s.kernelPart
	if e := s.opt.event(one.event); e.hooked && e.raw != "" {
		one.kernel = one.kernel[min(bpfunwind.OwnFrames, len(one.kernel)):]
	}
	th, p := s.tracker.sampledThread(r.PID, r.TID)
	counts := &s.part.counts
	switch {
	case r.UserRegs.ABI == perfdata.ABI32:
		one.origin |= is32
		counts.Compat++
	case r.UserRegs.ABI == perfdata.ABINone:
		counts.Kernel++
	case len(r.Stack) == 0 && s.opt.Settings.Copy > 0:
		one.origin |= noCopy
		counts.NoCopy++
	default:
		one.user = s.stacks.of(r, th, p)
		counts.addStack(&one.user)
	}
	if w := s.opt.Raw; w != nil && w.Chains {
		w.chained(r, raw, s.instructions(p.sampledMaps, one.user.pcs))
	}
	s.add(&one, th, p)
}

// unwound takes a sample whose stack has come without a copy.
func (s *Session) unwound(one *sampled, th *thread, p *process) {
	s.part.counts.addStack(&one.user)
	s.part.counts.InKernel++
	s.add(one, th, p)
}

// add counts the stack of a sample.
func (s *Session) add(one *sampled, th *thread, p *process) {
	s.part.counts.Samples++
	s.numberMade(one.kernel)
	s.pace.note(one.CPU, one.Time)
	user := &one.user
	if user.cut {
		s.pace.alert = s.now + alertTime
	}
	if user.refill == completed {
		one.origin |= fromLater
	}
	if s.opt.Samples {
		s.part.mains[one.pid] = p.Name(p.main.comm)
	}
	stack := Stack{Comm: s.part.comms.id(p.Name(th.comm)), PID: one.pid, End: user.cause, Origin: one.origin,
		Event:  one.event,
		Labels: s.labeler.number(s.tracker, one.pid, one.TID, one.CPU, p)}
	s.words = stack.words(s.words[:0], p.space, one.kernel, user)
	table := s.part.table
	h := table.hash(s.words)
	id, ok := table.index[h]
	if !ok {
		id = table.insert(h, stack, p.sampledMaps, one.kernel, user.pcs, user.guesses)
	}
	if s.opt.Event.blocked {
		if one.TID != 0 { // not the idle thread
			th.off = away{since: one.Time, tid: one.TID, cpu: one.CPU, stack: id, asleep: true, ran: true}
		}
		return
	}
	one.Stack, one.Period = id, max(one.Period, s.opt.event(one.event).every)
	s.count(one.Sample)
}

// madeOffset is how many bits of a number for an address in code that the kernel made are the offset there. Above them
// is 1 more than the place in Profile.Made. Addresses of the kernel are larger: their highest bit is set.
const madeOffset = 32

// numberMade replaces addresses in code that the kernel made, such as BPF programs: other code may be there later.
func (s *Session) numberMade(kernel []uint64) {
	for i, pc := range kernel {
		if code := symbolize.FindCode(s.kernelCode.Now(), pc); code != nil {
			index := slices.Index(s.part.made, code)
			if index < 0 {
				index = len(s.part.made)
				s.part.made = append(s.part.made, code)
			}
			kernel[i] = uint64(index+1)<<madeOffset | (pc - code.Start)
		}
	}
}

// madeAt returns the address that a table has for one of the kernel, and the code there if the kernel made it.
func (p *Profile) madeAt(pc uint64) (uint64, *symbols.Symbol) {
	if int64(pc) < 0 || pc>>madeOffset == 0 {
		return pc, nil
	}
	code := p.Made[pc>>madeOffset-1]
	return code.Start + pc&(1<<madeOffset-1), code
}

// words appends what distinguishes a stack in an address space from all others.
func (s *Stack) words(list []uint64, space uint32, kernel []uint64, user *frameStack) []uint64 {
	list = append(list, uint64(s.Labels)<<32|uint64(space),
		uint64(s.Comm)<<32|uint64(s.Event)<<16|uint64(s.End)<<8|uint64(s.Origin),
		uint64(len(kernel))<<32|uint64(len(user.guesses)))
	for _, i := range user.guesses {
		list = append(list, uint64(i))
	}
	return append(append(list, kernel...), user.pcs...)
}

// instructions returns the addresses of a stack with return addresses minus 1, so that they lie in the instruction that
// called.
func (s *Session) instructions(maps *unwind.Maps, pcs []uint64) []uint64 {
	list, exact := s.insns[:0], true
	for _, pc := range pcs {
		if !exact {
			pc--
		}
		list = append(list, pc)
		exact = maps.SignalFrame(pc)
	}
	s.insns = list
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
	for mode, ip := range perfdata.Chain(r.Callchain, r.Mode()) {
		if mode == of {
			list = append(list, ip)
		}
	}
	return list
}
