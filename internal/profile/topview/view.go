package topview

import (
	"cmp"
	"slices"
	"strings"
)

// Frame is a function and the file that holds it.
type Frame struct{ Name, Library string }

// Stack is a call stack with its weight, the number of its samples.
type Stack struct {
	Frames []Frame // outermost first
	Value  uint64  // in samples
}

// Mode says what is shown.
type Mode int

// The modes.
const (
	Functions Mode = iota
	Tree
)

// function is a line of the list of functions.
type function struct {
	Frame
	self, total uint64 // of the samples in it, and of those whose stacks contain it
}

// node is a frame with those it called; in a tree of callers, with those that call it.
type node struct {
	Frame
	total    uint64
	children []*node // by total, descending
}

// line is a line of the tree as it is shown.
type line struct {
	node  *node
	depth int
	path  string // names from the outermost frame on, which stay the same from one second to the next
}

// View is the content and the user's position in it. It may be used by one goroutine at
// a time; the zero value is ready to use.
type View struct {
	Title string // of the first line
	Mode  Mode
	Total bool // functions are ordered by total

	paused    bool
	stacks    []Stack
	search    string          // what functions have in their names, or some function of each stack of the tree
	typing    bool            // the search
	of        *Frame          // the tree is of the callers of this function; nil: of all stacks
	functions []function      // ordered as Total says
	root      node            // without a name; its children are the outermost frames, or the function of the callers
	sum       uint64          // weight of all stacks
	closed    map[string]bool // paths of the tree below which nothing is shown
	cursor    int             // line of the list, from 0
	top       int             // first line that is shown
}

// Set replaces the stacks, which it keeps: a search or another order works on them until the next. The cursor stays at
// its line, not at its function: what is at the top is of interest.
func (v *View) Set(stacks []Stack) {
	v.stacks, v.sum, v.root = stacks, 0, node{}
	all := make(map[Frame]*function)
	seen := make(map[Frame]int) // the last stack that it was met in
	for i, s := range stacks {
		v.sum += s.Value
		for k, frame := range s.Frames {
			f := all[frame]
			if f == nil {
				f = &function{Frame: frame}
				all[frame] = f
			}
			if last, met := seen[frame]; !met || last != i { // a function that calls itself counts once
				seen[frame] = i
				f.total += s.Value
			}
			if k == len(s.Frames)-1 {
				f.self += s.Value
			}
		}
		// The same path leads to the same node: children are looked up by name.
		inner := &v.root
		for _, frame := range v.path(s.Frames) {
			inner = inner.child(frame)
			inner.total += s.Value
		}
	}
	v.functions = v.functions[:0]
	for _, f := range all {
		if v.found(f.Frame) {
			v.functions = append(v.functions, *f)
		}
	}
	v.sort()
	v.root.sort()
}

// path returns the frames of a stack as the tree has them; nil: it does not. The tree of callers is turned round: the
// function first, then its callers, from the innermost of its calls on.
func (v *View) path(frames []Frame) []Frame {
	if v.of != nil {
		for i := range slices.Backward(frames) {
			if frames[i] == *v.of {
				path := slices.Clone(frames[:i+1])
				slices.Reverse(path)
				return path
			}
		}
		return nil
	}
	if !slices.ContainsFunc(frames, v.found) {
		return nil
	}
	return frames
}

// found reports whether a function is searched for: a search without capital letters finds both cases, as in less -i.
func (v *View) found(f Frame) bool {
	if v.search == strings.ToLower(v.search) {
		f.Name, f.Library = strings.ToLower(f.Name), strings.ToLower(f.Library)
	}
	return strings.Contains(f.Name, v.search) || strings.Contains(f.Library, v.search)
}

// child returns the callee, or the caller, which it adds if it is missing. Functions have few callees, so a list is
// searched.
func (n *node) child(f Frame) *node {
	for _, c := range n.children {
		if c.Frame == f {
			return c
		}
	}
	c := &node{Frame: f}
	n.children = append(n.children, c)
	return c
}

// sort orders the callees at all levels, the heaviest first, those of equal weight by name.
func (n *node) sort() {
	slices.SortFunc(n.children, func(a, b *node) int {
		return cmp.Or(cmp.Compare(b.total, a.total),
			compare(a.Frame, b.Frame))
	})
	for _, c := range n.children {
		c.sort()
	}
}

// sort orders the functions by self, or by total, the heaviest first; equal ones by name, so that
// they keep their places from one second to the next.
func (v *View) sort() {
	slices.SortFunc(v.functions, func(a, b function) int {
		x, y := a, b
		if v.Total {
			x.self, x.total, y.self, y.total = x.total, x.self, y.total, y.self // the same comparison with both swapped
		}
		return cmp.Or(cmp.Compare(y.self, x.self), cmp.Compare(y.total, x.total), compare(x.Frame, y.Frame))
	})
}

// compare orders by name, then by library.
func compare(a, b Frame) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Library, b.Library))
}

// least is the threshold for branches of the tree: below 1/least of all samples, half a percent, they are not shown. A
// screen has some 50 lines.
const least = 200

// lines returns the visible lines of the tree, in preorder. They are made for each drawing: what is folded and what is
// heavy changes.
func (v *View) lines() (list []line) {
	var add func(n *node, depth int, path string)
	add = func(n *node, depth int, path string) {
		for _, c := range n.children {
			if c.total*least < v.sum {
				continue
			}
			p := path + "\n" + c.Name
			list = append(list, line{c, depth, p})
			if !v.closed[p] {
				// A frame with a single child has it at the same depth, so that deep stacks stay
				// visible.
				next := depth
				if len(n.children) > 1 || depth == 0 {
					next++
				}
				add(c, next, p)
			}
		}
	}
	add(&v.root, 0, "")
	return list
}

// count returns the number of lines.
func (v *View) count() int {
	if v.Mode == Tree {
		return len(v.lines())
	}
	return len(v.functions)
}

// Next shows the other mode.
func (v *View) Next() { v.show(Tree-v.Mode, nil) }

// show shows a mode; the tree is of a function's callers unless that is nil.
func (v *View) show(mode Mode, of *Frame) {
	v.Mode, v.of, v.cursor, v.top = mode, of, 0, 0
	v.Set(v.stacks)
}

// order switches the order of functions.
func (v *View) order() {
	v.Total = !v.Total
	v.sort()
}

// move moves the cursor by n lines.
func (v *View) move(by int) { v.cursor = max(0, min(v.cursor+by, v.count()-1)) }

// enter shows the callers of the function at the cursor, or hides or shows what is below it in the tree.
func (v *View) enter() {
	if v.cursor >= v.count() {
		return
	}
	if v.Mode == Functions {
		of := v.functions[v.cursor].Frame
		v.show(Tree, &of)
		return
	}
	if v.closed == nil {
		v.closed = make(map[string]bool)
	}
	path := v.lines()[v.cursor].path
	v.closed[path] = !v.closed[path]
}
