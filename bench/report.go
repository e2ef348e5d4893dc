package main

import (
	"fmt"
	"slices"
	"strings"
)

// This file writes out/report.md from the results: targets first, then where ehasm is behind, then
// one part for each kind of measurement. A part that was not measured writes nothing.

// reportText is out/report.md.
func reportText(r *results) string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "# Benchmark report\n\n%s, %d cores, %s, kernel %s; %s; %s; commit %s; load %s; %.0f s.\n\n",
		m.CPU, m.Cores, m.System, m.Kernel, m.Go, m.GCC, m.Commit, m.Load, r.Seconds)
	if len(m.Packages) > 0 {
		fmt.Fprintf(&b, "%s.\n\n", strings.Join(m.Packages, ", "))
	}
	// Rounds differ by what else the machine does; contenders within a round share it.
	b.WriteString("Values are medians over the rounds, in parentheses the least and the largest. Ratios are taken within a round.\n")
	if r.Quick {
		b.WriteString("A quick run: few rounds, few objects.\n")
	}
	b.WriteString("\n## Targets\n\n| what | wanted | tree | packed | |\n| --- | --- | --- | --- | --- |\n")
	// Recordings are a separate run with targets and a text of their own kind.
	targets := r.targets
	if r.Perf != nil {
		targets = r.Perf.targets
	}
	for _, t := range targets() {
		fmt.Fprintf(&b, "| %s | %s | %v | %v | %s |\n", t.What, t.wanted(), t.Tree, t.Other, t.verdict())
	}
	if r.Perf != nil {
		r.Perf.text(&b)
		return b.String()
	}
	// The reader is told what is missing.
	b.WriteString("\nframehop is not in this run: its crates are not among what the harness can count on.\n" +
		"Its class, a cache of rules by pc, is here as libunwind's `unw_backtrace`.\n")
	r.behind(&b)
	r.bounds(&b)
	if r.Step != nil {
		r.stepText(&b)
	}
	r.countText(&b)
	r.sizeText(&b)
	r.formatsText(&b)
	r.growthText(&b)
	r.buildText(&b)
	if len(r.Notes) > 0 {
		b.WriteString("\n## Notes\n\n")
		for _, n := range r.Notes {
			fmt.Fprintf(&b, "- %s\n", n)
		}
	}
	return b.String()
}

// rivals lists the comparisons that the report makes to find where an eh_elf is slower.
// Names of contenders; see contenders().
var rivals = [...]struct{ ours, theirs, what string }{
	{"walk-tree", "unw-backtrace", "`_eh_elf_walk`, tree, is slower than libunwind's `unw_backtrace`"},
	{"walk-packed", "unw-backtrace", "`_eh_elf_walk`, packed, is slower than libunwind's `unw_backtrace`"},
	{"walk1-tree", "unw-backtrace", "`_eh_elf_walk` with `max` 1, tree, is slower than libunwind's `unw_backtrace`"},
	{"ehu-backtrace", "unw-backtrace", "libehunwind's `ehu_backtrace` is slower than libunwind's `unw_backtrace`"},
	{"ehu-backtrace", "walk-tree", "`ehu_backtrace` is slower than `_eh_elf_walk`, which it calls"},
	{"ehu-step", "unw-backtrace", "`ehu_step` is slower than libunwind's `unw_backtrace`"},
	{"ehu-step-registers", "unw-backtrace", "`ehu_step`, asked for rsp, is slower than libunwind's `unw_backtrace`"},
	{"go-ehelf", "unw-backtrace", "Go's ehelf is slower than libunwind's `unw_backtrace`"},
	{"walk-packed", "walk-tree", "packed dispatch is slower than the tree"},
	{"walk-tree", "walk-packed", "the tree is slower than packed dispatch"},
	{"walk-tree", "frame-pointers", "`_eh_elf_walk`, tree, is slower than frame pointers (the floor)"},
}

// behind lists where something else is faster or smaller.
func (r *results) behind(b *strings.Builder) {
	b.WriteString("\n## Where ehasm is behind\n\n")
	for _, rival := range rivals {
		var where []string
		for _, p := range stepPatterns() {
			// Ratios above 1: the first takes longer.
			if v := r.ratioOf(p.Key, rival.ours, rival.theirs); v.ok() && v.Median > 1 {
				where = append(where, fmt.Sprintf("%s %.2fx", p.Key, v.Median))
			}
		}
		if len(where) > 0 {
			fmt.Fprintf(b, "- %s: %s\n", rival.what, strings.Join(where, ", "))
		}
	}
	for _, o := range r.Size {
		if o.Error != "" {
			fmt.Fprintf(b, "- size: %s: %s\n", o.Path, o.Error)
			continue
		}
		for i, v := range variants() {
			// Sizes by variant: above 1, the code is larger than the tables it replaces.
			if o.ratio(i) > 1 {
				fmt.Fprintf(b, "- %s: %s takes %.2f of `.eh_frame` and `.eh_frame_hdr`\n", o.Path, v.Name, o.ratio(i))
			}
		}
	}
}

// failed reports whether a contender's frames were wrong in any set.
func (s *stepResults) failed(contender string) bool {
	return slices.ContainsFunc(s.Failures, func(f failure) bool { return f.Contender == contender })
}

