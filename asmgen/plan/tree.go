package plan

import "math"

// This file shapes compare trees so that frequent leaves lie near the root: prologue rows, which few pcs hit, lie
// deepest.

// treeBuilder finds the shape of a tree. It is reused from page to page.
type treeBuilder struct {
	cost []uint32
	root []uint16
	out  []Node

	below []uint32 // sums of weights
}

// The cost of a comparison, and of a taken branch: a taken one ends a fetch block, and is predicted by itself.
const (
	compareCost = 1
	takenCost   = 4
)

// bestLeaves is the largest number of leaves for which the best tree is searched: the time grows with its cube.
const bestLeaves = 48

// nodes returns the tree over the keys with the least mean cost by the leaves' weights. The code branches to every
// leaf, and where both sides of a node are nodes, to the lighter one. This is the classic dynamic programme for optimal
// alphabetic trees (The Art of Computer Programming, vol. 3, §6.2.2). Its bound on the roots (the root of a range is
// between those of the range without its last and without its first leaf) does not hold with branches counted; it is
// used for more than bestLeaves, whose trees may be a little worse.
func (b *treeBuilder) nodes(keys []uint8, weights []uint32) []Node {
	n := len(keys)
	if n == 0 {
		return nil
	}
	// cost[i][j]: the best tree over leaves i to j; root[i][j]: the key that its root compares with.
	b.below = append(b.below[:0], 0)
	for _, w := range weights {
		b.below = append(b.below, b.below[len(b.below)-1]+w)
	}
	weight := func(i, j int) uint32 { return b.below[j+1] - b.below[i] } // of leaves i to j
	w := n + 1
	if len(b.cost) < w*w {
		b.cost = make([]uint32, w*w)
		b.root = make([]uint16, w*w)
	}
	cost, root := b.cost[:w*w], b.root[:w*w]
	for i := range w {
		cost[i*w+i] = 0
	}
	for span := 1; span < w; span++ {
		for i := 0; i+span < w; i++ {
			j := i + span
			best, split := uint32(math.MaxUint32), i
			first, last := i, j-1
			if span >= bestLeaves {
				a, b := int(root[i*w+j-1]), int(root[(i+1)*w+j])
				first, last = min(a, b), max(a, b)
			}
			for k := first; k <= last; k++ { // leaves i..k left, k+1..j right
				c := cost[i*w+k] + cost[(k+1)*w+j]
				if k > i && k+1 < j {
					c += takenCost * min(weight(i, k), weight(k+1, j))
				}
				if c < best {
					best, split = c, k
				}
			}
			cost[i*w+j] = best + compareCost*weight(i, j)
			root[i*w+j] = uint16(split)
		}
	}
	b.out = b.out[:0]
	b.emit(keys, root, weight, 0, w-1)
	return append([]Node(nil), b.out...)
}

// emit appends the subtree over leaves i to j in preorder and returns it.
func (b *treeBuilder) emit(keys []uint8, root []uint16, weight func(i, j int) uint32, i, j int) Child {
	if i == j {
		return ^Child(i)
	}
	k := int(root[i*(len(keys)+1)+j])
	first := len(b.out)
	b.out = append(b.out, Node{Key: keys[k], LeftNext: weight(i, k) > weight(k+1, j)})
	left := b.emit(keys, root, weight, i, k)
	right := b.emit(keys, root, weight, k+1, j)
	b.out[first].Left, b.out[first].Right = left, right
	return Child(first)
}
