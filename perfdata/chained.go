package perfdata

import (
	"encoding/binary"
)

// Places in struct perf_event_attr, in bytes.
const (
	attrSampleTypeAt = 24
	attrFlagsAt      = 40
	attrRegsUserAt   = 80
	attrStackUserAt  = 88

	attrFlagNoUserChain = 1 << 22 // exclude_callchain_user
)

// chained returns the fields of a sample that has a call chain in place of registers and
// a copy of the stack.
func (t SampleType) chained() SampleType {
	const copies = SampleRegsUser | SampleStackUser
	// A call chain takes the place of both copies, and only of both.
	if t&copies == copies {
		t |= SampleCallchain
	}
	return t &^ copies
}

// ChainAttr changes the struct perf_event_attr at the front of b for samples of AppendChained, and returns b. What
// is too short to be one stays as it is.
func ChainAttr(b []byte) []byte {
	le := binary.LittleEndian
	if len(b) < attrSizeVer0 {
		return b
	}
	old := SampleType(le.Uint64(b[attrSampleTypeAt:]))
	// Samples without copies stay as they are.
	t := old.chained()
	if t == old {
		return b
	}
	le.PutUint64(b[attrSampleTypeAt:], uint64(t))
	// The user part of chains, switched off because of the copies, is there now.
	if old&SampleStackUser != 0 {
		le.PutUint64(b[attrFlagsAt:], le.Uint64(b[attrFlagsAt:])&^attrFlagNoUserChain)
	}
	// sample_regs_user and sample_stack_user are 0 without copies.
	if len(b) >= attrRegsUserAt+8 {
		le.PutUint64(b[attrRegsUserAt:], 0)
	}
	if len(b) >= attrStackUserAt+4 {
		le.PutUint32(b[attrStackUserAt:], 0)
	}
	return b
}

// chainEventDesc changes the attributes in a feature EVENT_DESC, up to where it is damaged.
func chainEventDesc(b []byte) {
	c := cursor{data: b}
	n, size := c.u32(), c.u32()
	for range min(n, maxStrings) {
		attr := c.bytes(uint64(size))
		if c.bad {
			return
		}
		ChainAttr(attr)
		// Number of ids, name, ids: see takeEventDesc.
		ids := uint64(c.u32())
		c.bytes(uint64(c.u32())) // the name
		c.bytes(8 * ids)
	}
}

// keepsFeature reports whether a recording with call chains has a feature of the original.
func keepsFeature(bit uint64) bool {
	// These describe the original file, not the copy.
	return bit != featureAuxtraceIndex && bit != featureDirFormat && bit != featureCompressed
}

// appendOther appends a record that is not decoded, with the attributes in it changed.
func appendOther(dst []byte, rec *Other, raw []byte) []byte {
	start := len(dst)
	switch rec.Type {
	case typeAttr:
		// The attribute is changed in the copy: raw is the reader's.
		dst = append(dst, raw...)
		ChainAttr(dst[start+headerSize:])
	case typeFeature:
		c := cursor{data: rec.Data}
		bit := c.u64()
		if !keepsFeature(bit) {
			return dst
		}
		dst = append(dst, raw...)
		if bit == featureEventDesc && !c.bad {
			chainEventDesc(dst[start+headerSize+8:])
		}
	default:
		dst = append(dst, raw...)
	}
	return dst
}

// chainMarks are places in the record of a sample, in bytes.
type chainMarks struct {
	// Offsets from the record's beginning.
	chain, afterChain int // the number of entries; what follows the entries
	regs, afterStack  int // users' registers; what follows the copy of the stack
}

// AppendChained appends the record raw of the sample, the last that its Decoder has decoded, with a call chain in place
// of users' registers and the copy of their stack. user are the addresses that Entry.Append takes.
func (s *Sample) AppendChained(dst, raw []byte, user []uint64) []byte {
	var e Entry
	e.bytes, e.nrAt, e.after = s.appendChained(nil, raw)
	return e.Append(dst, user)
}

// appendChained appends the sample's record without users' registers and the copy of their
// stack. nrAt and after are those of Entry.
func (s *Sample) appendChained(dst, raw []byte) (b []byte, nrAt, after int) {
	le := binary.LittleEndian
	t := s.Event.SampleType
	to := t.chained()
	// No copies: the record as it is.
	if to == t {
		return append(dst, raw...), 0, 0
	}
	start := len(dst)
	m := &s.marks
	dst = append(dst, raw[:m.chain]...)
	if to&SampleCallchain != 0 {
		nrAt = len(dst) - start
		// The number of entries is written below.
		dst = le.AppendUint64(dst, 0)
		// The caller unwinds the user part itself, if there is something to unwind.
		lacking := t&SampleStackUser != 0 && len(s.Stack) > 0 && s.UserRegs.ABI != ABINone
		// Kernel entries stay; entries of user code, which come last, would stand there twice.
		for _, ip := range s.Callchain {
			if lacking && ip == ContextUser {
				break
			}
			dst = le.AppendUint64(dst, ip)
		}
		le.PutUint64(dst[start+nrAt:], uint64(len(dst)-start-nrAt-8)/8)
		after = len(dst) - start
		if !lacking {
			nrAt, after = 0, 0
		}
	}
	dst = append(dst, raw[m.afterChain:m.regs]...)
	// Registers and stack are left out.
	dst = append(dst, raw[m.afterStack:]...)
	// The record's size is the last field of its header.
	le.PutUint16(dst[start+6:], uint16(len(dst)-start))
	return dst, nrAt, after
}
