package perfdata

import (
	"fmt"
	"iter"
	"math/bits"
)

// Markers in a call chain: enum perf_callchain_context. An entry at or above
// ContextMax says what kind of addresses follow it.
const (
	ContextHV           = ^uint64(32 - 1) // hypervisor
	ContextKernel       = ^uint64(128 - 1)
	ContextUser         = ^uint64(512 - 1)
	ContextUserDeferred = ^uint64(640 - 1) // user frames come in a later record, by a cookie
	ContextGuest        = ^uint64(2048 - 1)
	ContextMax          = ^uint64(4095 - 1)
)

// Chain yields the addresses of a call chain with their modes, without the markers between them. mode is the one of
// addresses before the first marker; behind a marker other than those of the kernel and of user code it is ModeUnknown.
// The user's part is the last one: the kernel reads it by frame pointers, so words of user memory that look like
// markers are none.
func Chain(chain []uint64, mode CPUMode) iter.Seq2[CPUMode, uint64] {
	return func(yield func(CPUMode, uint64) bool) {
		last := false
		for _, entry := range chain {
			switch {
			case last || entry < ContextMax:
				if !yield(mode, entry) {
					return
				}
			case entry == ContextKernel:
				mode = ModeKernel
			case entry == ContextUser:
				mode, last = ModeUser, true
			default:
				mode = ModeUnknown
			}
		}
	}
}

// ABI says which registers a sample has: enum perf_sample_regs_abi.
type ABI uint64

// The register ABIs.
const (
	ABINone ABI = iota // no registers, as of kernel threads
	ABI32              // a 32-bit process
	ABI64              // a 64-bit process
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
	Event     *Event   // event that took the sample; never nil after decode
	IP        uint64   // user or kernel address
	Addr      uint64   // data address, for events that have one
	Period    uint64   // events that the sample stands for
	Callchain []uint64 // innermost first, with Context markers among them
	Raw       []byte   // of tracepoints
	Branches  []byte   // struct perf_branch_entry, 24 bytes each
	UserRegs  Regs
	Stack     []byte // copy of the user stack from its stack pointer on
	StackSize uint64 // bytes that the kernel reserved for it
	IntrRegs  Regs   // at the interrupt, kernel or user
	Cgroup    uint64 // id of the control group
	Aux       []byte // part of an AUX area
	MemoryAccess
	CounterRead
	marks chainMarks
}

// MemoryAccess tells of the access to memory that a sample was taken at.
type MemoryAccess struct {
	Weight      uint64 // cost, such as cycles of latency
	DataSrc     uint64 // union perf_mem_data_src
	Transaction uint64 // flags of a transaction's abort
	PhysAddr    uint64 // physical address of Addr
	DataPage    uint64 // sizes of the pages of Addr and IP, in bytes
	CodePage    uint64
}

// CounterRead holds the counters of a sample.
type CounterRead struct {
	ReadValue uint64    // of the first counter
	ReadTimes [2]uint64 // ns enabled, and running
	ReadLost  uint64    // samples lost of this event
}

// decode reads the body of a sample: the order follows perf_output_sample in
// kernel/events/core.c.
func (s *Sample) decode(c *cursor, ev *Event) error {
	if ev == nil {
		return ErrUnknownEvent
	}
	t := ev.SampleType
	// A field that is not known has an unknown size: all behind it would be misread.
	if t&^sampleKnown != 0 {
		return fmt.Errorf("%w: sample_type %#x has fields that are not known", ErrBadRecord, uint64(t))
	}
	// The slices keep their memory for the next sample.
	*s = Sample{Header: s.Header, Event: ev, Callchain: s.Callchain[:0],
		UserRegs: Regs{Values: s.UserRegs.Values[:0]}, IntrRegs: Regs{Values: s.IntrRegs.Values[:0]}}
	// at is the offset in the record of what is read next, for chainMarks.
	size := headerSize + len(c.data)
	pos := func() int { return size - len(c.data) }
	s.decodeHead(c, ev)
	s.marks.chain = pos()
	if t&SampleCallchain != 0 {
		// A count, then as many words.
		s.Callchain = c.words(s.Callchain, c.u64())
	}
	s.marks.afterChain = pos()
	if t&SampleRaw != 0 {
		// A size, then as many bytes.
		s.Raw = c.bytes(uint64(c.u32()))
	}
	if t&SampleBranchStack != 0 {
		s.decodeBranches(c, ev.BranchSampleType)
	}
	s.marks.regs = pos()
	if t&SampleRegsUser != 0 {
		s.UserRegs.decode(c, ev.RegsUser)
	}
	if t&SampleStackUser != 0 {
		s.decodeStack(c)
	}
	s.marks.afterStack = pos()
	s.decodeTail(c, ev)
	if c.bad {
		return fmt.Errorf("sample: %w: its fields are longer than the record", ErrTruncated)
	}
	return nil
}

// decodeHead reads what comes before the call chain.
func (s *Sample) decodeHead(c *cursor, ev *Event) {
	t := ev.SampleType
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
		// Reserved.
		c.u32()
	}
	if t&SamplePeriod != 0 {
		s.Period = c.u64()
	}
	if t&SampleRead != 0 {
		s.decodeRead(c, ev.ReadFormat)
	}
}

// decodeTail reads what follows the user stack.
func (s *Sample) decodeTail(c *cursor, ev *Event) {
	t := ev.SampleType
	// The two bits share the word: a number, or three in one.
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
	// A group has a count and times first, then all values.
	n := uint64(1)
	if format&formatGroup != 0 {
		n = c.u64()
	} else {
		s.ReadValue = c.u64()
	}
	if format&formatTotalTimeEnabled != 0 {
		s.ReadTimes[0] = c.u64()
	}
	if format&formatTotalTimeRunning != 0 {
		s.ReadTimes[1] = c.u64()
	}
	// Words behind each value.
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
	// The value itself.
	perCounter += 8
	if n > uint64(len(c.data))/perCounter {
		c.bad = true
		return
	}
	// Only the first counter is kept.
	values := cursor{data: c.bytes(n * perCounter)}
	if n > 0 {
		s.ReadValue = values.u64()
	}
}

// decodeBranches reads the branch records, which stay encoded.
func (s *Sample) decodeBranches(c *cursor, branchType uint64) {
	const entrySize = 24 // struct perf_branch_entry
	n := c.u64()
	// Index of the hardware's list, not needed.
	if branchType&branchHWIndex != 0 {
		c.u64()
	}
	if n > uint64(len(c.data))/entrySize {
		c.bad = true
		return
	}
	s.Branches = c.bytes(n * entrySize)
	// A word of event counts for each branch.
	if branchType&branchCounters != 0 {
		c.bytes(n * 8)
	}
}

// decode reads registers: an ABI and a value for each bit of the event's mask.
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
	// The rest of the copy is not filled: the stack ended, or could not be read.
	filled := c.u64()
	s.Stack = s.Stack[:min(filled, uint64(len(s.Stack)))]
}
