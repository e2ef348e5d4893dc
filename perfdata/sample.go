package perfdata

import (
	"fmt"
	"math/bits"
)

// Markers in a call chain: enum perf_callchain_context. An entry at or above
// ContextMax says what kind of addresses follow it.
const (
	ContextHV           = ^uint64(32 - 1)
	ContextKernel       = ^uint64(128 - 1)
	ContextUser         = ^uint64(512 - 1)
	ContextUserDeferred = ^uint64(640 - 1)
	ContextGuest        = ^uint64(2048 - 1)
	ContextMax          = ^uint64(4095 - 1)
)

// ContextMode returns the mode of the addresses that follow an entry of a call chain, and whether the entry is such a
// marker at all. The mode is ModeUnknown after markers other than those of the kernel and of user code.
func ContextMode(entry uint64) (mode CPUMode, marker bool) {
	switch {
	case entry == ContextKernel:
		return ModeKernel, true
	case entry == ContextUser:
		return ModeUser, true
	}
	return ModeUnknown, entry >= ContextMax
}

// ABI says which registers a sample has: enum perf_sample_regs_abi.
type ABI uint64

// The register ABIs.
const (
	ABINone ABI = iota
	ABI32
	ABI64
)

// Regs is a set of registers.
type Regs struct {
	ABI    ABI
	Mask   uint64   // bit i: register i of enum perf_event_x86_regs is there
	Values []uint64 // those of Mask, ascending
}

// Sample is PERF_RECORD_SAMPLE. Event.SampleType says which fields it has; the
// others are zero.
type Sample struct {
	Header
	SampleID
	Event     *Event
	IP        uint64
	Addr      uint64
	Period    uint64
	Callchain []uint64
	Raw       []byte
	Branches  []byte // struct perf_branch_entry, 24 bytes each
	UserRegs  Regs
	Stack     []byte // copy of the user stack from its stack pointer on
	StackSize uint64 // bytes that the kernel reserved for it
	IntrRegs  Regs
	Cgroup    uint64
	Aux       []byte
	MemoryAccess
	CounterRead
	marks chainMarks
}

// MemoryAccess tells of the access to memory that a sample was taken at.
type MemoryAccess struct {
	Weight      uint64
	DataSrc     uint64
	Transaction uint64
	PhysAddr    uint64
	DataPage    uint64
	CodePage    uint64
}

// CounterRead holds the counters of a sample.
type CounterRead struct {
	ReadValue     uint64 // of the first counter
	ReadTimes     [2]uint64
	ReadLost      uint64
	readGroupSize uint64
}

// decode reads the body of a sample: the order follows perf_output_sample in
// kernel/events/core.c.
func (s *Sample) decode(c *cursor, ev *Event) error {
	if ev == nil {
		return ErrUnknownEvent
	}
	t := ev.SampleType
	if t&^sampleKnown != 0 {
		return fmt.Errorf("%w: sample_type %#x has fields that are not known", ErrBadRecord, uint64(t))
	}
	*s = Sample{Header: s.Header, Event: ev, Callchain: s.Callchain[:0],
		UserRegs: Regs{Values: s.UserRegs.Values[:0]}, IntrRegs: Regs{Values: s.IntrRegs.Values[:0]}}
	size := headerSize + len(c.data)
	at := func() int { return size - len(c.data) }
	if t&SampleIdentifier != 0 {
		s.ID = c.u64()
	}
	if t&SampleIP != 0 {
		s.IP = c.u64()
	}
	if t&SampleTID != 0 {
		s.PID, s.TID = int32(c.u32()), int32(c.u32())
	}
	if t&SampleTime != 0 {
		s.Time = c.u64()
	}
	if t&SampleAddr != 0 {
		s.Addr = c.u64()
	}
	if t&SampleIDField != 0 {
		s.ID = c.u64()
	}
	if t&SampleStreamID != 0 {
		s.StreamID = c.u64()
	}
	if t&SampleCPU != 0 {
		s.CPU = c.u32()
		c.u32()
	}
	if t&SamplePeriod != 0 {
		s.Period = c.u64()
	}
	if t&SampleRead != 0 {
		s.decodeRead(c, ev.ReadFormat)
	}
	s.marks.chain = at()
	if t&SampleCallchain != 0 {
		s.Callchain = c.words(s.Callchain, c.u64())
	}
	s.marks.afterChain = at()
	if t&SampleRaw != 0 {
		s.Raw = c.bytes(uint64(c.u32()))
	}
	if t&SampleBranchStack != 0 {
		s.decodeBranches(c, ev.BranchSampleType)
	}
	s.marks.regs = at()
	if t&SampleRegsUser != 0 {
		s.UserRegs.decode(c, ev.RegsUser)
	}
	if t&SampleStackUser != 0 {
		s.decodeStack(c)
	}
	s.marks.afterStack = at()
	s.decodeTail(c, ev)
	if c.bad {
		return fmt.Errorf("sample: %w: its fields are longer than the record", ErrTruncated)
	}
	return nil
}

