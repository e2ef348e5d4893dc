//go:build linux && amd64

package record

import (
	"slices"
	"time"

	"github.com/ehasm/ehasm/bpfunwind"
	"github.com/ehasm/ehasm/unwind"
)

// tables are those by which the kernel unwinds objects.
type tables struct {
	kernel  *bpfunwind.Unwinder
	get     func(o *unwind.Object, wanted bool) (*bpfunwind.Tables, error) // see Options.Tables
	objects map[*unwind.Object]*inTables
	leaving []*bpfunwind.Loaded // of objects that are forgotten; processes still have them

	queue  []*unwind.Object // whose tables are to be made
	done   chan madeTables  // of the object at whose tables a goroutine works
	making bool
	spent  time.Duration // making tables
	begun  time.Time
	tidied time.Time     // when tables that no stack has met were last released
	read   time.Duration // looking for tables in the cache, in this round
	looked time.Duration // the same, in all
}

// inTables is what is known of an object's tables.
type inTables struct {
	*bpfunwind.Loaded // nil: the kernel has none
	queued            bool
}

// madeTables are the tables of an object; nil: there are none.
type madeTables struct {
	object *unwind.Object
	tables *bpfunwind.Tables
	took   time.Duration
}

// Bounds on the time for which tables are made: so much at once, and that part of the recording.
const (
	leastMaking = 2 * time.Second
	makingParts = 200
)

// readTime is how long tables may be looked for in the cache in one round: 10 to 20 files.
const readTime = 5 * time.Millisecond

func newTables(kernel *bpfunwind.Unwinder, get func(*unwind.Object, bool) (*bpfunwind.Tables, error)) tables {
	return tables{kernel: kernel, get: get, objects: make(map[*unwind.Object]*inTables), done: make(chan madeTables, 1),
		begun: time.Now()}
}

// of returns an object's tables in the kernel, nil if there are none yet. ok is false if it must be asked again
// in another round.
func (t *tables) of(o *unwind.Object) (in *bpfunwind.Loaded, ok bool) {
	known := t.objects[o]
	if known == nil {
		if t.read > readTime || t.looked > leastMaking+time.Since(t.begun)/makingParts {
			return nil, false
		}
		begin := time.Now()
		known = &inTables{}
		t.objects[o] = known
		if cached, err := t.get(o, false); cached != nil && err == nil {
			known.Loaded, _ = t.kernel.AddTables(cached) // without room for it, its samples come with copies
			known.queued = true
		}
		t.read += time.Since(begin)
		t.looked += time.Since(begin)
	}
	if !known.queued && o.Needed() { // a walk of a copy has met it
		known.queued = true
		t.queue = append(t.queue, o)
	}
	return known.Loaded, true
}

// affords reports whether there is time to make more tables.
func (t *tables) affords() bool { return t.spent < leastMaking+time.Since(t.begun)/makingParts }

// busy reports whether tables will be ready soon.
func (t *tables) busy() bool { return t.making || len(t.queue) > 0 && t.affords() }

// take takes tables that were made, and begins to make others. It reports whether there are new ones.
func (t *tables) take() (fresh bool) {
	t.read = 0
	select {
	case m := <-t.done:
		t.making, t.spent = false, t.spent+m.took
		if known := t.objects[m.object]; known != nil && m.tables != nil { // it may have been released since
			known.Loaded, _ = t.kernel.AddTables(m.tables)
			fresh = known.Loaded != nil
		}
	default:
	}
	if !t.making && len(t.queue) > 0 && t.affords() {
		o := t.queue[0]
		t.queue, t.making = t.queue[1:], true
		go func() {
			begin := time.Now()
			tables, _ := t.get(o, true) // an object without tables has no region
			t.done <- madeTables{o, tables, time.Since(begin)}
		}()
	}
	return fresh
}

// close waits for the goroutine.
func (t *tables) close() {
	if t.making {
		<-t.done
	}
}

// release forgets objects, and from time to time the tables of those that no stack has met. It reports whether
// processes have some mapped that are to go.
func (t *tables) release(are func(*unwind.Object) bool) (waiting bool) {
	tidy := time.Since(t.tidied) > idleTime
	if tidy {
		t.tidied = time.Now()
	}
	remove := func(o *bpfunwind.Loaded) bool { return o == nil || t.kernel.RemoveTables(o) == nil }
	for o, known := range t.objects {
		switch {
		case are(o) && !remove(known.Loaded):
			t.leaving = append(t.leaving, known.Loaded)
		case are(o):
		case !tidy || o.Needed() || !remove(known.Loaded):
			continue
		}
		delete(t.objects, o)
		t.queue = slices.DeleteFunc(t.queue, func(other *unwind.Object) bool { return other == o })
	}
	t.leaving = slices.DeleteFunc(t.leaving, remove)
	return len(t.leaving) > 0
}
