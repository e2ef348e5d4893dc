package elfout

import (
	"debug/elf"
	"encoding/binary"
	"fmt"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// This file writes the unwind information of the eh_elf's own code, so that a debugger or a profiler that stops in a
// walk finds the way out.

// Pointer encodings (LSB 5.0 Core §10.5.1).
const (
	encPCRelSData4   = 0x1b // DW_EH_PE_pcrel | DW_EH_PE_sdata4
	encUData4        = 0x03 // DW_EH_PE_udata4
	encDataRelSData4 = 0x3b // DW_EH_PE_datarel | DW_EH_PE_sdata4
)

// Call frame instructions (DWARF 5 §7.24).
const (
	cfaNop              = 0x00
	cfaAdvanceLoc1      = 0x02
	cfaAdvanceLoc2      = 0x03
	cfaAdvanceLoc4      = 0x04
	cfaDefCFA           = 0x0c
	cfaDefCFAOffset     = 0x0e
	cfaOffsetExtendedSF = 0x11
	cfaAdvanceLoc       = 0x40 // | delta
	cfaOffset           = 0x80 // | register
	cfaRestore          = 0xc0 // | register
)

// Sizes and places of the fields that are written here.
const (
	dataAlign     = -8 // data alignment factor of the CIE
	ehFrameAlign  = 8
	hdrFixedSize  = 12 // .eh_frame_hdr before its table
	hdrEntrySize  = 8
	fdePCBeginOff = 8 // of the pc-begin field in an FDE with a 4-byte length
)

// ehFrame is the unwind information of .text: one CIE, an FDE per frame.
type ehFrame struct {
	bytes []byte // .eh_frame with pc-begin fields still zero
	fdes  []fde  // in order of start
}

type fde struct {
	off   uint32 // of the FDE in .eh_frame
	start uint32 // of the code, offset in .text
}

// newEhFrame encodes frames, whose order validate has checked. The error wraps ErrBadCode.
func newEhFrame(frames []asmgen.Frame) (*ehFrame, error) {
	cie := []byte{
		0, 0, 0, 0, // CIE id
		1,           // version
		'z', 'R', 0, // augmentation
		1,                      // code alignment factor
		byte(dataAlign & 0x7f), // data alignment factor, SLEB128
		abi.RIP,                // return address register
		1,                      // length of the augmentation data
		encPCRelSData4,         // encoding of pc-begin
		cfaDefCFA, abi.RSP, 8,  // CFA = rsp+8
		cfaOffset | abi.RIP, 1, // return address at CFA-8
	}
	e := &ehFrame{bytes: appendEntry(nil, cie)}
	for _, f := range frames {
		off := uint32(len(e.bytes))
		body := le.AppendUint32(nil, off+4) // distance back to the CIE, which is at 0
		body = le.AppendUint32(body, 0)     // pc-begin, see relocate
		body = le.AppendUint32(body, f.End-f.Start)
		body = append(body, 0) // length of the augmentation data
		body, err := appendRows(body, f)
		if err != nil {
			return nil, fmt.Errorf("frame %#x..%#x: %w", f.Start, f.End, err)
		}
		e.bytes = appendEntry(e.bytes, body)
		e.fdes = append(e.fdes, fde{off, f.Start})
	}
	// Readers that walk the section end at a length of 0; in linked files crtend.o has it.
	e.bytes = append(e.bytes, 0, 0, 0, 0) // terminator
	return e, nil
}

// appendEntry appends a CIE or FDE with its length, filled up with DW_CFA_nop. The length does not count itself (LSB
// 5.0 §10.6.1). Padding to 8 keeps the next entry aligned.
func appendEntry(b, body []byte) []byte {
	size := alignUp(uint64(len(body)+4), ehFrameAlign)
	b = le.AppendUint32(b, uint32(size-4))
	b = append(b, body...)
	for range size - 4 - uint64(len(body)) {
		b = append(b, cfaNop)
	}
	return b
}

// appendRows encodes the rows of a frame as call frame instructions. The first row's state is the CIE's: CFA = rsp+8,
// nothing saved but the return address.
func appendRows(b []byte, f asmgen.Frame) ([]byte, error) {
	off, cfa := f.Start, int32(8)
	saved := map[uint8]int32{}
	for _, row := range f.Rows {
		if row.Off < off || row.Off >= f.End {
			return nil, fmt.Errorf("%w: row at %#x out of order", ErrBadCode, row.Off)
		}
		b = appendAdvance(b, row.Off-off)
		off = row.Off
		if row.CFAOffset != cfa {
			// DW_CFA_def_cfa_offset takes an unsigned number. The register is rsp in all code that asmgen emits.
			if row.CFAOffset < 0 {
				return nil, fmt.Errorf("%w: row at %#x: CFA = rsp%d", ErrBadCode, row.Off, row.CFAOffset)
			}
			b = binary.AppendUvarint(append(b, cfaDefCFAOffset), uint64(row.CFAOffset))
			cfa = row.CFAOffset
		}
		now := map[uint8]int32{}
		for _, s := range row.Saved {
			if s.Reg >= abi.NumRegs || s.Off%dataAlign != 0 {
				return nil, fmt.Errorf("%w: row at %#x: register %d saved at CFA%+d", ErrBadCode, row.Off, s.Reg, s.Off)
			}
			if _, dup := now[s.Reg]; dup {
				return nil, fmt.Errorf("%w: row at %#x: register %d saved twice", ErrBadCode, row.Off, s.Reg)
			}
			now[s.Reg] = s.Off
		}
		// A register without a save now, but with one in the row before, has the caller's value
		// again.
		for reg := range uint8(abi.NumRegs) {
			was, had := saved[reg]
			is, has := now[reg]
			switch {
			case has && (!had || was != is):
				b = appendSave(b, reg, is)
			case had && !has:
				b = append(b, cfaRestore|reg)
			}
		}
		saved = now
	}
	return b, nil
}

// appendAdvance appends the shortest DW_CFA_advance_loc of delta bytes. The code alignment factor is 1, so delta needs
// no division.
func appendAdvance(b []byte, delta uint32) []byte {
	switch {
	case delta == 0:
		return b
	case delta < 0x40:
		return append(b, cfaAdvanceLoc|byte(delta))
	case delta < 1<<8:
		return append(b, cfaAdvanceLoc1, byte(delta))
	case delta < 1<<16:
		return le.AppendUint16(append(b, cfaAdvanceLoc2), uint16(delta))
	}
	return le.AppendUint32(append(b, cfaAdvanceLoc4), delta)
}

// appendSave encodes that reg is saved at CFA+off; off is a multiple of 8. DW_CFA_offset takes an unsigned factor, so a
// save above the CFA needs the other form.
func appendSave(b []byte, reg uint8, off int32) []byte {
	if off <= 0 {
		return binary.AppendUvarint(append(b, cfaOffset|reg), uint64(off/dataAlign))
	}
	return dwarfcfa.AppendSLEB(append(b, cfaOffsetExtendedSF, reg), int64(off/dataAlign))
}

// relocate writes the pc-begin fields, which are relative to themselves. self and text are the addresses of .eh_frame
// and .text. Distances fit 32 bits signed: layout bounds the image.
func (e *ehFrame) relocate(dst []byte, self, text uint64) {
	copy(dst, e.bytes)
	for _, f := range e.fdes {
		field := f.off + fdePCBeginOff
		le.PutUint32(dst[field:], uint32(text+uint64(f.start)-(self+uint64(field))))
	}
}

// headerSize returns the size of .eh_frame_hdr.
func (e *ehFrame) headerSize() uint64 { return hdrFixedSize + hdrEntrySize*uint64(len(e.fdes)) }

// writeHeader writes .eh_frame_hdr (LSB 5.0 Core §10.6.2), a table of FDEs by
// start address, both columns relative to the header.
func (e *ehFrame) writeHeader(dst []byte, self, frame, text uint64) {
	copy(dst, []byte{1, encPCRelSData4, encUData4, encDataRelSData4})
	le.PutUint32(dst[4:], uint32(frame-(self+4)))
	le.PutUint32(dst[8:], uint32(len(e.fdes)))
	for i, f := range e.fdes {
		entry := dst[hdrFixedSize+hdrEntrySize*i:]
		le.PutUint32(entry[0:], uint32(text+uint64(f.start)-self))
		le.PutUint32(entry[4:], uint32(frame+uint64(f.off)-self))
	}
}

// chunks returns the sections .eh_frame_hdr and .eh_frame.
func (e *ehFrame) chunks(text *chunk) (hdr, frame *chunk) {
	frame = &chunk{
		name: ".eh_frame", typ: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC, align: ehFrameAlign,
		size: uint64(len(e.bytes)),
	}
	frame.write = func(dst []byte) { e.relocate(dst, frame.addr, text.addr) }
	hdr = &chunk{
		name: ".eh_frame_hdr", typ: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC, align: 4,
		size: e.headerSize(),
	}
	hdr.write = func(dst []byte) { e.writeHeader(dst, hdr.addr, frame.addr, text.addr) }
	return hdr, frame
}
