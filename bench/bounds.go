package main

import (
	"fmt"
	"strings"
)

// bounds says what bounds the targets that were missed, in figures of this run: the
// same calls with a frame-pointer walk inside need no table, so what an eh_elf takes
// above them is all that a better one could save.
func (r *results) bounds(b *strings.Builder) {
	// Without a missed target there is nothing to explain.
	missed := false
	for _, t := range r.targets() {
		missed = missed || strings.HasPrefix(t.verdict(), "**")
	}
	if !missed || r.Step == nil {
		return
	}
	b.WriteString("\n## What bounds what was missed\n\n")
	// The patterns from hot to cold.
	for _, p := range []string{"hot", "turn8", "turn20", "cold"} {
		r.boundLine(b, p, "`_eh_elf_walk`", "walk-floor", "walk-tree", []string{"frame-pointers", "unw-backtrace"})
	}
	b.WriteString("\nA floor is the same interface, driver and calls with a frame-pointer walk inside. It looks up no pc, and of the registers " +
		"it restores rbp alone.\n")
	if r.Count == nil || r.Count.PerStep["all"] == nil {
		return
	}
	c := r.Count.PerStep
	// What a step and a call of the tree take.
	if call, one, ok := r.Count.split("-tree"); ok {
		fmt.Fprintf(b, "\nInstructions per frame of the real stacks: frame pointers %.0f, floor of the walk %.0f, walk %.0f, of which a step takes %.0f "+
			"and %.0f are the call of %.0f shared by %.1f frames; `unw_backtrace` %.0f. floor of `_eh_elf` %.0f, `_eh_elf` %.0f.\n",
			c["all"]["frame-pointers"], c["all"]["walk-floor"], c["all"]["walk-tree"], one, c["all"]["walk-tree"]-one, call,
			r.Step.Run,
			c["all"]["unw-backtrace"], c["all"]["step-floor"], c["all"]["step-tree"])
	}
	fmt.Fprintf(b, "\nRandom pcs: a step takes %.0f instructions in a tree and %.0f packed (`bytes2000`).\n",
		c["bytes2000"]["walk-tree"], c["bytes2000"]["walk-packed"])
}

// boundLine compares the floor of an interface and an eh_elf with others.
func (r *results) boundLine(b *strings.Builder, pattern, what, floor, ours string, others []string) {
	s := r.Step.Samples[pattern]
	f, o := newSpread(s[floor]), newSpread(s[ours])
	if !f.ok() || !o.ok() {
		return
	}
	fmt.Fprintf(b, "- %s, %s: the floor of the interface takes %.1f ns per frame, the eh_elf %.1f", what, pattern,
		f.Median, o.Median)
	for _, name := range others {
		if v := newSpread(s[name]); v.ok() {
			// Ratios are taken round by round, not from medians.
			fmt.Fprintf(b, "; %s %.1f, so the floor is at %.2f of it and the eh_elf at %.2f", name, v.Median,
				r.ratioOf(pattern, floor, name).Median, r.ratioOf(pattern, ours, name).Median)
		}
	}
	b.WriteString("\n")
}
