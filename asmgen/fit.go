package asmgen

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// Fit plans and assembles a table. size says how large the file is that a code becomes. Where it
// would take more than limit bytes, long runs of pages are left out of the table of pages, fixed code is left out of small files, and more
// pages are dense, as many as it takes to keep to it, the rarest ones first; if that is not
// enough, rows that little of the text has take the slow path; then all pages are packed; at last, rows share a head. More than 2^16
// rows have trees alone. Such a
// file is smaller, and slower. A limit of 0 is none.
func Fit(t *dwarfcfa.Table, how plan.Options, opt Options, limit int, size func(*Code) int) (*Code, error) {
	type result struct {
		p *plan.Plan
		c *Code
	}
	var best result
	try := func(how plan.Options) (result, error) {
		p, err := plan.Build(t, how)
		if err != nil {
			return result{}, err
		}
		c, err := Assemble(p, opt)
		if err != nil {
			return result{}, err
		}
		if best.c == nil || size(c) < size(best.c) {
			best = result{p, c}
		}
		return result{p, c}, nil
	}
	last, err := try(how)
	if errors.Is(err, ErrTooLarge) && how.Dispatch == plan.DispatchTree {
		how.DenseKeys, how.DenseRate = plan.PageSize, -1 // there are more rows than ids
		last, err = try(how)
	}
	if err == nil && limit > 0 && size(best.c) > limit {
		opt.Compact = limit <= compactBelow
		how.Smallest = true
		last, err = try(how)
	}
	if err == nil && limit > 0 && size(best.c) > limit && opt.Compact {
		opt.OneLookup = true
		last, err = try(how)
	}
	for err == nil && limit > 0 && size(best.c) > limit && how.Dispatch == plan.DispatchTree {
		rate := denser(last.p, last.c.treeBytes, size(last.c)-limit)
		if rate == 0 {
			break
		}
		next := how
		next.DenseRate = rate
		if last, err = try(next); err == nil && last == best {
			how = next
		}
	}
	for _, way := range []struct {
		dispatch plan.Dispatch
		shared   bool
	}{{how.Dispatch, false}, {plan.DispatchPacked, false}, {plan.DispatchPacked, true}} {
		how.Dispatch, opt.SharedHead = way.dispatch, way.shared
		if way.shared && !opt.Compact {
			break
		}
		for _, how.SlowText = range []int{0, 2, 10, 50, 100} {
			if err == nil && limit > 0 && size(best.c) > limit {
				_, err = try(how)
			}
		}
	}
	if err != nil && (best.c == nil || !errors.Is(err, ErrTooLarge)) {
		return nil, err
	}
	return best.c, nil // the smallest there is, if a smaller form has no room for so many rows
}

// compactBelow is the limit in bytes up to which it matters what fixed code takes.
const compactBelow = 20 << 10

// denser returns the rate up to which pages must be dense to save so many bytes, about; 0 if no
// page is left that can be. It is higher than that of the plan.
func denser(p *plan.Plan, treeBytes, save int) int {
	var left []*plan.Tree // that are not dense
	keys := 0
	for i := range p.Trees {
		if t := &p.Trees[i]; len(t.Nodes) > 0 {
			left = append(left, t)
			keys += len(t.Keys)
		}
	}
	slices.SortFunc(left, func(a, b *plan.Tree) int { return cmp.Compare(a.Rate, b.Rate) })
	rate := 0
	for _, t := range left {
		if t.Rate == math.MaxInt || save <= 0 && t.Rate > rate {
			break
		}
		rate = t.Rate
		tree := len(t.Keys) * treeBytes / keys
		dense := 12 + 2*len(t.Keys) // two instructions, the number of keys, keys and ids
		save -= max(tree-dense, 0)
	}
	return rate
}
