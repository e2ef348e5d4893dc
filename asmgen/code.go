package asmgen

import (
	"sort"

	"github.com/ehasm/ehasm/dwarfcfa"
)

// Code is the machine code and the read-only data of one eh_elf, before it has
// addresses. Text is position-independent but for Fixups, and Data but for TextWords, which depend on
// the distance between Text and Data.
type Code struct {
	Text    []byte // to be mapped R+X, 64-byte aligned
	Data    []byte // to be mapped R, 64-byte aligned
	Symbols []Symbol
	Fixups  []Fixup
	// TextWords is the number of 4-byte words at the start of Data that are offsets in
	// Text and become distances from the start of Data: New adds
	// address(Text)-address(Data) to each.
	TextWords int
	Frames    []Frame // unwind information of Text itself, in order of Start, covering all of it

	Low, High dwarfcfa.Addr // pcs covered: [Low, High)
	Ranges    int           // row ranges compiled
	Rows      int           // distinct rows compiled
	NoDeref   bool          // _eh_elf has no deref argument
	Packed    bool          // packed dispatch

	Marks  []Mark                                          // for listings, in order of Off
	locate func(dwarfcfa.Addr) (page uint32, block uint32) // where the code of a pc is
}

// Mark names a place in Text for listings.
type Mark struct {
	Off  uint32
	Name string
}

// Part is a part of Text that a pc leads to.
type Part struct{ From, To uint32 }

// Parts returns the page and the row block that a pc leads to, or all of Text if pc is nil. A part ends at the next
// mark.
func (c *Code) Parts(pc *dwarfcfa.Addr) []Part {
	if pc == nil {
		return []Part{{0, uint32(len(c.Text))}}
	}
	part := func(off uint32) Part {
		i := sort.Search(len(c.Marks), func(i int) bool { return c.Marks[i].Off > off })
		if i == len(c.Marks) {
			return Part{off, uint32(len(c.Text))}
		}
		return Part{off, c.Marks[i].Off}
	}
	page, block := c.locate(*pc)
	if page == block {
		return []Part{part(block)}
	}
	return []Part{part(page), part(block)}
}

// Symbol is a function in Text.
type Symbol struct {
	Name     string
	Start    uint32 // offset in Text
	End      uint32
	Exported bool // in .dynsym; others only in .symtab
}

// Fixup asks for the 4 bytes at Text[TextOff:] to be set to
// address(Data)+DataOff-(address(Text)+TextOff+4), a rip-relative displacement.
type Fixup struct {
	TextOff uint32
	DataOff uint32
}

// Frame is the unwind information of a part of Text (one FDE). The CFA is
// always based on rsp; on entry it is rsp+8 and no register is saved.
type Frame struct {
	Start, End uint32 // offsets in Text
	Rows       []FrameRow
}

// FrameRow applies from Off on, up to the next row or the end of the frame.
type FrameRow struct {
	Off       uint32 // offset in Text
	CFAOffset int32  // CFA = rsp + CFAOffset
	Saved     []FrameSave
}

// FrameSave says where a register of the caller is saved.
type FrameSave struct {
	Reg uint8 // DWARF number
	Off int32 // saved at CFA + Off
}
