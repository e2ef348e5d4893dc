// Package flamegraph draws stacks as a flame graph: an SVG file that a browser
// shows, searches and zooms without other files, and that is a static picture
// if scripts do not run.
//
// Boxes stand on their callers, as wide as their share of all samples. Siblings
// are in the order of their names, so that equal stacks give equal files.
package flamegraph

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/internal/profile/tally"
)

// Kind is the kind of a frame; each has its own range of colours.
type Kind uint8

// Kinds of frames.
const (
	User      Kind = iota
	Inlined        // has no separate frame on the stack
	Kernel         // code of the kernel
	JIT            // made at run time
	Unknown        // code that has no name
	Truncated      // stands for frames that are not known
	Base           // groups stacks, by process for example
	numKinds
)

// Frame is a box's name and kind. Frames are the same if all fields are equal.
type Frame struct {
	Name   string
	Kind   Kind
	Object string // the file that holds the function; "": not known, or the name says it
}

// compare orders frames by name, then by kind and object.
func (f Frame) compare(g Frame) int {
	return cmp.Or(strings.Compare(f.Name, g.Name), cmp.Compare(f.Kind, g.Kind), strings.Compare(f.Object, g.Object))
}

// Graph collects stacks, in the memory of a tally: boxes are made when it is drawn, twice, once to choose which of
// them fit and once to draw them. It is for one goroutine.
type Graph struct {
	frames   []Frame     // sorted, each once
	rank     []uint32    // from the caller's numbers to those of frames
	stacks   tally.Tally // weights and weights before, by ranks of frames
	compared bool        // there may be stacks of before
	key      []byte      // scratch of add, kept to save allocations
}

// New returns an empty graph for stacks of these frames. A frame may be among
// them more than once.
func New(frames []Frame) *Graph {
	g := &Graph{frames: slices.Compact(slices.SortedFunc(slices.Values(frames), Frame.compare)),
		rank: make([]uint32, len(frames))}
	for i, f := range frames {
		index, _ := slices.BinarySearchFunc(g.frames, f, Frame.compare)
		g.rank[i] = uint32(index)
	}
	return g
}

// Add counts a stack weight times. frames are indices into the frames given to
// New, outermost first. The sum of all weights must fit 64 bits.
func (g *Graph) Add(frames []uint32, weight uint64) { g.add(frames, weight, 0) }

// AddBefore counts a stack of the recording to compare with. Once there is one,
// colours show how much the shares of boxes differ. Boxes that only that recording
// has are not drawn.
func (g *Graph) AddBefore(frames []uint32, weight uint64) {
	g.compared = true
	g.add(frames, 0, weight)
}

// add counts a stack weight times in the graph, and before times in the recording to compare with.
// The key is the list of ranks, so that keys in order are stacks in the order of frames' names.
func (g *Graph) add(frames []uint32, weight, before uint64) {
	if weight == 0 && before == 0 {
		return
	}
	g.key = g.key[:0]
	for _, f := range frames {
		g.key = tally.AppendNumber(g.key, g.rank[f])
	}
	g.stacks.Add(g.key, tally.Sum{weight, before})
}

// box is a frame reached by one path of callers: samples [start, end) of all
// samples, sorted by stack.
type box struct {
	frame      uint32 // rootFrame for the first
	depth      uint32
	start, end uint64
	before     uint64 // while open, its start among the samples of before; later their number
}

// rootFrame is the frame number of the box below all others, which stands for all stacks.
const rootFrame = ^uint32(0)

// weight returns the number of samples in the box.
func (b *box) weight() uint64 { return b.end - b.start }

// walk goes through the sorted stacks. It calls open for each box, in preorder,
// and shut at its end, first for the boxes that stand on it.
func (g *Graph) walk(open func(box), shut func(end, before uint64)) {
	var sum, before uint64
	var last, frames []uint32
	open(box{frame: rootFrame})
	for key, n := range tally.All(&g.stacks) {
		frames = slices.AppendSeq(frames[:0], tally.Numbers(key))
		same := 0 // frames that this stack has in common with the one before
		for same < len(last) && same < len(frames) && last[same] == frames[same] {
			same++
		}
		// the boxes of the stack before that this one does not share have ended, the innermost first
		for range last[same:] {
			shut(sum, before)
		}
		for i, f := range frames[same:] {
			open(box{frame: f, depth: uint32(1 + same + i), start: sum, before: before})
		}
		sum += n[0]
		before += n[1]
		last = append(last[:same], frames[same:]...)
	}
	for range last {
		shut(sum, before)
	}
	shut(sum, before)
}

// Left says what a drawing leaves out.
type Left struct {
	Boxes  int    // how many boxes
	Below  uint64 // each of them of a lower weight than this
	Weight uint64 // of the stacks whose innermost boxes are among them
}

// choose finds the minimum weight of boxes so that drawing them costs at most
// budget. Boxes of the same weight are drawn or left out together. The first box
// is always drawn.
func (g *Graph) choose(budget int) Left {
	type group struct{ boxes, cost int }
	groups := make(map[uint64]group) // by weight, of which there are few
	var open []box
	g.walk(func(b box) { open = append(open, b) }, func(end, _ uint64) {
		b := open[len(open)-1]
		open = open[:len(open)-1]
		if b.frame != rootFrame && end > b.start {
			sum := groups[end-b.start]
			groups[end-b.start] = group{sum.boxes + 1, sum.cost + boxBytes + len(g.frames[b.frame].Name) +
				len(g.frames[b.frame].Object)}
		}
	})
	var left Left
	for _, w := range slices.Backward(slices.Sorted(maps.Keys(groups))) {
		if budget -= groups[w].cost; budget < 0 {
			left.Boxes += groups[w].boxes
			left.Below = max(left.Below, w+1)
		}
	}
	return left
}

// boxes returns, in preorder, the boxes to draw, and completes left. The first
// is the weight of all stacks. A box is at least as heavy as those that stand on it,
// so it is never left out without them.
func (g *Graph) boxes(left *Left) []box {
	var all []box
	type level struct {
		index int    // the open box's place in all
		left  uint64 // the weight of left-out boxes that stand on it
	}
	var open []level
	g.walk(func(b box) {
		open = append(open, level{index: len(all)})
		all = append(all, b)
	}, func(end, before uint64) {
		last := len(open) - 1
		l, b := open[last], &all[open[last].index]
		open = open[:last]
		b.end, b.before = end, before-b.before
		if last > 0 && b.weight() < max(left.Below, 1) { // the boxes on it are already left out
			open[last-1].left += b.weight()
			all = all[:l.index]
			return
		}
		left.Weight += l.left
	})
	return all
}
