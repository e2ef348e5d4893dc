package asmgen

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"sort"

	"golang.org/x/arch/x86/x86asm"

	"github.com/ehasm/ehasm/dwarfcfa"
)

// Mark names a place in Text for listings.
type Mark struct {
	Off  uint32
	Name string
}

// Line is an instruction of a listing.
type Line struct {
	Off   uint32   `json:"offset"`
	Bytes string   `json:"bytes"`
	Text  string   `json:"text"`
	Marks []string `json:"marks,omitempty"`
}

// All yields the lines of the parts that pc leads to; nil stands for all code.
func (c *Code) All(pc *dwarfcfa.Addr) iter.Seq[Line] {
	return func(yield func(Line) bool) {
		for _, part := range c.Parts(pc) {
			for _, line := range c.Lines(part.From, part.To) {
				if !yield(line) {
					return
				}
			}
		}
	}
}

// Lines disassembles Text from one offset to another.
func (c *Code) Lines(from, to uint32) []Line {
	// Marks are sorted by offset.
	next := sort.Search(len(c.Marks), func(i int) bool { return c.Marks[i].Off >= from })
	// name gives the disassembler's operands names: of marks exactly at an address.
	name := func(off uint64) (string, uint64) {
		if off == 0 {
			return "", 0 // a constant: no code leads to the begin
		}
		i := sort.Search(len(c.Marks), func(i int) bool { return uint64(c.Marks[i].Off) > off })
		if i == 0 || uint64(c.Marks[i-1].Off) != off {
			return "", 0
		}
		return c.Marks[i-1].Name, off
	}
	var lines []Line
	for off := from; off < to; {
		l := Line{Off: off}
		// Several marks may lie at one offset.
		for next < len(c.Marks) && c.Marks[next].Off <= off {
			l.Marks = append(l.Marks, c.Marks[next].Name)
			next++
		}
		// A byte that does not decode is a line by itself.
		size := 1
		if inst, err := x86asm.Decode(c.Text[off:to], 64); err != nil {
			l.Text = "(bad)"
		} else {
			size = inst.Len
			l.Text = x86asm.IntelSyntax(inst, uint64(off), name)
		}
		l.Bytes = fmt.Sprintf("%x", c.Text[off:off+uint32(size)])
		off += uint32(size)
		lines = append(lines, l)
	}
	return lines
}

// Part is a part of Text that a pc leads to.
type Part struct{ From, To uint32 }

// Parts returns the page and the row block that a pc leads to, or all of Text if
// pc is nil.
func (c *Code) Parts(pc *dwarfcfa.Addr) []Part {
	if pc == nil {
		return []Part{{0, uint32(len(c.Text))}}
	}
	// A part goes on to the next mark.
	var parts []Part
	add := func(off uint32) {
		i := sort.Search(len(c.Marks), func(i int) bool { return c.Marks[i].Off > off })
		to := uint32(len(c.Text))
		if i < len(c.Marks) {
			to = c.Marks[i].Off
		}
		parts = append(parts, Part{off, to})
	}
	page, block := c.locate(*pc)
	if page != block {
		add(page)
	}
	add(block)
	return parts
}

// Listing writes the disassembly of Text, or of the parts for one pc.
func (c *Code) Listing(w io.Writer, pc *dwarfcfa.Addr) error {
	out := bufio.NewWriter(w)
	for _, p := range c.Parts(pc) {
		for _, l := range c.Lines(p.From, p.To) {
			for _, m := range l.Marks {
				fmt.Fprintf(out, "%s:\n", m)
			}
			fmt.Fprintf(out, "%8x:  %-20s  %s\n", l.Off, l.Bytes, l.Text)
		}
	}
	return out.Flush()
}
