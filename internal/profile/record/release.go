//go:build linux && amd64

package record

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ehasm/ehasm/unwind"

	"golang.org/x/sys/unix"
)

// What is known of a file takes memory: rows, code, symbols. It is released once no process has had the file mapped
// for a while. What the profile needs stays: the object's name and build-id, and the symbols that were met.

// Releases look at all mappings. They come at these intervals, or after this multiple of what one took.
const (
	releaseEvery = 500 * time.Millisecond
	releaseParts = 100
)

// An object is released so long after it was last mapped, as it may be executed again, or if this number of others,
// with this number of bytes of their files, are waiting for that. What is not on the root file system is released
// early: a file that is kept open keeps others from unmounting its file system.
const (
	idleTime      = time.Minute
	idleTimeOther = 4 * time.Second
	mostIdle      = 256
	mostIdleBytes = 512 << 20
)

// manyReleased is after how many releases the objects themselves are forgotten. If one of them is mapped again then, it
// counts as another.
const manyReleased = 1024

// release frees unused objects.
func (s *Session) release(now time.Time) {
	t := s.tracker
	if now.Before(s.releaseAt) {
		return
	}
	t.bury()
	list := t.files.idle(now, t.mappedNow())
	if len(list) > 0 {
		is := make(map[*unwind.Object]bool)
		for _, o := range list {
			is[o] = true
		}
		s.stacks.release(func(o *unwind.Object) bool { return is[o] })
		s.part.table.metIn(is, t.files.frameAddrs)
		for _, o := range list {
			s.releaseOne(o)
		}
		if t.files.released += len(list); t.files.released >= manyReleased {
			t.files.forget(t.mappedNow())
		}
	}
	s.releaseAt = now.Add(max(releaseEvery, releaseParts*time.Since(now)))
}

// Rest frees what unwinding needs, before a large profile is written. Nothing may be recorded after it.
func (s *Session) Rest() {
	t := s.tracker
	s.stacks.release(func(*unwind.Object) bool { return true })
	s.part.table.metIn(nil, t.files.frameAddrs)
	for _, o := range t.files.Known {
		if o.Needed() {
			o.Release(t.files.frameAddrs[o])
		}
	}
	s.part.table = newTable()
}

func (s *Session) releaseOne(o *unwind.Object) {
	t := s.tracker
	met := t.files.frameAddrs[o]
	slices.Sort(met)
	met = slices.Compact(met)
	t.files.frameAddrs[o] = met
	named := len(met) > 0 && o.Needed()
	if o.Needed() {
		o.Release(met)
		s.part.counts.Released++
	}
	done := func() {}
	if f := t.files.Open[o]; f != nil && (!named || s.opt.Left != nil) {
		t.files.dropFile(o)
		done = func() {
			o.Leave()
			f.Close()
		}
	}
	if named && s.opt.Left != nil {
		s.opt.Left(o, slices.Clone(met), done)
	} else {
		done()
	}
}

// metIn adds the link-time addresses that were met in some objects, or in all if which is nil, and those before, which
// callers are looked up at.
func (t *Table) metIn(which map[*unwind.Object]bool, met map[*unwind.Object][]uint64) {
	for i := range t.frames {
		m := &t.frames[i].Mapping
		if m.Object == nil || !m.Object.IsFile() || which != nil && !which[m.Object] {
			continue
		}
		if bias, ok := m.Object.Bias(m); ok {
			addr := t.frames[i].PC - bias
			met[m.Object] = append(met[m.Object], addr-1, addr)
		}
	}
}

// idle returns the objects of which something is kept, and that are not mapped any more.
func (fs *mappedFiles) idle(now time.Time, mapped map[*unwind.Object]bool) (list []*unwind.Object) {
	since := make(map[*unwind.Object]time.Time)
	for _, o := range fs.Known {
		if mapped[o] || isDump(o) || !o.Needed() && fs.Open[o] == nil {
			continue
		}
		if when, ok := fs.unmapped[o]; ok {
			since[o] = when
			list = append(list, o)
		} else {
			since[o] = now
		}
	}
	fs.unmapped = since
	slices.SortFunc(list, func(a, b *unwind.Object) int { return since[b].Compare(since[a]) })
	room := idleRoom{mostIdle, mostIdleBytes}
	return slices.DeleteFunc(list, func(o *unwind.Object) bool {
		limit, size := fs.idleTime(o)
		return now.Sub(since[o]) < limit && room.take(size)
	})
}

// idleRoom is how many objects, and bytes of their files, may still wait to be released.
type idleRoom struct {
	objects int
	bytes   int64
}

// take makes the room smaller by an object. It reports false if there is not as much.
func (r *idleRoom) take(bytes int64) bool {
	if r.objects == 0 || bytes > r.bytes {
		return false
	}
	r.objects--
	r.bytes -= bytes
	return true
}

// idleTime returns after what time an object is released, and the size of its file in bytes.
func (fs *mappedFiles) idleTime(o *unwind.Object) (time.Duration, int64) {
	info := o.Info()
	if info == nil {
		return idleTimeOther, 0
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Dev == fs.root && fs.Open[o] == nil {
		return idleTime, info.Size()
	}
	return idleTimeOther, info.Size()
}

// rootDevice returns the number of the root file system's device; 0: it is not known.
func rootDevice() uint64 {
	var st syscall.Stat_t
	if syscall.Stat("/", &st) != nil {
		return 0
	}
	return st.Dev
}

// mappedNow returns the objects that processes have mapped.
func (t *tracker) mappedNow() map[*unwind.Object]bool {
	mapped := make(map[*unwind.Object]bool)
	for _, p := range t.processes {
		if p.exited && !p.lingers {
			continue
		}
		for _, m := range p.All() {
			mapped[m.Object] = true
		}
	}
	return mapped
}

// isDump reports whether names of code are read from an object's file at the end.
func isDump(o *unwind.Object) bool { return strings.HasPrefix(filepath.Base(o.Name), "jit-") }

// bury forgets the threads and processes that had ended at the call before. A process whose first thread has ended may
// go on.
func (t *tracker) bury() {
	gone := t.exits.gone
	t.exits.gone = nil
	for i, id := range gone {
		switch p := t.processes[id]; {
		case i >= t.exits.ended:
			t.exits.gone = append(t.exits.gone, id)
		case p != nil && !p.exited: // the number is in use again
		case p != nil && !errors.Is(unix.Kill(int(id), 0), unix.ESRCH):
			p.lingers = true
			t.exits.gone = append(t.exits.gone, id)
		default:
			t.drop(id)
		}
	}
	t.exits.ended = len(t.exits.gone)
}

// drop forgets a thread, and the process of this number.
func (t *tracker) drop(id int32) {
	t.end(id, true)
	delete(t.threads, id)
	delete(t.processes, id)
}

// dropFile forgets an object whose file is about to be closed.
func (fs *mappedFiles) dropFile(o *unwind.Object) {
	delete(fs.Open, o)
	delete(fs.frameAddrs, o)
	for k, other := range fs.Known {
		if other == o {
			delete(fs.Known, k)
		}
	}
	fs.Objects.Forget(func(other *unwind.Object) bool { return other != o })
}
