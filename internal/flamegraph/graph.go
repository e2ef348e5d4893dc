// Package flamegraph draws stacks as a flame graph: an SVG file that a browser
// shows, searches and zooms without anything else, and that is a picture where
// scripts do not run.
//
// Boxes stand on their callers, as wide as their share of all samples. Siblings
// are in the order of their names, so that equal stacks give equal files.
package flamegraph

import (
	"cmp"
	"slices"
	"strings"
)

// Kind is what sort of frame it is; each has its own range of colours.
type Kind uint8

// The kinds.
const (
	User      Kind = iota
	Inlined        // has no frame of its own on the stack
	Kernel         //
	Unknown        // code that has no name
	Truncated      // stands for frames that are not known
	Base           // groups stacks, by process for example
	numKinds
)

// Frame is a box's name and kind. Frames are the same if both are equal.
type Frame struct {
	Name string
	Kind Kind
}

func (f Frame) compare(g Frame) int {
	return cmp.Or(strings.Compare(f.Name, g.Name), cmp.Compare(f.Kind, g.Kind))
}

// Graph collects stacks.
type Graph struct {
	frames []Frame  // sorted, each once
	rank   []uint32 // from the caller's numbers to those of frames
	stacks []stack
}

type stack struct {
	frames []uint32
	weight uint64
}

// New returns an empty graph for stacks of these frames. A frame may be among
// them more than once.
func New(frames []Frame) *Graph {
	g := &Graph{frames: slices.Compact(slices.SortedFunc(slices.Values(frames), Frame.compare)), rank: make([]uint32, len(frames))}
	for i, f := range frames {
		at, _ := slices.BinarySearchFunc(g.frames, f, Frame.compare)
		g.rank[i] = uint32(at)
	}
	return g
}

// Add counts a stack weight times. Its frames, outermost first, are given by
// their index in what New was given. The sum of all weights must fit 64 bits.
func (g *Graph) Add(frames []uint32, weight uint64) {
	if weight == 0 {
		return
	}
	s := stack{frames: make([]uint32, len(frames)), weight: weight}
	for i, f := range frames {
		s.frames[i] = g.rank[f]
	}
	g.stacks = append(g.stacks, s)
}

// box is what a frame's calls from one place become: samples [start, end) of
// all samples, if these are put in the order of their stacks.
type box struct {
	frame      uint32 // rootFrame for the first
	depth      int
	start, end uint64
}

const rootFrame = ^uint32(0)

func (b *box) weight() uint64 { return b.end - b.start }

// boxes returns the boxes in preorder. The first is that of all stacks.
func (g *Graph) boxes() []box {
	slices.SortFunc(g.stacks, func(a, b stack) int { return slices.Compare(a.frames, b.frames) })
	all := []box{{frame: rootFrame}}
	open := []int{0} // the boxes of the last stack, by depth
	var sum uint64
	closeTo := func(depth int) {
		for _, i := range open[depth:] {
			all[i].end = sum
		}
		open = open[:depth]
	}
	var last []uint32
	for _, s := range g.stacks {
		same := 0
		for same < len(last) && same < len(s.frames) && last[same] == s.frames[same] {
			same++
		}
		closeTo(1 + same)
		for _, f := range s.frames[same:] {
			open = append(open, len(all))
			all = append(all, box{frame: f, depth: len(open) - 1, start: sum})
		}
		sum += s.weight
		last = s.frames
	}
	closeTo(0)
	return all
}

// Left says what a drawing leaves out.
type Left struct {
	Boxes  int    // how many boxes
	Below  uint64 // each of them of a lower weight than this
	Weight uint64 // of the stacks whose innermost boxes are among them
}

// prune takes out the lightest boxes, so that what drawing the others costs is
// at most budget. Boxes of the same weight stay or go together; no box goes
// before those that stand on it, which are no heavier.
func (g *Graph) prune(all []box, budget int) ([]box, Left) {
	byWeight := slices.Clone(all[1:])
	slices.SortFunc(byWeight, func(a, b box) int { return cmp.Compare(b.weight(), a.weight()) })
	var left Left
	for i := 0; i < len(byWeight); {
		w, cost, n := byWeight[i].weight(), 0, 0
		for ; i+n < len(byWeight) && byWeight[i+n].weight() == w; n++ {
			cost += boxBytes + len(g.frames[byWeight[i+n].frame].Name)
		}
		if cost > budget {
			left.Boxes, left.Below = len(byWeight)-i, w+1
			break
		}
		budget -= cost
		i += n
	}
	kept := all[:1]
	var until uint64 // the end of the last box that is left out and stands on a kept one
	for _, b := range all[1:] {
		if b.weight() >= left.Below {
			kept = append(kept, b)
		} else if b.start >= until {
			left.Weight += b.weight()
			until = b.end
		}
	}
	return kept, left
}