// decodeTail reads what follows the user stack.
func (s *Sample) decodeTail(c *cursor, ev *Event) {
	t := ev.SampleType
	if t&(SampleWeight|SampleWeightStruct) != 0 {
		s.Weight = c.u64()
	}
	if t&SampleDataSrc != 0 {
		s.DataSrc = c.u64()
	}
	if t&SampleTransaction != 0 {
		s.Transaction = c.u64()
	}
	if t&SampleRegsIntr != 0 {
		s.IntrRegs.decode(c, ev.RegsIntr)
	}
	if t&SamplePhysAddr != 0 {
		s.PhysAddr = c.u64()
	}
	if t&SampleCgroup != 0 {
		s.Cgroup = c.u64()
	}
	if t&SampleDataPageSize != 0 {
		s.DataPage = c.u64()
	}
	if t&SampleCodePageSize != 0 {
		s.CodePage = c.u64()
	}
	if t&SampleAux != 0 {
		s.Aux = c.bytes(c.u64())
	}
}

// decodeRead reads struct read_format.
func (s *Sample) decodeRead(c *cursor, format uint64) {
	n := uint64(1)
	if format&formatGroup != 0 {
		n = c.u64()
		s.readGroupSize = n
	} else {
		s.ReadValue = c.u64()
	}
	if format&formatTotalTimeEnabled != 0 {
		s.ReadTimes[0] = c.u64()
	}
	if format&formatTotalTimeRunning != 0 {
		s.ReadTimes[1] = c.u64()
	}
	perCounter := uint64(8 * bits.OnesCount64(format&(formatID|formatLost)))
	if format&formatGroup == 0 {
		if format&formatID != 0 {
			c.u64()
		}
		if format&formatLost != 0 {
			s.ReadLost = c.u64()
		}
		return
	}
	perCounter += 8
	if n > uint64(len(c.data))/perCounter {
		c.bad = true
		return
	}
	values := cursor{data: c.bytes(n * perCounter)}
	if n > 0 {
		s.ReadValue = values.u64()
	}
}

func (s *Sample) decodeBranches(c *cursor, branchType uint64) {
	const entrySize = 24 // struct perf_branch_entry
	n := c.u64()
	if branchType&branchHWIndex != 0 {
		c.u64()
	}
	if n > uint64(len(c.data))/entrySize {
		c.bad = true
		return
	}
	s.Branches = c.bytes(n * entrySize)
	if branchType&branchCounters != 0 {
		c.bytes(n * 8)
	}
}

func (r *Regs) decode(c *cursor, mask uint64) {
	r.ABI = ABI(c.u64())
	if r.ABI != ABINone {
		r.Mask = mask
		r.Values = c.words(r.Values, uint64(bits.OnesCount64(mask)))
	}
}

// decodeStack reads the copy of the user stack: reserved size, bytes, and how
// many of them were filled. If the size is zero nothing follows.
func (s *Sample) decodeStack(c *cursor) {
	s.StackSize = c.u64()
	if s.StackSize == 0 {
		return
	}
	s.Stack = c.bytes(s.StackSize)
	filled := c.u64()
	s.Stack = s.Stack[:min(filled, uint64(len(s.Stack)))]
}
