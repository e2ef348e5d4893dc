package topview

import (
	"cmp"
	"slices"
)

// Stack is a call stack with its weight, the number of its samples.
type Stack struct {
	Frames []string // outermost first
	Value  uint64   // in samples
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
	name        string
	self, total uint64 // of the samples in it, and of those whose stacks contain it
}

// node is a frame with those it called.
type node struct {
	name     string
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

	functions []function      // ordered as Total says
	root      node            // without a name; its children are the outermost frames
	sum       uint64          // weight of all stacks
	closed    map[string]bool // paths of the tree below which nothing is shown
	cursor    int             // line of the list, from 0
	top       int             // first line that is shown
}

// Set replaces the stacks.
func (v *View) Set(stacks []Stack) {
	v.sum, v.root = 0, node{}
	all := make(map[string]*function)
	seen := make(map[string]int) // by name, the last stack that it was met in
	for i, s := range stacks {
		v.sum += s.Value
		at := &v.root
		for k, name := range s.Frames {
			f := all[name]
			if f == nil {
				f = &function{name: name}
				all[name] = f
			}
			if last, met := seen[name]; !met || last != i { // a function that calls itself counts once
				seen[name] = i
				f.total += s.Value
			}
			if k == len(s.Frames)-1 {
				f.self += s.Value
			}
			// The same path of callers leads to the same node: children are looked up by name.
			at = at.child(name)
			at.total += s.Value
		}
	}
	v.functions = v.functions[:0]
	for _, f := range all {
		v.functions = append(v.functions, *f)
	}
	v.sort()
	v.root.sort()
}

// child returns the callee of this name, which it adds if it is missing.
func (n *node) child(name string) *node {
	for _, c := range n.children {
		if c.name == name {
			return c
		}
	}
	c := &node{name: name}
	n.children = append(n.children, c)
	return c
}

// sort orders the callees at all levels, the heaviest first, those of equal weight by name.
func (n *node) sort() {
	slices.SortFunc(n.children, func(a, b *node) int { return cmp.Or(cmp.Compare(b.total, a.total), cmp.Compare(a.name, b.name)) })
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
		return cmp.Or(cmp.Compare(y.self, x.self), cmp.Compare(y.total, x.total), cmp.Compare(x.name, y.name))
	})
}

// least is the threshold for branches of the tree: below 1/least of all samples they are
// not shown.
const least = 200

// lines returns the visible lines of the tree.
func (v *View) lines() (list []line) {
	var add func(n *node, depth int, path string)
	add = func(n *node, depth int, path string) {
		for _, c := range n.children {
			if c.total*least < v.sum {
				continue
			}
			p := path + "\n" + c.name
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
func (v *View) Next() {
	v.Mode = Tree - v.Mode
	v.cursor, v.top = 0, 0
}

// order switches the order of functions.
func (v *View) order() {
	v.Total = !v.Total
	v.sort()
}

// move moves the cursor by so many lines.
func (v *View) move(by int) { v.cursor = max(0, min(v.cursor+by, v.count()-1)) }

// fold hides or shows what is below the cursor in the tree.
func (v *View) fold() {
	if v.Mode != Tree {
		return
	}
	list := v.lines()
	if v.cursor >= len(list) {
		return
	}
	if v.closed == nil {
		v.closed = make(map[string]bool)
	}
	path := list[v.cursor].path
	v.closed[path] = !v.closed[path]
}
