package main

import (
	"fmt"
	"math"
	"strings"
)

// target is one line of what the benchmark must show.
type target struct {
	What    string
	Limit   float64  // a ratio or a size; short writes it
	AtLeast bool     // the value must be at least Limit; otherwise at most
	Packed  bool     // packed dispatch is judged, not the tree
	Tree    spreadOf // the values of both, as far as there are any
	Other   spreadOf // of packed dispatch
	Why     string   // where nothing was measured
}

// value is what the target is judged by.
func (t target) value() spreadOf {
	if t.Packed {
		return t.Other
	}
	return t.Tree
}

// verdict reports whether the target is met, by the middle value.
func (t target) verdict() string {
	v := t.value()
	// No samples, or no such contender.
	if !v.ok() {
		return "not measured"
	}
	// Above 1: better than wanted.
	factor := t.Limit / v.Median
	if t.AtLeast {
		factor = v.Median / t.Limit
	}
	if factor >= 1 {
		return fmt.Sprintf("met, %.2fx better", factor)
	}
	return fmt.Sprintf("**missed, %.2fx to go**", 1/factor)
}

// wanted is the limit as the report shows it.
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

// walkTargets compares ratios within a round; packed has no separate target.
func (r *results) walkTargets() []target {
	ratio := func(what, pattern, num, den string, limit float64) target {
		// The same comparison with packed dispatch.
		packed := strings.NewReplacer("walk-tree", "walk-packed", "step-tree", "step-packed")
		return target{What: what, Limit: limit, AtLeast: den == "walk-tree" && num == "unw-backtrace",
			Tree: r.ratioOf(pattern, num, den), Other: r.ratioOf(pattern, packed.Replace(num), packed.Replace(den))}
	}
	list := []target{
		ratio("`_eh_elf_walk` over a frame-pointer walk, hot", "hot", "walk-tree", "frame-pointers", 3),
		ratio("`unw_backtrace` over `_eh_elf_walk`, hot", "hot", "unw-backtrace", "walk-tree", 2.1),
		ratio("`_eh_elf_walk` over a frame-pointer walk, random rows of libc", "rows2000", "walk-tree", "frame-pointers",
			3.4),
	}
	// Only if BENCH_EARLIER names an earlier release.
	if earlier() != "" {
		list = append(list,
			ratio("`_eh_elf_walk` over the earlier release's, cold", "cold", "walk-tree", "walk-earlier", 1),
			ratio("`_eh_elf` with callback over the earlier release's, hot", "hot", "step-tree", "step-earlier", 1.05))
	}
	return append(list,
		ratio("`ehu_backtrace` over `_eh_elf_walk`, hot", "hot", "ehu-backtrace", "walk-tree", 1.05),
		ratio("package ehelf over `_eh_elf_walk`, hot", "hot", goName, "walk-tree", 1.05))
}

// targets returns the lines in order.
func (r *results) targets() []target {
	return append(append(r.walkTargets(), r.sizeTargets()...), r.growthTarget())
}

// sizeTargets compares sizes of libc and of all objects.
func (r *results) sizeTargets() []target {
	libc := [2]spreadOf{newSpread(nil), newSpread(nil)}
	mean := libc
	for v := range min(2, len(variants())) {
		all := r.sizeRatios(v)
		mean[v] = newSpread(all)
		// The spread of all objects, with the geometric mean in the middle.
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
		{What: geo + ", packed", Limit: 0.5, Packed: true, Tree: mean[0], Other: mean[1]},
	}
}

// sizeRatios returns the ratios of one variant, of the objects that it could be made for.
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
	t := target{What: "time per step, hot, the largest object up to 6 MB over the smallest", Limit: 1.6,
		Tree: newSpread(nil), Other: newSpread(nil)}
	// One object is no growth.
	if len(r.Growth) < 2 {
		return t
	}
	small, large := r.Growth[0], r.Growth[len(r.Growth)-1]
	t.What = fmt.Sprintf("time per step, hot: `.eh_frame` of %s over %s", bytesText(large.EHFrame),
		bytesText(small.EHFrame))
	t.Tree = newSpread(ratios(large.Samples["tree"], small.Samples["tree"]))
	t.Other = newSpread(ratios(large.Samples["packed"], small.Samples["packed"]))
	return t
}

// baseName returns the part of a path behind the last slash.
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
