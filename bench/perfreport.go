package main

import (
	"fmt"
	"strings"
)

// text writes the part of the report about recordings.
func (r *perfResults) text(b *strings.Builder) {
	// The text before the table says what its columns are.
	fmt.Fprintf(b, "\n## Recordings\n\nUnwinding alone, one thread, ns per frame; %d rounds. "+
		"*Batch*: in batches of 1 MB, copied from the file just before, as `ehasm script` has them; copying is not timed. "+
		"*File*: where the stacks lie in the file, as perf has them. *First*: the first pass over the file, with empty caches, "+
		"less compiling, whose seconds follow. *Same*: samples with the frames of the first line; more, fewer, other frames.\n", r.Rounds)
	for _, u := range r.Unwind {
		fmt.Fprintf(b, "\n### %s\n\n%s: %d samples, %d MB of stack, %.1f frames per sample.\n\n"+
			"| | batch | over ehasm | file | over ehasm | first | same |\n| --- | --- | --- | --- | --- | --- | --- |\n",
			u.Name, u.What, u.Samples, u.StackBytes>>20, float64(u.Frames)/float64(max(u.Samples, 1)))
		// In the order of the table.
		for _, n := range unwinderNames {
			c := u.Unwinders[n]
			first := short(c.Cold)
			if c.Compile > 0 {
				first += fmt.Sprintf(" + %.2f s", c.Compile)
			}
			same := fmt.Sprintf("%d", c.Agreement.Same)
			if a := c.Agreement; a.Longer+a.Shorter+a.Other > 0 {
				// Agreement with the first unwinder of the list.
				same += fmt.Sprintf("; %d, %d, %d", a.Longer, a.Shorter, a.Other)
			}
			fmt.Fprintf(b, "| %s | %v | %v | %v | %v | %s | %s |\n", n, newSpread(c.PerFrame[inBatch]),
				u.over(n, unwinderNames[0], inBatch),
				newSpread(c.PerFrame[inFile]), u.over(n, unwinderNames[0], inFile), first, same)
		}
	}
	b.WriteString("\n### The whole command\n\nSeconds of wall time, and in brackets of processor time, for the default fields; output to a file.\n\n" +
		"| | MB |")
	for _, n := range scriptCommands {
		fmt.Fprintf(b, " %s |", n)
	}
	b.WriteString(" perf over ehasm | over cached |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, c := range r.Command {
		fmt.Fprintf(b, "| %s | %.0f |", c.Name, float64(c.Bytes)/1e6)
		for _, n := range scriptCommands {
			fmt.Fprintf(b, " %v [%s] |", newSpread(c.Wall[n]), short(newSpread(c.CPU[n]).Median))
		}
		fmt.Fprintf(b, " %v | %v |\n", c.over(scriptCommands[0]), c.over(scriptCommands[1]))
	}
}

// over returns the ratio of two unwinders' times, round by round.
func (u *unwindResult) over(name, base, mode string) spreadOf {
	// Ratios round by round.
	return newSpread(ratios(u.Unwinders[name].PerFrame[mode], u.Unwinders[base].PerFrame[mode]))
}

// over returns perf's time divided by the time of one of scriptCommands.
func (c *commandResult) over(base string) spreadOf {
	return newSpread(ratios(c.Wall["perf"], c.Wall[base]))
}

// targets says what recordings must show. The tree is what ehasm script finds in its
// cache; packed is what it compiles in memory. Of the command, the first figure is with
// an empty cache, the other with a full one.
func (r *perfResults) targets() []target {
	var list []target
	for _, u := range r.Unwind {
		if u.Samples < 500 { // too few for a judgement
			continue
		}
		// How many times as fast ehasm should be.
		for _, t := range []struct {
			name, what string
			limit      float64
		}{
			{"libunwind", "libunwind as perf uses it", 40},
			{"libunwind-nosig", "libunwind without its calls of sigprocmask", 10},
			{"libdw", "libdw with one Dwfl for each process", 20},
		} {
			for _, mode := range []string{inBatch, inFile} {
				list = append(list, target{What: fmt.Sprintf("%s over ehasm, %s, %s", t.what, u.Name, mode), Limit: t.limit,
					AtLeast: true,
					Tree:    u.over(t.name, unwinderNames[1], mode), Other: u.over(t.name, unwinderNames[0], mode)})
			}
		}
	}
	for _, c := range r.Command {
		list = append(list, target{What: "`perf script --no-inline` over `ehasm script`, " + c.Name, Limit: 2, AtLeast: true,
			Tree: c.over(scriptCommands[0]), Other: c.over(scriptCommands[1])})
	}
	return list
}
