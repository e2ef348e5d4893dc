package bpfunwind

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/ehasm/ehasm/abi"
)

// This file encodes steps as records of 16 bytes. The program acts on a record without knowing rows: sources are
// offsets in its own state, so restoring a register is a load and a store, whatever the rule was.

// recordSize is the size of a record in bytes.
const recordSize = 16

// record tells the program what to do in a frame. For most kinds:
//
//	0      kind
//	1      slot of the base, a register
//	2      bytes of the block of words that is read
//	3      source of the return address
//	4-7    offset, signed: base + offset is the CFA, or where it lies
//	8-13   sources of rbx, rbp, r12, r13, r14, r15
//	14     source of rsp
//	15     extra, see the kinds
//
// A source is the slot of a register, of the CFA or of a lost value, or the place of a word of the
// block among the words. All sources are read before a register is written.
type record [recordSize]byte

// Kinds of records.
const (
	kindNoRow    = iota // no information: all bytes are zero
	kindPlain           // CFA = base+offset; the block ends at the CFA and is not empty
	kindEnd             // the outermost frame: all other bytes are zero
	kindNoRecord        // the row has no record: all other bytes are zero
	kindShifted         // as plain; the block, which may be empty, ends 8*extra (signed) above the CFA
	kindVolatile        // as shifted; registers that a call may change are used, too
	kindDeref           // as plain with CFA = *(base+offset) + extra
	kindDRAP            // CFA = *(base+offset); the block begins at base + 8*extra (signed), see placeRA
	kindPLT             // as plain with 8 added to the CFA if pc&15 >= extra
	kindSignal          // the frame of a signal handler's return: all other bytes are zero
	numKinds

	// flagStale is set beside a kind: registers that a call may change have other values in the caller.
	flagStale = 0x80
	// flagSaved is set beside the size of a DRAP frame's block: another word lies below the return address, see
	// placeSaved. So GCC saves the register that has the CFA, if calls do not change it.
	flagSaved = 0x80
)

// Bytes of a record.
const (
	byteKind  = 0
	byteBase  = 1
	byteSize  = 2
	byteRA    = 3
	byteOff   = 4
	byteSaved = 8
	byteRSP   = 14
	byteExtra = 15
)

// Slots are the first bytes of the program's state: words that were read, and registers.
const (
	wordsEnd   = 104          // a block's words end here, except in a DRAP frame, where they begin at 0
	maxFast    = 64           // bytes of a block that lies in the window
	placeRA    = wordsEnd - 8 // the return address of a DRAP frame, which lies below the CFA, not in the block
	placeSaved = placeRA - 8  // the word below it
	slotCFA    = 104
	slotLost   = 112 // a value that stands for a lost register
	slotRSP    = 168
	slotRIP    = 176
	slotsEnd   = 256
)

// saved lists the callee-saved registers in the order of records.
var saved = [...]int{abi.RBX, abi.RBP, abi.R12, abi.R13, abi.R14, abi.R15}

// slots has the slots of registers by DWARF number.
var slots = [abi.NumRegs]byte{abi.RBX: 120, abi.RBP: 128, abi.R12: 136, abi.R13: 144, abi.R14: 152, abi.R15: 160,
	abi.RSP: slotRSP, abi.RIP: slotRIP, abi.RAX: 184, abi.RDX: 192, abi.RCX: 200, abi.RSI: 208, abi.RDI: 216,
	abi.R8: 224, abi.R9: 232, abi.R10: 240, abi.R11: 248}

// slotRegister returns the register of a slot.
func slotRegister(slot byte) (reg int, ok bool) {
	for reg, s := range slots {
		if s == slot {
			return reg, true
		}
	}
	return 0, false
}

// isVolatile reports whether a call may change the register.
func isVolatile(reg int) bool {
	return (abi.CalleeSaved|1<<abi.RSP|1<<abi.RIP)&(1<<reg) == 0
}

