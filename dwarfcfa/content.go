package dwarfcfa

import (
	"debug/elf"
	"fmt"

	"github.com/ehasm/ehasm/abi"
)

// FromCode is the source of a table for which the code was looked at.
const FromCode = "code"

// Content returns what identifies the object if it has no build-id. source is
// Report.Source, or FromCode. Rows from .eh_frame alone are identified by that section, which
// determines them. .debug_frame is not in memory, where an unwinder would look; objects
// whose rows come from it or from code are identified by their largest executable segment. Content
// returns the zero Content if the object has neither in read-only memory.
func (o *Object) Content(source string) (abi.Content, error) {
	var c abi.Content
	if source == ".eh_frame" {
		s, err := o.Section(SourceEHFrame)
		if err != nil {
			return c, err
		}
		c = abi.Content{Low: uint64(s.Addr), Size: uint64(s.Size())}
		// A writable or missing .eh_frame cannot identify the object: take the largest segment of
		// code.
	}
	if c.Size == 0 || !o.readOnly(c) {
		c = abi.Content{}
		for _, p := range o.file.Progs {
			code := abi.Content{Low: p.Vaddr, Size: p.Filesz}
			if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && code.Size > c.Size && o.readOnly(code) {
				c = code
			}
		}
	}
	if c.Size == 0 {
		return c, nil
	}
	c, err := c.Of(o.r)
	if err != nil {
		return c, nameError(o.name, fmt.Errorf("content: %w", err))
	}
	return c, nil
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
