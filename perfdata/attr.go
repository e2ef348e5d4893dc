package perfdata

import (
	"math/bits"
)

// SampleType is perf_event_attr.sample_type: enum perf_event_sample_format of
// include/uapi/linux/perf_event.h.
type SampleType uint64

// The fields that a sample may have.
const (
	SampleIP SampleType = 1 << iota
	SampleTID
	SampleTime
	SampleAddr
	SampleRead
	SampleCallchain
	SampleIDField
	SampleCPU
	SamplePeriod
	SampleStreamID
	SampleRaw
	SampleBranchStack
	SampleRegsUser
	SampleStackUser
	SampleWeight
	SampleDataSrc
	SampleIdentifier
	SampleTransaction
	SampleRegsIntr
	SamplePhysAddr
	SampleAux
	SampleCgroup
	SampleDataPageSize
	SampleCodePageSize
	SampleWeightStruct

	sampleKnown = SampleWeightStruct<<1 - 1
)

// Bits of perf_event_attr.read_format.
const (
	formatTotalTimeEnabled = 1 << iota
	formatTotalTimeRunning
	formatID
	formatGroup
	formatLost
)

// Bits of perf_event_attr.branch_sample_type that change the layout.
const (
	branchHWIndex  = 1 << 17
	branchCounters = 1 << 19
)

// Bits of perf_event_attr.
const (
	attrFlagSampleIDAll = 1 << 18 // sample_id_all
	attrFlagBuildID     = 1 << 34 // build_id
)

const (
	attrSizeVer0 = 64 // PERF_ATTR_SIZE_VER0
	maxAttrSize  = 4096
)

// Attr holds the fields of struct perf_event_attr that reading needs.
type Attr struct {
	Type             uint32
	Size             uint32
	Config           uint64
	PeriodOrFreq     uint64
	SampleType       SampleType
	ReadFormat       uint64
	Flags            uint64 // the bit field, from "disabled" at bit 0 on
	BranchSampleType uint64
	RegsUser         uint64 // mask of enum perf_event_x86_regs
	StackUser        uint32 // bytes of stack asked for with each sample
	RegsIntr         uint64
}

// Event is one of the events that were recorded.
type Event struct {
	Attr
	Name string // "" if the file has none
	IDs  []uint64
	raw  []byte // struct perf_event_attr; nil if not of a file's header

	timeAt   int // of the time in a sample, from its body's start; -1: none
	idAt     int // of the id in a sample; -1: none
	timeBack int // of the time in struct sample_id, from the record's end; 0: none
	idBack   int // of the id in struct sample_id; 0: none
	idSize   int // bytes of struct sample_id
}

// parseAttr reads an attribute; fields beyond a smaller size are zero.
func parseAttr(b []byte) Attr {
	var full [112]byte // up to aux_watermark
	copy(full[:], b)
	c := cursor{data: full[:]}
	var a Attr
	a.Type, a.Size, a.Config, a.PeriodOrFreq = c.u32(), c.u32(), c.u64(), c.u64()
	a.SampleType, a.ReadFormat, a.Flags = SampleType(c.u64()), c.u64(), c.u64()
	c.bytes(24) // wakeup, bp_type, config1, config2
	a.BranchSampleType, a.RegsUser, a.StackUser = c.u64(), c.u64(), c.u32()
	c.u32() // clockid
	a.RegsIntr = c.u64()
	return a
}

// hasSampleID reports whether records other than samples end in struct sample_id.
func (a *Attr) hasSampleID() bool { return a.Flags&attrFlagSampleIDAll != 0 }

// hasBuildIDs reports whether mappings may have build-ids in place of inodes.
func (a *Attr) hasBuildIDs() bool { return a.Flags&attrFlagBuildID != 0 }

// layout computes the offsets of time and id, so that they can be read without
// decoding a record.
func (e *Event) layout() {
	t := e.SampleType
	e.timeAt, e.idAt, e.timeBack, e.idBack, e.idSize = -1, -1, 0, 0, 0
	off := 8 * bits.OnesCount64(uint64(t&(SampleIdentifier|SampleIP|SampleTID)))
	if t&SampleTime != 0 {
		e.timeAt = off
		off += 8
	}
	off += 8 * bits.OnesCount64(uint64(t&SampleAddr))
	switch {
	case t&SampleIdentifier != 0:
		e.idAt = 0
	case t&SampleIDField != 0:
		e.idAt = off
	}
	if !e.hasSampleID() {
		return
	}
	// struct sample_id, from its end backwards.
	back := 0
	for _, f := range []SampleType{SampleIdentifier, SampleCPU, SampleStreamID, SampleIDField, SampleTime, SampleTID} {
		if t&f == 0 {
			continue
		}
		back += 8
		switch {
		case f == SampleTime:
			e.timeBack = back
		case f == SampleIdentifier, f == SampleIDField && e.idBack == 0:
			e.idBack = back
		}
	}
	e.idSize = back
}
