package main

import (
	"fmt"
	"math"
	"strings"
)

// target is one line of what the benchmark must show.
type target struct {
	What    string
	Limit   float64
	AtLeast bool     // the value must be at least Limit; otherwise at most
	Packed  bool     // packed dispatch is judged, not the tree
	Tree    spreadOf // the values of both, as far as there are any
	Other   spreadOf // of packed dispatch
	Why     string   // where nothing was measured
}

func (t target) value() spreadOf {
	if t.Packed {
		return t.Other
	}
	return t.Tree
}

// verdict reports whether the target is met, by the middle value.
func (t target) verdict() string {
	v := t.value()
	if !v.ok() {
		return "not measured"
	}
	factor := t.Limit / v.Median
	if t.AtLeast {
		factor = v.Median / t.Limit
	}
	if factor >= 1 {
		return fmt.Sprintf("met, %.2fx better", factor)
	}
	return fmt.Sprintf("**missed, %.2fx to go**", 1/factor)
}

func (t target) wanted() string {
	if t.AtLeast {
		return fmt.Sprintf(">= %s", short(t.Limit))
	}
	return fmt.Sprintf("<= %s", short(t.Limit))
}

// ratioOf compares two contenders in a pattern, round by round.
func (r *results) ratioOf(pattern, num, den string) spreadOf {
	if r.Step == nil {
		return newSpread(nil)
	}
	s := r.Step.Samples[pattern]
	return newSpread(ratios(s[num], s[den]))
}

// speedups: contender over _eh_elf_walk.
func (r *results) speedup(what, pattern, contender string, limit float64) target {
	return target{What: what, Limit: limit, AtLeast: true,
		Tree: r.ratioOf(pattern, contender, "walk-tree"), Other: r.ratioOf(pattern, contender, "walk-packed")}
}

func (r *results) over(what, pattern, ours, contender string, limit float64) target {
	return target{What: what, Limit: limit,
		Tree: r.ratioOf(pattern, ours+"-tree", contender), Other: r.ratioOf(pattern, ours+"-packed", contender)}
}

// targets returns the lines in order.
func (r *results) targets() []target {
	none := newSpread(nil)
	var list []target
	for _, p := range [][2]string{{"hot", "hot"}, {"turn8", "8 stacks in turn"}, {"turn20", "20 stacks in turn"}} {
		list = append(list,
			r.speedup("`unw_backtrace` over `_eh_elf_walk`, "+p[1], p[0], "unw-backtrace", 1.8),
			r.speedup("libgcc's `_Unwind_Backtrace` over `_eh_elf_walk`, "+p[1], p[0], "libgcc", 30),
			r.speedup("`unw_step` with its default cache over `_eh_elf_walk`, "+p[1], p[0], "unw-step-global", 150))
	}
	list = append(list,
		target{What: "framehop over `_eh_elf_walk`", Limit: 5, AtLeast: true, Tree: none, Other: none},
		r.over("`_eh_elf_walk` over a frame-pointer walk, hot", "hot", "walk", "frame-pointers", 2.5),
		r.over("`_eh_elf_walk` over a frame-pointer walk, 8 stacks in turn", "turn8", "walk", "frame-pointers", 1.5),
		r.over("`_eh_elf_walk` over a frame-pointer walk, 20 stacks in turn", "turn20", "walk", "frame-pointers", 1.5),
		r.over("`max` 1 over `unw_backtrace` (9 ns where it takes 6), hot", "hot", "walk1", "unw-backtrace", 1.5),
		r.over("`max` 1 over `unw_backtrace`, 20 stacks in turn", "turn20", "walk1", "unw-backtrace", 1.5),
		r.speedup("`unw_backtrace` over `_eh_elf_walk`, memory cold", "cold", "unw-backtrace", 1),
		r.over("`_eh_elf_walk` over a frame-pointer walk, memory cold", "cold", "walk", "frame-pointers", 2),
	)
	list = append(list, r.randomTargets()...)
	list = append(list, r.sizeTargets()...)
	return append(list, r.growthTarget())
}

func (r *results) randomTargets() []target {
	none := newSpread(nil)
	var list []target
	for _, p := range [][2]string{{"bytes2000", "2,000 stacks of uniformly random pcs"}, {"rows2000", "2,000 stacks of random rows"}} {
		list = append(list,
			target{What: "packed over tree, " + p[1], Limit: 0.75, Packed: true, Tree: none, Other: r.ratioOf(p[0], "walk-packed", "walk-tree")})
	}
	return list
}

func (r *results) sizeTargets() []target {
	libc := [2]spreadOf{newSpread(nil), newSpread(nil)}
	mean := libc
	for v := range min(2, len(variants())) {
		all := r.sizeRatios(v)
		mean[v] = newSpread(all)
		mean[v].Median = geomean(all)
		for _, o := range r.Size {
			if o.Error == "" && baseName(o.Path) == "libc.so.6" {
				libc[v] = newSpread([]float64{o.ratio(v)})
			}
		}
	}
	n := len(r.sizeRatios(0))
	geo := fmt.Sprintf("size over `.eh_frame` + `.eh_frame_hdr`, geometric mean of %d objects", n)
	return []target{
		{What: "size over `.eh_frame` + `.eh_frame_hdr`, libc, tree", Limit: 1.0, Tree: libc[0], Other: libc[1]},
		{What: geo + ", tree", Limit: 0.9, Tree: mean[0], Other: mean[1]},
		{What: "size, libc, packed", Limit: 0.75, Packed: true, Tree: libc[0], Other: libc[1]},
		{What: geo + ", packed", Limit: 0.6, Packed: true, Tree: mean[0], Other: mean[1]},
	}
}

func (r *results) sizeRatios(v int) (all []float64) {
	for _, o := range r.Size {
		if o.Error == "" {
			all = append(all, o.ratio(v))
		}
	}
	return all
}

// growthTarget compares the slowest of the objects with the smallest.
func (r *results) growthTarget() target {
	t := target{What: "time per step, hot, the largest object up to 6 MB over the smallest", Limit: 1.6, Tree: newSpread(nil), Other: newSpread(nil)}
	if len(r.Growth) < 2 {
		return t
	}
	small, large := r.Growth[0], r.Growth[len(r.Growth)-1]
	t.What = fmt.Sprintf("time per step, hot: `.eh_frame` of %s over %s", bytesText(large.EHFrame), bytesText(small.EHFrame))
	t.Tree = newSpread(ratios(large.Samples["tree"], small.Samples["tree"]))
	t.Other = newSpread(ratios(large.Samples["packed"], small.Samples["packed"]))
	return t
}

func baseName(path string) string { return path[strings.LastIndex(path, "/")+1:] }

// bytesText writes a size with a unit.
func bytesText(n int64) string {
	v := float64(n)
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MB", v/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.0f KB", v/(1<<10))
	}
	return fmt.Sprintf("%.0f bytes", math.Max(v, 0))
}
