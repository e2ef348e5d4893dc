//go:build linux && amd64

package record

import (
	"hash/maphash"
	"slices"
	"unsafe"

	"github.com/ehasm/ehasm/unwind"
)

// Frame is a place in the code of the kernel, of an object, or of memory without a
// file.
type Frame struct {
	Mapping unwind.Mapping // one of those that PC was met in; no Object: nothing was mapped
	PC      uint64         // run-time; of user code as it stands in the frame
	PID     int32          // of memory that is of no file; else 0
	Kernel  bool
	Guessed bool // found by the frame pointer
}

// frameKey identifies equal frames.
type frameKey struct {
	object *unwind.Object
	addr   uint64 // in the file, or if there is none, in the process
	pid    int32
	kernel bool
	guess  bool
}

// node is a frame with those that called it.
type node struct {
	parent uint32 // 0: none
	frame  uint32
}

// Origin says how a stack was found.
type Origin uint8

// The bits of Origin.
const (
	fromLater Origin = 1 << iota // the outer part of the stack was read later
	noCopy                       // the kernel could not copy the stack: the program was in execve or exiting
	is32                         // 32-bit code, which is not unwound
)

// Stack is a distinct stack of a process, and how often it was met.
type Stack struct {
	node   uint32
	Comm   uint32 // index of Profile.Comms
	Labels uint32 // index of Profile.Labels, if there are any
	PID    int32
	End    unwind.Cause // why the user part ends; stackfmt.NoUserStack: there is none
	Origin Origin
	Event  uint8 // place in Options.Event, Options.More
	Count  uint64
	Period uint64 // sum over the samples, in the event's unit
}

// Table holds distinct stacks. A stack is stored as its innermost frame's node; stacks,
// also of different processes, share their callers.
type Table struct {
	Stacks []Stack

	frames   []Frame
	frameIDs map[frameKey]uint32
	nodes    []node
	children map[node]uint32
	index    map[hash]uint32 // of Stacks
	seeds    [2]maphash.Seed
	packed   *packed // has the stacks and nodes; nil: not packed
}

// comms numbers names of threads. The zero value is empty.
type comms struct {
	names []string
	ids   map[string]uint32
}

// id returns the number of a name.
func (c *comms) id(name string) uint32 {
	id, ok := c.ids[name]
	if !ok {
		if c.ids == nil {
			c.ids = make(map[string]uint32)
		}
		id = uint32(len(c.names))
		c.names = append(c.names, name)
		c.ids[name] = id
	}
	return id
}

// hash is a 128-bit hash that stands for a stack without comparing the stack itself. The
// seeds are random, so that no program can choose its stacks to collide.
type hash [2]uint64

// newTable returns an empty table.
func newTable() *Table {
	return &Table{frameIDs: make(map[frameKey]uint32), children: make(map[node]uint32),
		index: make(map[hash]uint32), nodes: make([]node, 1), seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

// after returns an empty table for what comes after this one. They share frames, unless there are very many, of which
// most may be those of programs that have ended.
func (t *Table) after() *Table {
	const many = 1 << 15
	next := newTable()
	if len(t.frames) < many {
		next.frames, next.frameIDs = t.frames, t.frameIDs
	}
	return next
}

// hash returns the hash of a stack, which words distinguish from all others.
func (t *Table) hash(words []uint64) hash {
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
	return hash{maphash.Bytes(t.seeds[0], b), maphash.Bytes(t.seeds[1], b)}
}

// count counts a stack that has been inserted.
func (t *Table) count(id uint32, period uint64) {
	t.Stacks[id].Count++
	t.Stacks[id].Period += period
}

// insert adds a stack that has not been counted yet: the addresses of its kernel and user
// parts, innermost first. guesses says
// which of user were found by the frame pointer.
func (t *Table) insert(h hash, s Stack, maps *unwind.Maps, kernel, user []uint64, guesses []int) uint32 {
	node := uint32(0)
	for i := len(user) - 1; i >= 0; i-- {
		node = t.child(node, t.userFrame(maps, s.PID, user[i], i > 0, slices.Contains(guesses, i)))
	}
	for i := len(kernel) - 1; i >= 0; i-- {
		node = t.child(node, t.frame(frameKey{addr: kernel[i], kernel: true}, Frame{PC: kernel[i], Kernel: true}))
	}
	s.node = node
	id := uint32(len(t.Stacks))
	t.Stacks = append(t.Stacks, s)
	t.index[h] = id
	return id
}

func (t *Table) child(parent, frame uint32) uint32 {
	n := node{parent, frame}
	id, ok := t.children[n]
	if !ok {
		id = uint32(len(t.nodes))
		t.nodes = append(t.nodes, n)
		t.children[n] = id
	}
	return id
}

// userFrame returns the frame of a pc. A return address belongs to the instruction before it,
// which may be the last of its mapping.
func (t *Table) userFrame(maps *unwind.Maps, pid int32, pc uint64, returns, guess bool) uint32 {
	addr := pc
	if returns {
		addr--
	}
	m := maps.Find(addr)
	if m == nil {
		return t.frame(frameKey{addr: pc, pid: pid, guess: guess}, Frame{PC: pc, PID: pid, Guessed: guess})
	}
	f := Frame{Mapping: *m, PC: pc, Guessed: guess}
	k := frameKey{object: m.Object, addr: m.FileOffset(pc), guess: guess}
	if m.Object.IsAnonymous() {
		f.PID, k.addr, k.pid = pid, pc, pid
	}
	return t.frame(k, f)
}

func (t *Table) frame(k frameKey, f Frame) uint32 {
	id, ok := t.frameIDs[k]
	if !ok {
		id = uint32(len(t.frames))
		t.frames = append(t.frames, f)
		t.frameIDs[k] = id
	}
	return id
}

// Frames appends the frames of a stack, innermost first.
func (t *Table) Frames(list []*Frame, s *Stack) []*Frame {
	for node := s.node; node != 0; node = t.nodes[node].parent {
		list = append(list, &t.frames[t.nodes[node].frame])
	}
	return list
}
