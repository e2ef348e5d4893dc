package script

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ehasm/ehasm/internal/srcline"
	"github.com/ehasm/ehasm/unwind"
)

// source is a place in the source; a file of "" is not known.
type source struct {
	file string
	line int
}

// inlined is a function that is inlined at a frame's address.
type inlined struct {
	name string
	source
}

// debugInfo is an object's, with the file that it is read from.
type debugInfo struct {
	*srcline.Object
	file unwind.Image
}

// locate adds to a frame what is inlined there, innermost first, and the lines.
// addr is a link-time address.
func (n *namer) locate(f *frame, o *unwind.Object, addr uint64) {
	if !n.opt.Inline && !n.opt.Lines {
		return
	}
	info := n.debugInfo(o)
	if info == nil {
		return
	}
	chain := info.Lookup(addr, srcline.Want{Inline: n.opt.Inline, Lines: n.opt.Lines})
	for i, c := range chain {
		place := source{c.File, c.Line}
		if i < len(chain)-1 {
			f.inner = append(f.inner, inlined{n.demangle(c.Func), place})
			continue
		}
		f.source = place
		if f.name == "" {
			f.name = n.demangle(c.Func) // an object without symbol table
		}
	}
}

// foreseePlaces looks the addresses of a batch up in the background, each object's on its
// own: the workers all come to the same object first.
func (n *namer) foreseePlaces(b *batch) {
	if !n.opt.Inline && !n.opt.Lines {
		return
	}
	addrs := make(map[*unwind.Object]map[uint64]bool)
	for i := range b.samples {
		s := &b.samples[i]
		for k, pc := range s.walked.pcs {
			if k > 0 {
				pc--
			}
			m := s.maps.Find(pc)
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
	if len(addrs) < 2 {
		return
	}
	for o, list := range addrs {
		n.background.Go(func() {
			info := n.debugInfo(o)
			if info == nil {
				return
			}
			for addr := range list {
				info.Lookup(addr, srcline.Want{Inline: n.opt.Inline, Lines: n.opt.Lines})
			}
		})
	}
}

// debugInfo opens an object's, nil where it has none. Its file stays open up to
// closeDebugInfo.
func (n *namer) debugInfo(o *unwind.Object) *debugInfo {
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
			return nil // the object's own error says it
		}
		info, err := srcline.Open(file, srcline.Options{
			Path: o.Path(), DebugPaths: o.DebugPaths(), DebugDirs: n.opt.Objects.DebugDirs,
		})
		if err != nil {
			file.Close()
			if !errors.Is(err, srcline.ErrNone) {
				n.warn(fmt.Errorf("%s: %w", o.Name, err))
			}
			return nil
		}
		return &debugInfo{info, file}
	})
}

// closeDebugInfo warns of what could not be read of it, and closes it.
func (n *namer) closeDebugInfo() {
	for o, e := range n.debug {
		if e.value == nil {
			continue
		}
		if err := e.value.Err(); err != nil {
			n.warn(fmt.Errorf("%s: %w", o.Name, err))
		}
		e.value.Close()
		e.value.file.Close()
	}
}

// appendSource writes a place as perf script does with the field srcline.
func (run *runner) appendSource(b []byte, s source) []byte {
	if s.file == "" {
		return b
	}
	if !run.opt.FullSourcePath {
		s.file = filepath.Base(s.file)
	}
	return fmt.Appendf(b, "  %s:%d\n", s.file, s.line)
}
