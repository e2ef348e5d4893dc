package inspect

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"sort"
	"strings"

	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file disassembles generated code with names for its parts: asmgen's marks, since the file's symbols are its
// exports alone.

// codeLine is an instruction of a listing.
type codeLine struct {
	Off   uint32   `json:"offset"`
	Bytes string   `json:"bytes"`
	Text  string   `json:"text"`
	Marks []string `json:"marks,omitempty"`
}

// listing yields the instructions of the parts that pc leads to; nil stands for all code.
func listing(c *asmgen.Code, pc *dwarfcfa.Addr) iter.Seq[codeLine] {
	return func(yield func(codeLine) bool) {
		for _, part := range c.Parts(pc) {
			for off := part.From; off < part.To; {
				line := disassemble(c, off, part.To)
				if !yield(line) {
					return
				}
				off += uint32(len(line.Bytes) / 2)
			}
		}
	}
}

// disassemble returns the instruction at an offset of the code; a byte that does not decode is a line by itself.
func disassemble(c *asmgen.Code, off, end uint32) codeLine {
	line := codeLine{Off: off, Text: "(bad)", Marks: marks(c, off)}
	size := uint32(1)
	var inst x86.Inst
	if err := x86.Decode(c.Text[off:end], &inst); err == nil {
		size, line.Text = uint32(inst.Len), inst.Text(uint64(off))
		if inst.Args[0].Kind == x86.KRel {
			target := inst.Target(uint64(off))
			if names := marks(c, uint32(target)); len(names) > 0 {
				line.Text = strings.Replace(line.Text, fmt.Sprintf("%#x", target), names[len(names)-1], 1)
			}
		}
	}
	line.Bytes = fmt.Sprintf("%x", c.Text[off:off+size])
	return line
}

// marks returns the names of an offset. More than one part of the code may begin there, such as a head that is a tail,
// too.
func marks(c *asmgen.Code, off uint32) (names []string) {
	i := sort.Search(len(c.Marks), func(i int) bool { return c.Marks[i].Off >= off })
	for ; i < len(c.Marks) && c.Marks[i].Off == off; i++ {
		names = append(names, c.Marks[i].Name)
	}
	return names
}

// writeListing writes the listing as text.
func writeListing(w io.Writer, c *asmgen.Code, pc *dwarfcfa.Addr) error {
	out := bufio.NewWriter(w)
	for line := range listing(c, pc) {
		for _, m := range line.Marks {
			fmt.Fprintf(out, "%s:\n", m)
		}
		fmt.Fprintf(out, "%8x:  %-20s  %s\n", line.Off, line.Bytes, line.Text)
	}
	return out.Flush()
}