// encode returns the record of a step, or one of kindNoRecord.
func encode(s step) record {
	for _, kind := range kindsOf(&s) {
		r := record{kind}
		if s.kind == stepFrame {
			r = s.record(kind)
		}
		// What does not fit into the record's bytes decodes to another step.
		if got, err := r.decode(); err == nil && got == s {
			return r
		}
	}
	return record{kindNoRecord}
}

// kindsOf returns the kinds that may tell a step, the cheapest first.
func kindsOf(s *step) []byte {
	switch {
	case s.kind == stepNoRow:
		return []byte{kindNoRow}
	case s.kind == stepEnd:
		return []byte{kindEnd}
	case s.kind == stepSignal:
		return []byte{kindSignal}
	case s.kind != stepFrame:
		return nil
	case s.cfa.form == cfaDeref:
		return []byte{kindDeref, kindDRAP}
	case s.cfa.form == cfaPLT:
		return []byte{kindPLT}
	}
	return []byte{kindPlain, kindShifted, kindVolatile}
}

// record returns a record of a kind for a step. Numbers are cut to the record's bytes; encode notices what did not fit.
func (s *step) record(kind byte) record {
	r := record{byteKind: kind, byteBase: slots[s.cfa.reg], byteExtra: byte(s.cfa.add)}
	if s.stale {
		r[byteKind] |= flagStale
	}
	binary.LittleEndian.PutUint32(r[byteOff:], uint32(s.cfa.off))
	word := placeWordAtCFA
	if kind == kindDRAP {
		word = placeWordAtRegister
	}
	low, high := s.words(word)
	var shift int64 // of the block's end from the CFA, or its begin from the base
	switch kind {
	case kindShifted, kindVolatile:
		shift = -floor8(-high)
		r[byteExtra] = byte(shift / 8)
	case kindDRAP:
		shift = floor8(low)
		r[byteExtra] = byte(shift / 8)
	}
	r[byteSize] = byte(shift - low)
	if kind == kindDRAP {
		r[byteSize] = byte(high - shift)
		if slices.Contains(s.places[:], wordBelowRA) {
			r[byteSize] |= flagSaved
		}
	}
	for i, p := range s.places {
		r[sourceByte(i)] = source(p, kind, shift)
	}
	return r
}

// words returns the bounds of the words of a kind of place; 0 if there is none.
func (s *step) words(kind placeKind) (low, high int64) {
	low, high = math.MaxInt64, math.MinInt64
	for _, p := range s.places {
		if p.kind == kind {
			low, high = min(low, p.off), max(high, p.off+8)
		}
	}
	if low > high {
		return 0, 0
	}
	return low, high
}

// hasCaller reports whether the caller's pc and rsp are known. The program does not look whether rsp is lost, as it
// would be if it came from a lost register.
func hasCaller(r record) bool {
	_, inRegister := slotRegister(r[byteRSP])
	return r[byteRA] != slotLost && r[byteRSP] != slotLost && (!inRegister || r[byteRSP] == slotRSP)
}

// wordBelowCFA is where calls put the return address.
var wordBelowCFA = place{kind: placeWordAtCFA, off: -8}

// wordBelowRA is the next word.
var wordBelowRA = place{kind: placeWordAtCFA, off: -16}

// source returns where the program finds a register of the caller.
func source(p place, kind byte, shift int64) byte {
	switch p.kind {
	case placeLost:
		return slotLost
	case placeRegister:
		return slots[p.reg]
	case placeCFA:
		return slotCFA
	}
	switch {
	case kind != kindDRAP:
		return byte(wordsEnd + p.off - shift)
	case p.kind == placeWordAtRegister:
		return byte(p.off - shift)
	case p == wordBelowRA:
		return placeSaved
	}
	return placeRA
}

// floor8 returns the largest multiple of 8 that is at most n.
func floor8(n int64) int64 { return n &^ 7 }

// sourceByte returns which byte of a record has the source of a column.
func sourceByte(column int) int {
	switch column {
	case columnRSP:
		return byteRSP
	case columnRIP:
		return byteRA
	}
	return byteSaved + column
}

