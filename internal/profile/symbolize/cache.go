package symbolize

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/unwind"
)

// This file is what callers use: a Cache for each goroutine, which asks the Namer they share once a place. Frames are
// compared by pointer further on, so one place must be one frame.

// Cache keeps the frames of one goroutine, each named and rendered once.
type Cache struct {
	names  *Namer
	render func(*frame.Frame) // called once for each new frame
	frames map[frameKey]*entry
	kernel map[kernelKey]*frame.Frame
	places map[string]*frame.Frame // of KernelPlace
	learnt *unwind.Maps            // whose jitdump files are known; nil: none
}

// entry is a frame of user code.
type entry struct {
	*frame.Frame
	signal bool   // its caller was interrupted, it did not call
	hits   uint64 // lookups of the frame
}

// frameKey identifies equal frames: an address in an object's file, or without
// a file, an address of a process.
type frameKey struct {
	object *unwind.Object // nil: nothing is mapped there
	addr   uint64         // offset in the file; run-time address where pid is set, or without an object
	pid    int32          // of code that lies in no file; else 0
}

// NewCache returns an empty Cache. render, which may be nil, is called once for
// each new frame: see stackfmt.Worker.
func (n *Namer) NewCache(render func(*frame.Frame)) *Cache {
	if render == nil {
		render = func(*frame.Frame) {}
	}
	return &Cache{names: n, render: render, frames: make(map[frameKey]*entry), kernel: make(map[kernelKey]*frame.Frame),
		places: make(map[string]*frame.Frame)}
}

// Stack appends the frames of pcs, which are as unwind.Walker.Walk returns them:
// those after the first are return addresses, except after a signal frame.
func (c *Cache) Stack(list []*frame.Frame, maps *unwind.Maps, pid int32, pcs []uint64) []*frame.Frame {
	exact := true // the pc is the instruction itself, not the one after a call
	for _, pc := range pcs {
		var f *frame.Frame
		if exact {
			f, exact = c.Frame(maps.Find(pc), pid, pc)
		} else {
			f, exact = c.Caller(maps.Find(pc-1), pid, pc)
		}
		list = append(list, f)
	}
	return list
}

// Backtrace returns the frames of pcs, which are as for Stack, of a process of which no record tells what it has
// mapped.
func (c *Cache) Backtrace(maps *unwind.Maps, pid int32, pcs []uint64) []*frame.Frame {
	if places := c.names.opt.Places; places != nil && c.learnt != maps {
		places.Learn(pid, maps)
		c.learnt = maps
	}
	return c.Stack(make([]*frame.Frame, 0, len(pcs)), maps, pid, pcs)
}

// User returns the frame of the instruction at a run-time address.
func (c *Cache) User(maps *unwind.Maps, pid int32, pc uint64) *frame.Frame {
	f, _ := c.Frame(maps.Find(pc), pid, pc)
	return f
}

// Frame returns the frame of the instruction at a run-time address that m holds; m is nil
// if nothing is mapped. signal reports whether it is a signal frame, so that the pc of its
// caller is not a return address.
func (c *Cache) Frame(m *unwind.Mapping, pid int32, pc uint64) (f *frame.Frame, signal bool) {
	e := c.mapped(m, pid, pc)
	e.hits++
	return e.Frame, e.signal
}

// Caller is Frame for a return address, which belongs to the instruction before it; m holds that. A function that is
// only returned to, such as the one that a signal handler returns to, has no instruction before its first: if the byte
// before has no name, and the address itself begins a function, it is that one.
func (c *Cache) Caller(m *unwind.Mapping, pid int32, pc uint64) (f *frame.Frame, signal bool) {
	e := c.mapped(m, pid, pc-1)
	if m != nil && pc < m.End && (e.Name == "" || e.NoSymbol && e.Offset == 0) {
		if first := c.mapped(m, pid, pc); first.Name != "" && !first.NoSymbol && first.Offset == 0 {
			first.hits++
			return first.Frame, e.signal
		}
	}
	e.hits++
	return e.Frame, e.signal
}

// mapped returns the cache entry of the instruction at a run-time address, which m holds. Processes
// share the frames of files and of the vDSO, whose code is the same in all; other code is known by
// address and process.
func (c *Cache) mapped(m *unwind.Mapping, pid int32, pc uint64) *entry {
	key := frameKey{addr: pc}
	if m != nil {
		key.object = m.Object
		if m.Object.IsAnonymous() {
			key.pid = pid
		} else {
			key.addr = m.FileOffset(pc)
		}
	}
	e := c.frames[key]
	if e == nil {
		e = new(entry)
		e.Frame, e.signal = c.names.user(m, key, pc)
		c.render(e.Frame)
		c.frames[key] = e
	}
	return e
}

// kernelKey identifies equal frames of the kernel.
type kernelKey struct {
	ip   uint64
	made *symbols.Symbol
}

// Kernel returns the frame of an address of the kernel; made is the symbol of code that was made at run time, or nil.
func (c *Cache) Kernel(ip uint64, made *symbols.Symbol) *frame.Frame {
	key := kernelKey{ip, made}
	f := c.kernel[key]
	if f == nil {
		f = c.names.kernel(ip, made)
		c.render(f)
		c.kernel[key] = f
	}
	return f
}

// KernelPlace returns the frame of a place in the kernel that the kernel has named, as "name+0x12".
func (c *Cache) KernelPlace(place string) *frame.Frame {
	f := c.places[place]
	if f == nil {
		name, offset, _ := strings.Cut(place, "+")
		f = &frame.Frame{Name: name, Kernel: true, DSO: KernelMapName}
		f.Offset, _ = strconv.ParseUint(offset, 0, 64) // 0: the kernel gives none
		c.render(f)
		c.places[place] = f
	}
	return f
}

// LeftOut returns a frame that stands for n that are left out. It is in no object.
func (c *Cache) LeftOut(frames int) *frame.Frame {
	f := &frame.Frame{Name: fmt.Sprintf("[%d frames left out]", frames)}
	c.render(f)
	return f
}

// Hits counts lookups of an object's frames; those without a symbol are Unnamed.
type Hits struct{ All, Unnamed uint64 }

// Hits adds the lookups of each object to counts.
func (c *Cache) Hits(counts map[*unwind.Object]Hits) {
	for _, e := range c.frames {
		if e.Object == nil {
			continue
		}
		h := counts[e.Object]
		h.All += e.hits
		if e.Name == "" || e.NoSymbol {
			h.Unnamed += e.hits
		}
		counts[e.Object] = h
	}
}

// Close adds the lookups to those of the Namer: see Nameless.
func (c *Cache) Close() {
	c.names.mu.Lock()
	defer c.names.mu.Unlock()
	if c.names.hits == nil {
		c.names.hits = make(map[*unwind.Object]Hits)
	}
	c.Hits(c.names.hits)
}

// once holds a value made at the first call.
type once[T any] struct {
	sync.Once
	value T
}

// get returns the value, which the first call makes with fill. Other goroutines wait meanwhile.
func (o *once[T]) get(fill func() T) T {
	o.Do(func() { o.value = fill() })
	return o.value
}
