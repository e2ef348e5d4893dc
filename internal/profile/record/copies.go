//go:build linux && amd64

package record

import (
	"encoding/binary"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// copies makes user stacks of what the kernel copies into samples: registers, and a part of the stack. Only here is
// known how long copies are, and that they may be too short.
type copies struct {
	unwinder
	growth
	opt      *Options
	open     *opened
	pointers []uint64 // frames that the kernel has found by frame pointer
}

// newCopies returns the copies of a recording.
func newCopies(opt *Options, op *opened) *copies {
	return &copies{unwinder: newUnwinder(opt), growth: growth{few: 2}, opt: opt, open: op}
}

// dwarfRegs is the registers of a sample, in the order in which the mask
// perfevent.RegsUser has them, by their DWARF numbers.
var dwarfRegs = [...]int{abi.RAX, abi.RBX, abi.RCX, abi.RDX, abi.RSI, abi.RDI, abi.RBP, abi.RSP, abi.RIP,
	abi.R8, abi.R9, abi.R10, abi.R11, abi.R12, abi.R13, abi.R14, abi.R15}

// These have nothing to do: all that copies need is in the records of perf.
func (k *copies) begin() (bool, error)          { return false, nil }
func (k *copies) arrive(uint64)                 {}
func (k *copies) started(int32)                 {}
func (k *copies) forked(_, _ int32)             {}
func (k *copies) changed(int32, *process, bool) {}
func (k *copies) beside() (lost, bytes uint64)  { return 0, 0 }
func (k *copies) close()                        {}

func (k *copies) wait(most time.Duration) (wait, blind time.Duration) { return most, 0 }

func (k *copies) release(are func(*unwind.Object) bool) { k.walker.Forget(are) }

// of walks the user stack of a sample.
func (k *copies) of(r *perfdata.Sample, th *thread, p *process) frameStack {
	maps := p.sampledMaps
	if len(maps.All()) == 0 || len(r.UserRegs.Values) != len(dwarfRegs) {
		return frameStack{cause: unwind.NoMapping}
	}
	c := copied{pid: r.PID, time: r.Time, limit: k.opt.Settings.Copy, maps: maps, regs: abi.Regs{Exact: 1}}
	for i, v := range r.UserRegs.Values {
		c.regs.Reg[dwarfRegs[i]] = v
		c.regs.Valid |= 1 << dwarfRegs[i]
	}
	c.memory = ehelf.Memory{Lo: c.regs.Reg[abi.RSP], Bytes: r.Stack}
	long := r.StackSize > uint64(k.opt.Settings.Copy)
	if long {
		c.limit = k.opt.Settings.Grow
	}
	f := k.unwinder.walk(&c, th)
	f.long = long
	k.pointers = chainPart(k.pointers[:0], r, perfdata.ModeUser)
	k.unwinder.follow(&c, &f, k.pointers)
	k.stacks++
	if f.cut && !f.whole() && c.full() {
		k.short++
	}
	return f
}

// size returns how many bytes copies have now.
func (k *copies) size() int {
	if k.grown && !k.shrunk {
		return k.opt.Settings.Grow
	}
	return k.opt.Settings.Copy
}

// growth decides how long copies are.
type growth struct {
	muted   map[uint64]bool // numbers of the events that were replaced by longer copies; nil: none
	mutedAt uint64
	stacks  uint64
	short   uint64 // those that stayed incomplete because the copy was too short
	few     uint64 // fewer of them are no reason for longer copies
	grown   bool   // copies are as long as Options.Grow, or were
	crowded bool   // samples were lost since the last round
	shrunk  bool   // copies are as long as Options.Copy for good
}

// end switches to longer copies if too many stacks have stayed incomplete, and back to shorter ones
// for good if samples are lost, since nothing is known of the stack of a lost sample.
func (k *copies) end(uint64) error {
	const inMany = 400
	if k.crowded {
		k.crowded = false
		if k.grown && !k.shrunk {
			k.shrunk, k.muted = true, nil
			k.open.samples.unmute(k.opt.Event, k.opt.Settings.Frequency)
			return replace(&k.open.long, &k.open.samples)
		}
		k.grown = true // it never is
		k.shrunk = true
	}
	if k.grown || len(k.open.long.all) == 0 || k.short < k.few || k.short*inMany < k.stacks {
		return nil
	}
	k.grown = true
	if err := replace(&k.open.samples, &k.open.long); err != nil {
		return err
	}
	var err error
	k.mutedAt, err = k.refiller.clock.now()
	k.muted = k.open.samples.mute(k.opt.Event)
	return err
}

// crowd notes that samples were lost.
func (g *growth) crowd() { g.crowded = true }

// grew reports whether longer copies had replaced the first event before.
func (g *growth) grew(when uint64) bool { return g.muted != nil && when > g.mutedAt }

func (g *growth) replaced(raw []byte, when uint64) bool {
	const header = 8 // the event's number follows: see sampleType
	return g.grew(when) && g.muted[binary.LittleEndian.Uint64(raw[header:])]
}
