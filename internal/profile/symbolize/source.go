package symbolize

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/ehasm/ehasm/internal/debuginfo/srcline"
	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/unwind"
)

// debugInfo is an object's debug information, with the file that it is read from. Parts are read on demand, so the
// file may change in between: a build may replace it while it is recorded.
type debugInfo struct {
	*srcline.Info
	file    unwind.Image
	stat    os.FileInfo // when it was opened; nil: it is no file
	changed atomic.Bool // the file was written to since; then nothing more is read
}

// lookup is Lookup, but finds nothing once the file has been written to: what is read then may be of other code.
func (d *debugInfo) lookup(addr uint64, want srcline.Want) []srcline.Frame {
	if f, ok := d.file.(*os.File); ok && d.stat != nil {
		if st, err := f.Stat(); err != nil || !input.Same(st, d.stat) {
			d.changed.Store(true)
		}
	}
	if d.changed.Load() {
		return nil
	}
	return d.Lookup(addr, want)
}

// places reports whether debug information is wanted.
func (o *Options) places() bool { return o.Inline || o.Lines || o.Signatures }

// want returns what lookups in debug information are asked for.
func (o *Options) want() srcline.Want {
	return srcline.Want{Inline: o.Inline, Lines: o.Lines, Parameters: o.Signatures}
}

// locate adds the inlined functions, innermost first, and the lines to a frame. addr is a link-time address, of a
// return address the one before: the line is then the call's.
func (n *Namer) locate(f *frame.Frame, o *unwind.Object, addr uint64) {
	if !n.opt.places() {
		return
	}
	info := n.debugInfo(o)
	if info == nil {
		return
	}
	// The last of the chain is the function itself, the others were inlined into it, the innermost
	// first.
	chain := info.lookup(addr, n.opt.want())
	for i, c := range chain {
		place := frame.Source{File: c.File, Line: c.Line}
		if i < len(chain)-1 {
			f.Inlined = append(f.Inlined, frame.Inlined{Name: n.demangle(c.Func),
				Parameters: cmp.Or(c.Parameters, n.mangledParameters(c.Func)), Source: place})
			continue
		}
		f.Source, f.Parameters = place, c.Parameters
		if f.Name == "" {
			f.Name = n.demangle(c.Func) // an object without symbol table
		}
	}
}

// Stack is the result of a walk over a process's stack: pcs as unwind.Walker.Walk
// returns them.
type Stack struct {
	Maps *unwind.Maps
	PCs  []uint64
}

// ForeseePlaces looks up the addresses of stacks in the background, each object's in its own
// goroutine: the workers that print stacks would all start with the same object, and wait for one
// another.
func (n *Namer) ForeseePlaces(stacks []Stack) {
	if !n.opt.places() {
		return
	}
	addrs := make(map[*unwind.Object]map[uint64]bool)
	for _, s := range stacks {
		for k, pc := range s.PCs {
			// As if each but the first were a return address. After a signal frame it is not: then
			// a place is looked up that is not needed, and the right one is looked up later.
			if k > 0 {
				pc--
			}
			m := s.Maps.Find(pc)
			if m == nil || !m.Object.IsFile() {
				continue
			}
			if bias, ok := m.Object.Bias(m); ok {
				if addrs[m.Object] == nil {
					addrs[m.Object] = make(map[uint64]bool)
				}
				addrs[m.Object][pc-bias] = true
			}
		}
	}
	if len(addrs) < 2 { // a single object would gain nothing
		return
	}
	for o, list := range addrs {
		n.background.Go(func() {
			info := n.debugInfo(o)
			if info == nil {
				return
			}
			for addr := range list {
				info.lookup(addr, n.opt.want())
			}
		})
	}
}

// debugInfo opens an object's debug information at the first call, and returns nil if there is
// none. Its file stays open until closeDebugInfo.
func (n *Namer) debugInfo(o *unwind.Object) *debugInfo {
	n.mu.Lock()
	e := n.debug[o]
	if e == nil {
		e = new(once[*debugInfo])
		n.debug[o] = e
	}
	n.mu.Unlock()
	return e.get(func() *debugInfo {
		file, _, err := o.Open()
		if err != nil {
			if errors.Is(err, unwind.ErrChanged) {
				n.warn(fmt.Errorf("debug information: %w", err))
			}
			return nil // else the object's own error says it
		}
		opt := srcline.Options{Path: o.Path(), DebugPaths: o.DebugPaths(), DebugDirs: n.opt.DebugDirs}
		info, err := srcline.Open(file, opt)
		// The server is asked only if no local file has debug information.
		if errors.Is(err, srcline.ErrNone) {
			if path := n.fetch(o); path != "" {
				opt.DebugPaths = []string{path}
				info, err = srcline.Open(file, opt)
			}
		}
		if err != nil {
			file.Close()
			if !errors.Is(err, srcline.ErrNone) {
				n.warn(fmt.Errorf("%s: %w", o.Name, err))
			}
			return nil
		}
		d := &debugInfo{Info: info, file: file}
		if f, ok := file.(*os.File); ok {
			d.stat, _ = f.Stat() // without it, changes go unnoticed
		}
		return d
	})
}

// closeDebugInfo closes the debug information of all objects, and warns of parts that could not be
// read.
func (n *Namer) closeDebugInfo() {
	for o, e := range n.debug {
		if e.value == nil {
			continue
		}
		if err := e.value.Err(); err != nil {
			n.warn(fmt.Errorf("%s: %w", o.Name, err))
		}
		if e.value.changed.Load() {
			n.warn(fmt.Errorf("debug information: %s: %w", o.Name, unwind.ErrChanged))
		}
		e.value.Close()
		e.value.file.Close()
	}
}
