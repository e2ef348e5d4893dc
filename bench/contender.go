package main

import "slices"

// contender is one way to walk a stack.
type contender struct {
	Name string // as the driver knows it
	What string
	Live bool // only on real stacks: it runs on the stack that it walks
	Slow bool // hundreds of ns per frame: fewer rounds on large sets
}

const goName = "go-ehelf" // runs in the harness, not in the driver

// contenders returns all, in the order of the report.
func contenders() []contender {
	list := []contender{
		{Name: "frame-pointers", What: "frame pointers, the same frames at the same distances (floor)"},
		{Name: "walk-floor", What: "frame pointers behind `_eh_elf_walk`'s interface: a call for each change of object"},
		{Name: "step-floor", What: "frame pointers behind `_eh_elf`'s interface, with callback"},
	}
	for _, v := range variants() {
		list = append(list, contender{Name: "walk-" + v.Name, What: "`_eh_elf_walk`, " + v.Name + ", whole stacks"})
	}
	for _, v := range variants() {
		list = append(list, contender{Name: "walk1-" + v.Name, What: "`_eh_elf_walk`, " + v.Name + ", `max` 1"})
	}
	for _, v := range variants() {
		list = append(list, contender{Name: "step-" + v.Name, What: "`_eh_elf` with callback, " + v.Name})
	}
	if earlier() != "" {
		list = append(list, contender{Name: "walk-earlier", What: "`_eh_elf_walk`, files of the earlier release"},
			contender{Name: "step-earlier", What: "`_eh_elf` with callback, files of the earlier release"})
	}
	return append(list,
		contender{Name: "ehu-backtrace", What: "libehunwind `ehu_backtrace`, tree", Live: true},
		contender{Name: "ehu-step", What: "libehunwind `ehu_step`, tree", Live: true},
		contender{Name: "ehu-step-registers", What: "libehunwind `ehu_step`, rsp of each frame, tree", Live: true},
		contender{Name: goName, What: "Go package ehelf, tree, on captured registers and bytes"},
		contender{Name: "unw-backtrace", What: "libunwind `unw_backtrace`"},
		contender{Name: "libgcc", What: "libgcc `_Unwind_Backtrace`", Slow: true},
		contender{Name: "glibc-backtrace", What: "glibc `backtrace`", Slow: true},
		contender{Name: "libdw", What: "elfutils `dwfl_getthread_frames`", Slow: true},
		contender{Name: "unw-step-thread", What: "libunwind `unw_step`, per-thread cache", Slow: true},
		contender{Name: "unw-step-global", What: "libunwind `unw_step`, global cache (default)", Slow: true},
		contender{Name: "llvm-libunwind", What: "LLVM libunwind `unw_step`", Slow: true},
		contender{Name: "unw-step-none", What: "libunwind `unw_step`, no cache", Slow: true},
	)
}

// pattern is how stacks are walked: which set, and in which order. Key names it in the results.
type pattern struct {
	Key  string // in the results
	Set  string // name of a set that the driver knows
	Mode string // the driver's name: hot, turn, cold
	What string // for the report
}

// stepPatterns returns the patterns of the step benchmark, from warm to cold.
func stepPatterns() []pattern {
	return []pattern{
		{"hot", "all", "hot", "each real stack again and again"},
		{"turn8", "turn8", "turn", "8 real stacks in turn"},
		{"turn20", "turn20", "turn", "20 real stacks in turn"},
		{"cold", "turn20", "cold", "20 real stacks, more memory than the last-level cache holds written before each walk"},
		{"rows2000", "rows2000", "turn", "2,000 synthetic stacks in turn, rows of libc drawn uniformly"},
		{"bytes2000", "bytes2000", "turn", "2,000 synthetic stacks in turn, pcs of libc drawn uniformly"},
	}
}

// eligible reports whether a contender takes part in a pattern. Synthetic stacks are walked only by
// contenders that take registers and memory of others.
func (c contender) eligible(p pattern) bool {
	return !p.isSynthetic() || c.Name != goName && !c.Live
}

// livePatterns returns those that contenders on the stack itself take part in.
func livePatterns() []pattern {
	return slices.DeleteFunc(stepPatterns(), pattern.isSynthetic)
}

// liveContenders returns what a program can call to get its own stack.
func liveContenders() []contender {
	return slices.DeleteFunc(contenders(), func(c contender) bool {
		switch c.Name {
		case "unw-backtrace", "unw-step-thread", "unw-step-global", "unw-step-none", "llvm-libunwind", "libgcc",
			"glibc-backtrace":
			return false
		}
		return !c.Live
	})
}

// isSynthetic reports whether a pattern walks stacks that the harness made.
func (p pattern) isSynthetic() bool { return p.Set == "rows2000" || p.Set == "bytes2000" }
