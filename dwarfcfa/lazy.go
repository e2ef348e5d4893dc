package dwarfcfa

import (
	"errors"
	"math"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ehasm/ehasm/abi"
)

// This file interprets FDEs on demand, for recordings that need few of an object's rows: decoding the entries takes 7
// ms for 45,000 FDEs, a first step in an FDE 1.5 us (RATIONALE.md, "Two ways to take a step in a recording").

// LazyTable gives the same answer as the object's Table for every pc, but interprets
// an FDE only when a pc first falls into it. Making one decodes the entries of the
// section without their programs. It is safe for concurrent use.
//
// Its bounds apply to what it has interpreted since it was last emptied, so it
// has rows where a Table leaves out FDEs because of MaxRows and the like
// (Report.Bounded).
type LazyTable struct {
	code    codeImage
	section *lazySection               // nil: the file has no rows
	more    func() *lazySection        // .debug_frame, for pcs that section does not cover; nil: none
	made    func() *lazySection        // rows made from code; nil: none
	parts   *lazyParts                 // rows for some functions at a time; nil: none
	pending atomic.Bool                // made runs in the background, or will
	recent  []atomic.Pointer[recentPC] // answers for pcs, by a hash; its size is a power of two
}

// recentPC is the answer for a pc.
type recentPC struct {
	pc    Addr
	row   *Row // nil: none
	exprs []Expr
}

// maxRecent bounds the pcs whose rows a LazyTable remembers; a power of two. 1024 are some 50 KB.
const maxRecent = 1024

