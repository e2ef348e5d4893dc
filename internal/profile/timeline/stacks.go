package timeline

import (
	"fmt"

	"github.com/ehasm/ehasm/internal/frame"
)

// node is a function at a place: a frame, or a function inlined into it. It is a key of maps: two frames with equal
// nodes are one row.
type node struct {
	name     string       // as shown; unnamed for functions without a name
	library  string       // path of the object; "": none
	buildID  string       // raw bytes
	source   frame.Source // file and line of the place; empty: not known
	address  uint64       // as perf prints it
	category int
	depth    int // 0: not inlined
}

// Categories, as numbers of categories().
const (
	other = iota
	user
	kernel
	jit
	guessedCaller
	offCPU
)

// category is a colour with a name.
type category struct {
	Name          string   `json:"name"`
	Color         string   `json:"color"`
	Subcategories []string `json:"subcategories"`
}

// categories returns the categories in the order of their numbers.
func categories() []category {
	only := []string{"Other"}
	return []category{{"Other", "grey", only}, {"User", "yellow", only}, {"Kernel", "orange", only},
		{"Compiled at run time", "blue", only}, {"Guessed", "lightred", only}, {"Off-CPU", "green", only}}
}

// kind is how a frame belongs to a sample.
type kind int

const (
	certain kind = iota
	guess        // found by the frame pointer
	blocked      // of a thread that is off the processor
	kinds
)

// categoryOf returns the category of a frame: how it was found matters more than where it lies.
func categoryOf(f *frame.Frame, k kind) int {
	switch {
	case k == blocked:
		return offCPU
	case k == guess:
		return guessedCaller
	case f.Kernel:
		return kernel
	case f.JIT:
		return jit
	}
	return user
}

// unnamed returns the name to show for a function without one.
func unnamed(f *frame.Frame) string { return fmt.Sprintf("0x%x", f.IP) }

// stacks numbers nodes and stacks. A stack is a node and the number of its caller's stack, which is smaller: the tree
// of all calls takes one entry for each distinct stack, however many samples have it. It is for one goroutine.
type stacks struct {
	nodes   []node // nodes without repetition, and the number of each
	nodeIDs map[node]int32
	list    []call // stacks without repetition, and the number of each
	numbers map[call]int32
}

// call is a stack: a node, and the stack that calls it.
type call struct {
	caller int32 // a stack; -1: none
	node   int32
}

// newStacks returns empty tables.
func newStacks() *stacks {
	return &stacks{nodeIDs: make(map[node]int32), numbers: make(map[call]int32)}
}

// node returns the number of a node, a new one if need be.
func (s *stacks) node(n node) int32 {
	i, ok := s.nodeIDs[n]
	if !ok {
		i = int32(len(s.nodes))
		s.nodes = append(s.nodes, n)
		s.nodeIDs[n] = i
	}
	return i
}

// push returns the stack of a node on a caller.
func (s *stacks) push(caller, node int32) int32 {
	key := call{caller, node}
	i, ok := s.numbers[key]
	if !ok {
		i = int32(len(s.list))
		s.list = append(s.list, key)
		s.numbers[key] = i
	}
	return i
}

// merge adds the stacks of another and returns their numbers here.
func (s *stacks) merge(from *stacks) []int32 {
	nodes := make([]int32, len(from.nodes))
	for i, n := range from.nodes {
		nodes[i] = s.node(n)
	}
	numbers := make([]int32, len(from.list))
	// Callers come first, so their new numbers are known.
	for i, c := range from.list {
		caller := c.caller
		if caller >= 0 {
			caller = numbers[caller]
		}
		numbers[i] = s.push(caller, nodes[c.node])
	}
	return numbers
}
