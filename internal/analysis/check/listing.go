package check

import (
	"fmt"
	"strings"

	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// Line is an instruction with the state that the code reached and the row before
// it.
type Line struct {
	PC              uint64
	Text            string
	Actual, Claimed string
	Wrong           bool
}

// line adds an instruction and the current row to the listing.
func (c *function) line(pc uint64, in *x86.Inst, s *codeflow.State, wrong bool) {
	if c.list {
		c.lines = append(c.lines, Line{PC: pc, Text: in.Text(pc), Actual: stateText(s), Claimed: c.rowText(&c.row.Row),
			Wrong: wrong})
	}
}

// mostJumps is how many jumps of a path are shown: the last ones.
const mostJumps = 5

// paths adds to the findings how control comes to them, if the listing is wanted.
func (c *function) paths() {
	if !c.list {
		return
	}
	all := c.r.Paths()
	for i := range c.rep.findings {
		f := &c.rep.findings[i]
		jumps := all.To(f.PC)
		if len(jumps) < 2 {
			continue // straight from where control enters
		}
		steps := []string{hex(jumps[0].To)}
		if n := len(jumps) - 1 - mostJumps; n > 0 {
			steps = append(steps, fmt.Sprintf("%d jumps", n))
		}
		for _, j := range jumps[max(1, len(jumps)-mostJumps):] {
			steps = append(steps, c.jumpText(j))
		}
		f.Path = strings.Join(steps, ", ")
	}
}

// jumpText shows a jump; also one in another part of the function.
func (c *function) jumpText(j codeflow.Jump) string {
	in := c.r.Inst(j.From)
	switch {
	case in == nil:
		return hex(j.From) + " to " + hex(j.To)
	case in.Op == x86.OpCALL:
		return hex(j.From) + " call, landing pad " + hex(j.To)
	case in.Args[0].Kind == x86.KRel:
		return hex(j.From) + " " + in.Text(j.From)
	}
	return hex(j.From) + " " + in.Text(j.From) + " to " + hex(j.To)
}