// stepText writes the part about steps: ns per frame, ratios, and who found other frames.
func (r *results) stepText(b *strings.Builder) {
	s := r.Step
	frames := slices.Sorted(slices.Values(s.Frames))
	fmt.Fprintf(b, "\n## Step\n\n%d real stacks of %d to %d frames; %d rounds, contenders in random order within a round. "+
		"A stack stays in one object for %.1f frames in the mean: one call takes all these steps of `_eh_elf_walk`.\n\n",
		s.Stacks, frames[0], frames[len(frames)-1], s.Rounds, s.Run)
	for _, p := range stepPatterns() {
		fmt.Fprintf(b, "- `%s`: %s\n", p.Key, p.What)
	}
	fmt.Fprintf(b, "\nThe last-level cache holds %s; cold writes every line of %s before each walk.\n", bytesText(s.Cache),
		bytesText(s.Flush))
	b.WriteString("\n### Nanoseconds per frame\n\n")
	// Medians first, since single rounds vary.
	s.table(b, stepPatterns(), contenders(), func(p, c string) spreadOf { return newSpread(s.Samples[p][c]) })
	b.WriteString("\n### The same, least and first quartile\n\n")
	for _, c := range contenders() {
		if c.Slow {
			continue
		}
		fmt.Fprintf(b, "- `%s`:", c.Name)
		for _, p := range stepPatterns() {
			fmt.Fprintf(b, " %s %s;", p.Key, newSpread(s.Samples[p.Key][c.Name]).low())
		}
		b.WriteString("\n")
	}
	// Below 1, a contender is faster than the tree.
	b.WriteString("\n### Ratio to `_eh_elf_walk`, tree\n\n")
	s.table(b, stepPatterns(), contenders(),
		func(p, c string) spreadOf { return newSpread(ratios(s.Samples[p][c], s.Samples[p]["walk-tree"])) })
	if s.Absent["ehu-backtrace"] == "" {
		b.WriteString("\n### Ratio to `ehu_backtrace`\n\nWhat a program that takes its own stack can call, hot to cold.\n\n")
		s.table(b, livePatterns(), liveContenders(), func(p, c string) spreadOf {
			return newSpread(ratios(s.Samples[p][c], s.Samples[p]["ehu-backtrace"]))
		})
	}
	// Times of contenders that find other frames mean little.
	b.WriteString("\n### Same answer?\n\nThe reference is the evaluator of package dwarfcfa; for synthetic stacks also what they were made from.\n\n")
	for _, f := range s.Failures {
		fmt.Fprintf(b, "- **%s fails** on %d of the %d stacks of %s; the first: %s\n", f.Contender, f.Bad, f.Of, f.Set,
			f.First)
	}
	for _, c := range contenders() {
		if why := s.Absent[c.Name]; why != "" {
			fmt.Fprintf(b, "- %s did not run: %s\n", c.Name, why)
		}
	}
	if len(s.Failures) == 0 {
		b.WriteString("All contenders that ran found the same frames on every stack.\n")
	}
}

// table writes a row for each contender and a column for each pattern.
func (s *stepResults) table(b *strings.Builder, patterns []pattern, list []contender,
	value func(pattern, contender string) spreadOf) {
	b.WriteString("| |")
	for _, p := range patterns {
		fmt.Fprintf(b, " %s |", p.Key)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(patterns)) + "\n")
	for _, c := range list {
		// Absent contenders are listed below the tables.
		if s.Absent[c.Name] != "" {
			continue
		}
		mark := ""
		if s.failed(c.Name) {
			mark = " **fails**"
		}
		fmt.Fprintf(b, "| %s%s |", c.What, mark)
		for _, p := range patterns {
			fmt.Fprintf(b, " %v |", value(p.Key, c.Name))
		}
		b.WriteString("\n")
	}
}

// countText writes the part about counted instructions.
func (r *results) countText(b *strings.Builder) {
	if r.Count == nil {
		return
	}
	b.WriteString("\n## Instructions per frame\n\nCounted by callgrind over one pass, after a pass that warms caches; " +
		"`all`: the real stacks. The harness' own are subtracted.\n\n| |")
	for _, set := range countSets {
		fmt.Fprintf(b, " %s |", set)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(countSets)) + "\n")
	for _, c := range contenders() {
		// A contender that was counted in no set has no line.
		line, any := fmt.Sprintf("| %s |", c.What), false
		for _, set := range countSets {
			v, ok := r.Count.PerStep[set][c.Name]
			any = any || ok
			if ok {
				line += fmt.Sprintf(" %.1f |", v)
			} else {
				line += " - |"
			}
		}
		if any {
			b.WriteString(line + "\n")
		}
	}
	b.WriteString("\n")
	// From two counts, what a call and a step take.
	for _, v := range variants() {
		if call, step, ok := r.Count.split("-" + v.Name); ok {
			fmt.Fprintf(b, "%s: a step inside a call of `_eh_elf_walk` takes %.0f instructions, a call %.0f more, the driver's lookup of the object included.\n",
				v.Name, step, call)
		}
	}
}
