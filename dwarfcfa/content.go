package dwarfcfa

import (
	"debug/elf"
	"fmt"
	"iter"

	"github.com/ehasm/ehasm/abi"
)

// FromCode is the source of a table for which the code was looked at.
const FromCode = "code"

// Content returns what identifies the object if it has no build-id. source is
// Report.Source, or FromCode. areas are the addresses of the LSDAs that the eh_elf is made from. Rows from .eh_frame alone
// are identified by that section and by those that hold the areas. .debug_frame is not in memory, where an unwinder would
// look; objects whose rows come from it or from code are identified by their largest executable segment. Content
// returns the zero Content if the object has neither in read-only memory. all reports whether the content determines what
// the areas say, too.
func (o *Object) Content(source string, areas iter.Seq[Addr]) (c abi.Content, all bool, err error) {
	if source == ".eh_frame" {
		s, err := o.Section(SourceEHFrame)
		if err != nil {
			return c, false, err
		}
		c = abi.Content{Low: uint64(s.Addr), Size: uint64(s.Size())}
		if with := o.withAreas(c, areas); o.readOnly(with) {
			c = with
		}
	}
	fromEHFrame := c.Size > 0 && o.readOnly(c)
	if !fromEHFrame { // a writable or missing .eh_frame cannot identify the object
		c = o.largestCode()
	}
	if c.Size == 0 {
		return c, false, nil
	}
	all = fromEHFrame
	for addr := range areas {
		all = all && uint64(addr)-c.Low < c.Size
	}
	if c, err = c.Of(o.r); err != nil {
		return c, false, nameError(o.name, fmt.Errorf("content: %w", err))
	}
	return c, all, nil
}

// withAreas returns the smallest range that holds c and the sections of the LSDAs at areas.
func (o *Object) withAreas(c abi.Content, areas iter.Seq[Addr]) abi.Content {
	low, high := c.Low, c.Low+c.Size
	for addr := range areas {
		if uint64(addr) >= low && uint64(addr) < high {
			continue
		}
		if s := o.holding(addr); s != nil {
			low, high = min(low, s.Addr), max(high, s.Addr+s.FileSize)
		}
	}
	return abi.Content{Low: low, Size: high - low}
}

// largestCode returns the range of the largest executable segment, or a zero Content if none is read-only.
func (o *Object) largestCode() (c abi.Content) {
	for _, p := range o.file.Progs {
		code := abi.Content{Low: p.Vaddr, Size: p.Filesz}
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && code.Size > c.Size && o.readOnly(code) {
			c = code
		}
	}
	return c
}

// readOnly reports whether one PT_LOAD that is not writable maps the range from the file.
func (o *Object) readOnly(c abi.Content) bool {
	for _, p := range o.file.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&(elf.PF_R|elf.PF_W) == elf.PF_R && c.Low >= p.Vaddr &&
			c.Low-p.Vaddr <= p.Filesz && c.Size <= p.Filesz-(c.Low-p.Vaddr) {
			return true
		}
	}
	return false
}