// decode returns the step that the program takes for a record. The error says why it takes none that a row could mean.
func (r record) decode() (step, error) {
	stale := r[byteKind]&flagStale != 0
	r[byteKind] &^= flagStale
	kind := r[byteKind]
	switch kind {
	case kindNoRow, kindEnd, kindNoRecord, kindSignal:
		if r != (record{kind}) || stale {
			return step{}, fmt.Errorf("record %x: bytes behind kind %d", r, kind)
		}
		return step{kind: [numKinds]stepKind{kindEnd: stepEnd, kindNoRecord: stepOther, kindSignal: stepSignal}[kind]}, nil
	case kindPlain, kindShifted, kindVolatile, kindDeref, kindDRAP, kindPLT:
	default:
		return step{}, fmt.Errorf("record %x: kind %d", r, kind)
	}
	base, ok := slotRegister(r[byteBase])
	if !ok || base == abi.RIP || isVolatile(base) && kind != kindVolatile {
		return step{}, fmt.Errorf("record %x: base %d", r, r[byteBase])
	}
	s := step{kind: stepFrame, stale: stale,
		cfa: cfa{reg: uint16(base), off: int64(int32(binary.LittleEndian.Uint32(r[byteOff:])))}}
	var shift int64
	size := r[byteSize]
	tooLong := size > wordsEnd
	switch kind {
	case kindPlain:
		tooLong = tooLong || size == 0 || r[byteExtra] != 0
	case kindShifted, kindVolatile:
		shift = 8 * int64(int8(r[byteExtra]))
	case kindDeref:
		s.cfa.form, s.cfa.add = cfaDeref, int64(r[byteExtra])
	case kindPLT:
		s.cfa.form, s.cfa.add = cfaPLT, int64(r[byteExtra])
	case kindDRAP:
		s.cfa.form = cfaDeref
		shift = 8 * int64(int8(r[byteExtra]))
		tooLong = size&^flagSaved > placeSaved
	}
	if tooLong {
		return step{}, fmt.Errorf("record %x: block of %d bytes", r, size)
	}
	for i := range s.places {
		p, ok := r.place(r[sourceByte(i)], uint16(base), shift)
		if !ok {
			return step{}, fmt.Errorf("record %x: source %d", r, r[sourceByte(i)])
		}
		s.places[i] = p
	}
	if !hasCaller(r) {
		return step{}, fmt.Errorf("record %x: no caller", r)
	}
	if kind == kindDRAP && s.places[columnRIP] != wordBelowCFA {
		return step{}, fmt.Errorf("record %x: return address elsewhere than below the CFA", r)
	}
	if kind == kindDRAP && size >= flagSaved && !slices.Contains(s.places[:], wordBelowRA) {
		return step{}, fmt.Errorf("record %x: a word that no register has", r)
	}
	return s, nil
}

// place returns where a source lies in the frame.
func (r record) place(source byte, base uint16, shift int64) (place, bool) {
	offset, size := int64(source), int64(r[byteSize])
	if reg, ok := slotRegister(source); ok {
		return place{kind: placeRegister, reg: uint16(reg)}, !isVolatile(reg) || r[byteKind] == kindVolatile
	}
	drap := r[byteKind] == kindDRAP
	switch {
	case source == slotLost:
		return place{kind: placeLost}, true
	case source == slotCFA:
		return place{kind: placeCFA}, true
	case drap && source == placeRA:
		return wordBelowCFA, true
	case drap && source == placeSaved && size >= flagSaved:
		return wordBelowRA, true
	case drap && offset+8 <= size&^flagSaved:
		return place{kind: placeWordAtRegister, reg: base, off: shift + offset}, true
	case !drap && offset+8 <= wordsEnd && offset >= wordsEnd-size:
		return place{kind: placeWordAtCFA, off: shift + offset - wordsEnd}, true
	}
	return place{}, false
}