// NewLazyTable is BuildTable for a LazyTable. It fails in the same cases as
// BuildTable. The object must not be closed while the table is in use.
func NewLazyTable(o *File, src Source) (*LazyTable, error) {
	t, err := newLazyTable(o, src)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// NewLazyTableMade is NewLazyTable with rows made from code, like those of Made, for pcs
// that the file has no row for. made is called once, at the first such pc; it may return
// nil. It is no error if the file has no rows at all.
func NewLazyTableMade(o *File, src Source, made func() *Section) (*LazyTable, error) {
	t, err := newLazyTable(o, src)
	if errors.Is(err, ErrNoUnwindInfo) {
		none := func() *lazySection { return nil }
		t, err = &LazyTable{code: o.codeImage(), more: none, recent: make([]atomic.Pointer[recentPC], maxRecent)}, nil
	}
	if err != nil {
		return nil, err
	}
	t.made = sync.OnceValue(func() *lazySection {
		s := made()
		if s == nil {
			return nil
		}
		return newLazySection(newCFISource(s), t.code)
	})
	return t, nil
}

// MakeInBackground makes Step run the function of NewLazyTableMade in the background once wanted, which is called for
// each pc without a row, returns true. Step waits for it as long as wanted says. Until it is done, these pcs have no
// row. Call MakeInBackground before the first Step.
func (t *LazyTable) MakeInBackground(wanted func() (bool, time.Duration)) {
	made := t.made
	var once sync.Once
	var result atomic.Pointer[lazySection]
	done := make(chan struct{})
	t.pending.Store(true)
	t.made = func() *lazySection {
		if found := result.Load(); found != nil || !t.pending.Load() {
			return found
		}
		start, wait := wanted()
		if !start {
			return nil
		}
		once.Do(func() {
			go func() {
				result.Store(made())
				t.pending.Store(false)
				close(done)
			}()
		})
		if wait > 0 {
			select {
			case <-done:
			case <-time.After(wait):
			}
		}
		return result.Load()
	}
}

// newLazyTable decodes the entries of the section and interprets none. If no row can come of them, it returns
// the error of BuildTable.
func newLazyTable(o *File, src Source) (*LazyTable, error) {
	s, kind, err := o.source(src)
	if err != nil {
		return nil, err
	}
	code := o.codeImage()
	none := func() *lazySection { return nil }
	t := &LazyTable{code: code, section: newLazySection(s, code), more: none, made: none}
	if src == SourceAuto && kind == SourceEHFrame {
		t.more = sync.OnceValue(func() *lazySection {
			s, err := o.debugFrame()
			if err != nil || s == nil {
				return nil
			}
			return newLazySection(newCFISource(s), code)
		})
	}
	// Without any row, NewLazyTable fails as BuildTable does, with the same error.
	if !t.section.hasRow() && (t.more() == nil || !t.more().hasRow()) {
		_, _, err := BuildTable(o, BuildOptions{Source: src})
		if err == nil {
			err = errors.New("internal error: LazyTable and Table disagree")
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

// EstimatedRows estimates, from the lengths of their programs, the number of rows
// of the FDEs, without those that .debug_frame adds to .eh_frame.
func (t *LazyTable) EstimatedRows() int {
	if t.section == nil {
		return 0
	}
	return t.section.rows
}

// Step does what Table.Step does.
func (t *LazyTable) Step(regs *abi.Regs, mem WordReader, bias uint64) abi.Status {
	return takeStep(t, regs, bias, mem)
}

// rowAt returns the row of a pc and the expressions that it names, or nil. It remembers the answers
// for recent pcs.
func (t *LazyTable) rowAt(pc Addr) (*Row, []Expr) {
	// Calls are 5 bytes apart at least, and functions aligned.
	slot := &t.recent[(pc^pc>>4^pc>>12)&Addr(len(t.recent)-1)]
	if r := slot.Load(); r != nil && r.pc == pc {
		return r.row, r.exprs
	}
	if _, ok := t.code.segmentOf(pc); !ok {
		return nil, nil // a walk has left the object, which is no reason to make rows
	}
	pending := t.pending.Load()
	var row *Row
	var exprs []Expr
	if t.section != nil {
		row, exprs = t.section.rowAt(pc)
	}
	inParts := func() *lazySection { return t.parts.find(pc) }
	for _, further := range [...]func() *lazySection{t.more, inParts, t.made} {
		if row != nil {
			break
		}
		if s := further(); s != nil {
			row, exprs = s.rowAt(pc)
		}
	}
	if row != nil || !pending {
		slot.Store(&recentPC{pc, row, exprs})
	}
	return row, exprs
}

// MakeParts makes Step ask rowsAt for the rows of the functions around a pc that the file has no row for, before it
// asks for those of the whole file. rowsAt also returns for which addresses they are, pc among them; the section may be
// nil. Call it before the first Step.
func (t *LazyTable) MakeParts(rowsAt func(pc Addr) (Range, *Section)) {
	t.parts = &lazyParts{rowsAt: rowsAt, code: t.code}
}

// lazyParts holds sections for parts of the code.
type lazyParts struct {
	rowsAt func(pc Addr) (Range, *Section)
	code   codeImage

	mu   sync.Mutex // for what is below
	list []lazyPart // ascending, disjoint
}

// lazyPart is the section for a range of addresses; nil: there is none.
type lazyPart struct {
	start, end Addr
	section    *lazySection
}

// maxParts bounds the parts that are kept.
const maxParts = 1 << 12

// find returns the section for a pc, or nil if there is none.
func (p *lazyParts) find(pc Addr) *lazySection {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := sort.Search(len(p.list), func(i int) bool { return p.list[i].end > pc })
	if i < len(p.list) && p.list[i].start <= pc {
		return p.list[i].section
	}
	of, s := p.rowsAt(pc)
	part := lazyPart{start: of.Start, end: of.End}
	if s != nil {
		part.section = newLazySection(newCFISource(s), p.code)
	}
	if len(p.list) >= maxParts { // start again: simple, and as rare as walks over 4,096 functions without rows
		p.list, i = nil, 0
	}
	p.list = slices.Insert(p.list, i, part)
	return part.section
}

// lazySection is a section whose FDEs are interpreted one by one.
type lazySection struct {
	s     tableSource
	code  codeImage
	spans []lazySpan // ascending, disjoint
	rows  int        // of all FDEs, estimated

	mu    sync.RWMutex     // for what is below
	fdes  map[int]*lazyFDE // by the index of their span, those that were interpreted
	b     *tableBuilder    // nil before the first FDE is interpreted
	exprs []Expr           // of b's pool
}

// lazySpan is a span in less memory, since large programs have hundreds of thousands.
type lazySpan struct {
	start    Addr
	length   uint32 // in bytes
	position uint32 // see tableSource; no section that is read has 4 GB
}

func (s *lazySpan) end() Addr { return s.start + Addr(s.length) }

// lazyFDE is the result of interpreting an FDE. It does not change, but the
// arrays of rows and exprs are shared, and others may append to them.
type lazyFDE struct {
	ranges []lazyRange // as in a Table; none: the FDE is bad
	rows   []*Row
	exprs  []Expr
}

// lazyRange is a Range from the start of its span on, in less memory.
type lazyRange struct{ start, end, row uint32 }

// newLazySection finds the ranges of a source's FDEs, with overlaps resolved, and interprets none.
func newLazySection(s tableSource, code codeImage) *lazySection {
	spans := findSpans(s, code, new(Report))
	l := &lazySection{s: s, code: code, spans: make([]lazySpan, len(spans)), rows: rangesOf(spans),
		fdes: make(map[int]*lazyFDE)}
	for i := range spans {
		sp := &spans[i]
		l.spans[i] = lazySpan{sp.start, uint32(min(sp.end-sp.start, math.MaxUint32)), s.position(sp)}
	}
	return l
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
	off := pc - l.spans[i].start
	switch {
	// A pc behind the last row may lie in padding that takes this row.
	case off < Addr(r.end):
		r = f.ranges[sort.Search(len(f.ranges), func(i int) bool { return Addr(f.ranges[i].end) > off })]
		if off < Addr(r.start) { // rows of .sframe may begin later than their function
			return nil, nil
		}
	case r.end < l.spans[i].length || off-Addr(r.end) >= l.filled(i):
		return nil, nil
	}
	return f.rows[r.row], f.exprs
}

// filled returns how many bytes of the gap after the span i, which is good, take its
// last row: see fillPadding.
func (l *lazySection) filled(i int) Addr {
	if i+1 == len(l.spans) {
		return 0
	}
	start, end := l.spans[i].end(), l.spans[i+1].start
	if start == end || end-start > maxGap || l.code.read == nil {
		return 0
	}
	var buf [maxGap + abi.MaxSigreturn]byte
	gap := int(end - start)
	b := buf[:l.code.read(start, buf[:gap+abi.MaxSigreturn])]
	if len(b) < gap {
		return 0
	}
	n := padding(b[:gap])
	if n < gap {
		return Addr(n)
	}
	if next := l.fde(i + 1); len(next.ranges) > 0 && returnedTo(next.rows[next.ranges[0].row]) ||
		abi.IsSigreturn(b[gap:]) {
		n--
	}
	return Addr(n)
}

// fde interprets the FDE of a span, once.
func (l *lazySection) fde(i int) *lazyFDE {
	l.mu.RLock()
	f := l.fdes[i]
	l.mu.RUnlock()
	if f != nil {
		return f
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.fdes[i]; f != nil {
		return f
	}
	if l.b == nil {
		l.b = newTableBuilder(l.s, new(Report))
	}
	l.b.ranges = l.b.ranges[:0]
	sp := l.s.again(l.spans[i].position)
	sp.end = l.spans[i].end()
	if err := l.b.interpretOne(&sp); errors.Is(err, errBound) {
		// Full: drop all that was interpreted.
		clear(l.fdes)
		l.b, l.exprs = newTableBuilder(l.s, new(Report)), nil
		l.b.interpretOne(&sp)
	}
	for _, e := range l.b.in.exprs.entries[len(l.exprs):] {
		l.exprs = append(l.exprs, e.expr)
	}
	f = &lazyFDE{ranges: make([]lazyRange, len(l.b.ranges)), rows: l.b.rows, exprs: l.exprs}
	for k, r := range l.b.ranges {
		f.ranges[k] = lazyRange{uint32(r.Start - sp.start), uint32(r.End - sp.start), r.Row}
	}
	l.fdes[i] = f
	const fewKnown = 8 // FDEs that follow share few raw rows with those before
	switch {
	case len(l.spans) == 1: // nothing follows
		l.b, l.exprs = nil, nil
	case len(l.b.normal) > fewKnown:
		l.b.normal = make(map[Row]normalRow)
	}
	return f
}
