package dwarfcfa

import (
	"errors"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/ehasm/ehasm/abi"
)

// LazyTable answers for every pc what the object's Table does, but interprets an
// FDE only when a pc first falls into it. To make one, the entries of the section are
// decoded, without their programs. It is safe for concurrent use.
//
// It is bounded by what it has interpreted since it last was full, so it has rows
// where a Table leaves out FDEs for MaxRows and the like (Report.Bounded).
type LazyTable struct {
	section *lazySection        // nil: the file has no rows
	more    func() *lazySection // .debug_frame, where it has what section has not; nil: none
	made    func() *lazySection // rows made from code; nil: none
	pending atomic.Bool         // made is at work in the background, or will be
	recent  []atomic.Pointer[recentPC]
}

// recentPC is the answer for a pc.
type recentPC struct {
	pc    Addr
	row   *Row // nil: none
	exprs []Expr
}

// maxRecent bounds the pcs whose rows a LazyTable remembers; a power of two.
const maxRecent = 1024

// NewLazyTable is BuildTable for a LazyTable. It fails if BuildTable does. The
// object must not be closed while the table is in use.
func NewLazyTable(o *Object, src Source) (*LazyTable, error) {
	t, err := newLazyTable(o, src)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// NewLazyTableMade is NewLazyTable with rows made from code, as Made has them, for the
// pcs that the file has none for. made is called once, when such a pc comes first; it may
// return nil. Where the file has no rows at all, they are all there is.
func NewLazyTableMade(o *Object, src Source, made func() *Section) (*LazyTable, error) {
	t, err := newLazyTable(o, src)
	if errors.Is(err, ErrNoUnwindInfo) {
		none := func() *lazySection { return nil }
		t, err = &LazyTable{more: none, recent: make([]atomic.Pointer[recentPC], maxRecent)}, nil
	}
	if err != nil {
		return nil, err
	}
	t.made = sync.OnceValue(func() *lazySection {
		s := made()
		if s == nil {
			return nil
		}
		return newLazySection(newCFISource(s), codeImage{segments: o.code, read: o.readImage})
	})
	return t, nil
}

// MakeInBackground has the rows of NewLazyTableMade made in the background: up to when they
// are there, the pcs that they are for have none. It is to be called before the first Step.
func (t *LazyTable) MakeInBackground() {
	made := t.made
	var once sync.Once
	var result atomic.Pointer[lazySection]
	t.pending.Store(true)
	t.made = func() *lazySection {
		once.Do(func() {
			go func() {
				result.Store(made())
				t.pending.Store(false)
			}()
		})
		return result.Load()
	}
}

func newLazyTable(o *Object, src Source) (*LazyTable, error) {
	s, kind, err := o.source(src)
	if err != nil {
		return nil, err
	}
	code := codeImage{segments: o.code, read: o.readImage}
	none := func() *lazySection { return nil }
	t := &LazyTable{section: newLazySection(s, code), more: none, made: none}
	if src == SourceAuto && kind == SourceEHFrame {
		t.more = sync.OnceValue(func() *lazySection {
			s, err := o.debugFrame()
			if err != nil || s == nil {
				return nil
			}
			return newLazySection(newCFISource(s), code)
		})
	}
	if !t.section.hasRow() && (t.more() == nil || !t.more().hasRow()) {
		_, _, err := BuildTable(o, BuildOptions{Source: src})
		if err == nil {
			err = errors.New("no row on demand, but in the table") // a defect
		}
		return nil, err
	}
	size := 1
	for size < maxRecent && size < len(t.section.spans) {
		size *= 2
	}
	t.recent = make([]atomic.Pointer[recentPC], size)
	return t, nil
}

// EstimatedRows is about the number of rows that the FDEs have, without those that
// .debug_frame adds to .eh_frame. It follows from the lengths of their programs.
func (t *LazyTable) EstimatedRows() int {
	if t.section == nil {
		return 0
	}
	return rangesOf(t.section.spans)
}

// Step is Table.Step.
func (t *LazyTable) Step(regs *abi.Regs, mem WordReader, bias uint64) abi.Status {
	return takeStep(t, regs, bias, mem)
}

func (t *LazyTable) rowAt(pc Addr) (*Row, []Expr) {
	// Calls are 5 bytes apart at least, and functions aligned.
	place := &t.recent[(pc^pc>>4^pc>>12)&Addr(len(t.recent)-1)]
	if r := place.Load(); r != nil && r.pc == pc {
		return r.row, r.exprs
	}
	pending := t.pending.Load()
	var row *Row
	var exprs []Expr
	if t.section != nil {
		row, exprs = t.section.rowAt(pc)
	}
	for _, further := range [...]func() *lazySection{t.more, t.made} {
		if row != nil {
			break
		}
		if s := further(); s != nil {
			row, exprs = s.rowAt(pc)
		}
	}
	if row != nil || !pending {
		place.Store(&recentPC{pc, row, exprs})
	}
	return row, exprs
}

// lazySection is a section whose FDEs are interpreted one by one.
type lazySection struct {
	s     tableSource
	code  codeImage
	spans []span                    // ascending, disjoint
	fdes  []atomic.Pointer[lazyFDE] // of spans; nil: not interpreted

	mu    sync.Mutex // for what is below
	b     *tableBuilder
	exprs []Expr // of b's pool
}

// lazyFDE is what interpreting an FDE gave. It does not change, but the arrays of
// rows and exprs are shared and may grow after them.
type lazyFDE struct {
	ranges []Range // as in a Table; none: the FDE is bad
	rows   []Row
	exprs  []Expr
}

func newLazySection(s tableSource, code codeImage) *lazySection {
	spans := findSpans(s, code, new(Report))
	return &lazySection{s: s, code: code, spans: spans, fdes: make([]atomic.Pointer[lazyFDE], len(spans))}
}

// hasRow reports whether any FDE is good.
func (l *lazySection) hasRow() bool {
	for i := range l.spans {
		if len(l.fde(i).ranges) > 0 {
			return true
		}
	}
	return false
}

// rowAt returns the row for a pc, or nil if there is none.
func (l *lazySection) rowAt(pc Addr) (*Row, []Expr) {
	i := sort.Search(len(l.spans), func(i int) bool { return l.spans[i].start > pc }) - 1
	if i < 0 {
		return nil, nil
	}
	f := l.fde(i)
	if len(f.ranges) == 0 {
		return nil, nil
	}
	r := f.ranges[len(f.ranges)-1]
	switch {
	case pc < r.End:
		r = f.ranges[sort.Search(len(f.ranges), func(i int) bool { return f.ranges[i].End > pc })]
		if pc < r.Start { // rows of .sframe may begin later than their function
			return nil, nil
		}
	case r.End < l.spans[i].end || pc-r.End >= l.filled(i):
		return nil, nil
	}
	return &f.rows[r.Row], f.exprs
}

// filled returns how many bytes of the gap after the span i, which is good, its last
// row holds for, too: see fillPadding.
func (l *lazySection) filled(i int) Addr {
	if i+1 == len(l.spans) {
		return 0
	}
	start, end := l.spans[i].end, l.spans[i+1].start
	if start == end || end-start > maxGap || l.code.read == nil {
		return 0
	}
	var buf [maxGap + maxSigreturn]byte
	gap := int(end - start)
	b := buf[:l.code.read(start, buf[:gap+maxSigreturn])]
	if len(b) < gap {
		return 0
	}
	n := padding(b[:gap])
	if n < gap {
		return Addr(n)
	}
	if next := l.fde(i + 1); len(next.ranges) > 0 && returnedTo(&next.rows[next.ranges[0].Row]) || isSigreturn(b[gap:]) {
		n--
	}
	return Addr(n)
}

// fde interprets the FDE of a span, once.
func (l *lazySection) fde(i int) *lazyFDE {
	if f := l.fdes[i].Load(); f != nil {
		return f
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.fdes[i].Load(); f != nil {
		return f
	}
	if l.b == nil {
		l.b = newTableBuilder(l.s, new(Report))
	}
	l.b.ranges = l.b.ranges[:0]
	if err := l.b.interpretOne(&l.spans[i]); errors.Is(err, errBound) {
		// Full: all that was interpreted goes.
		for j := range l.fdes {
			l.fdes[j].Store(nil)
		}
		l.b, l.exprs = newTableBuilder(l.s, new(Report)), nil
		l.b.interpretOne(&l.spans[i])
	}
	for _, e := range l.b.in.exprs.entries[len(l.exprs):] {
		l.exprs = append(l.exprs, e.expr)
	}
	f := &lazyFDE{ranges: slices.Clone(l.b.ranges), rows: l.b.rows, exprs: l.exprs}
	l.fdes[i].Store(f)
	return f
}
