package srcline

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
)

// This file reads the functions of a unit, inlined ones included, and arranges them by address: an array of starts, in
// which one binary search finds the innermost function. Names are read when a function is shown.

// none is an index that stands for no function.
const none = -1

// function is a function or an inlined copy of one.
type function struct {
	entry    ref    // that names it
	parent   int32  // index of the function it is inlined into, or none
	callFile uint32 // number of the file of the call, as the unit's line table counts
	callLine uint32
}

// funcTable holds the functions of a unit, and for each address in starts the innermost
// function from there on.
type funcTable struct {
	funcs  []function // in the order of their entries: a caller before what is inlined into it
	starts []uint64   // addresses, ascending; function which[i] begins at starts[i]
	which  []int32    // index in funcs, or none
}

// find returns the innermost function at addr, or none.
func (t *funcTable) find(addr uint64) int32 {
	// The last start at or below addr.
	i := sort.Search(len(t.starts), func(i int) bool { return t.starts[i] > addr })
	// Before all functions.
	if i == 0 {
		return none
	}
	return t.which[i-1]
}

// size estimates the memory that t takes, in bytes.
func (t *funcTable) size() int { return 24*cap(t.funcs) + 12*cap(t.starts) }

// extent is a part of a function's addresses.
type extent struct {
	span
	depth int32 // nesting in entries: of functions that begin at one address, the inlined one is deeper
	fn    int32 // index in funcs, or none
}

// parseFuncs collects the functions of a unit. After an error, t has those found before it: a damaged entry late in a
// unit does not take the others' names.
func (u *unit) parseFuncs(t *funcTable) error {
	const funcBytes, extentBytes = 128, 64 // estimates: bytes of .debug_info for each
	size := u.end - u.entries
	t.funcs = make([]function, 0, size/funcBytes)
	extents := make([]extent, 0, size/extentBytes)
	// Extents overlap: an inlined copy lies in its function. flatten sorts that out.
	err := u.walk(t, &extents)
	t.flatten(extents)
	return err
}

// level is an entry that has children.
type level struct {
	fn    int32 // function around the children, or none
	depth int32
}

// walk goes through the entries of a unit and collects functions, inlined ones included, with their extents. Blocks
// and other entries may lie between a function and what is inlined into it.
func (u *unit) walk(t *funcTable, extents *[]extent) error {
	abbrevs := u.sec.table(u)
	c := cursor{b: u.data(), off: u.entries}
	// The list of open entries, since entries may nest deeper than a Go stack should.
	here := level{fn: none}
	var up []level
	var spans []span
	for c.off < u.end && !c.bad {
		start := c.off
		code := c.uleb()
		if code == 0 {
			// An entry of 0 ends a list of children.
			if len(up) > 0 {
				here, up = up[len(up)-1], up[:len(up)-1]
			}
			continue
		}
		a := abbrevs.find(code)
		if a == nil {
			return fmt.Errorf("entry at %#x of .debug_info: no abbreviation %d", start, code)
		}
		// Entries that are no functions, such as blocks, leave the level as it is.
		next := here
		if a.tag == tagSubprogram || a.tag == tagInlinedSubroutine {
			f := function{entry: ref(start), parent: none}
			spans = u.function(&c, a, &f, spans[:0])
			inlined := a.tag == tagInlinedSubroutine
			switch {
			// An inlined copy without addresses was optimised away.
			case inlined && len(spans) > 0:
				f.parent = here.fn
				next = level{int32(len(t.funcs)), here.depth + 1}
			case !inlined:
				// A function without addresses hides the one around it from what is inlined into
				// it.
				next = level{none, here.depth + 1} // an abstract one has no addresses
				if len(spans) > 0 {
					next.fn = int32(len(t.funcs))
				}
			}
			if len(spans) > 0 && len(t.funcs) < math.MaxInt32 {
				t.funcs = append(t.funcs, f)
				// Compilers do not share one list among very many functions.
				if len(*extents)+len(spans) > len(u.root.ranges)+len(u.sec.rnglists)+len(u.sec.info) {
					return fmt.Errorf("unit at %#x of .debug_info: too many ranges", u.off)
				}
				// Functions have several ranges where cold parts are split off.
				for _, s := range spans {
					*extents = append(*extents, extent{s, next.depth, next.fn})
				}
			}
		} else {
			skipEntry(&c, a, u.format)
		}
		// Children come next, up to a zero entry.
		if a.children {
			up = append(up, here)
			here = next
		}
	}
	if c.bad {
		return fmt.Errorf("unit at %#x of .debug_info: an entry goes beyond the end", u.off)
	}
	return nil
}

// function reads the entry of a function: it appends its addresses to spans, and sets the call of an inlined one in f.
func (u *unit) function(c *cursor, a *abbrev, f *function, spans []span) []span {
	var low, high, ranges value
	for _, attribute := range a.attrs {
		v := read(c, attribute, u.format)
		// Other attributes, such as the name, are read on demand.
		switch attribute.name {
		case atLowPC:
			low = v
		case atHighPC:
			high = v
		case atRanges:
			ranges = v
		case atCallFile:
			f.callFile = uint32(v.u)
		case atCallLine:
			f.callLine = uint32(v.u)
		}
	}
	if c.bad {
		return spans
	}
	return u.spans(spans, low, high, ranges)
}

// flatten makes the sorted arrays: of the functions that hold an address, the one that starts last and is deepest has
// it. It is a sweep over all beginnings with a stack of what is open; extents that only overlap, which is damage, are
// cut at the beginning of the later one.
func (t *funcTable) flatten(all []extent) {
	// By beginning, then the outer one first; equal depths: the longer first.
	slices.SortFunc(all, func(a, b extent) int {
		switch { // not cmp.Or, which would always compare all
		case a.lo != b.lo:
			return cmp.Compare(a.lo, b.lo)
		case a.depth != b.depth:
			return cmp.Compare(a.depth, b.depth)
		}
		return cmp.Compare(b.hi, a.hi)
	})
	t.starts, t.which = make([]uint64, 0, 3*len(all)/2), make([]int32, 0, 3*len(all)/2)
	var open []extent // parts that hold the current address, the outermost first
	// closeUntil ends the parts that end at or below an address; the one around them goes on.
	closeUntil := func(addr uint64) {
		for len(open) > 0 && open[len(open)-1].hi <= addr {
			// Several may end at one address; the one around all of them goes on from there.
			end := open[len(open)-1].hi
			for len(open) > 0 && open[len(open)-1].hi <= end {
				open = open[:len(open)-1]
			}
			fn := int32(none)
			if len(open) > 0 {
				fn = open[len(open)-1].fn
			}
			t.emit(end, fn)
		}
	}
	// Each extent ends those before it, and is the innermost from its beginning on.
	for _, e := range all {
		closeUntil(e.lo)
		open = append(open, e)
		t.emit(e.lo, e.fn)
	}
	closeUntil(^uint64(0))
	t.funcs, t.starts, t.which = slices.Clip(t.funcs), slices.Clip(t.starts), slices.Clip(t.which)
}

// emit notes that fn begins at addr. Addresses ascend; of several functions at one, the last counts.
func (t *funcTable) emit(addr uint64, fn int32) {
	n := len(t.starts)
	switch {
	case n > 0 && t.starts[n-1] == addr:
		t.which[n-1] = fn
	// No change, no entry.
	case n > 0 && t.which[n-1] == fn:
	default:
		t.starts, t.which = append(t.starts, addr), append(t.which, fn)
	}
}

// name finds the name of a function's entry: the linkage name if there is
// one, of the entry or what it is an instance of.
func (u *unit) name(r ref) string {
	s := u.sec
	var name string
	const chain = 8 // concrete, abstract, declaration; more is a loop
	for range chain {
		if r == refNone {
			return name
		}
		// The reference may lead into the supplementary file.
		if r&refAlt != 0 {
			if s = s.alt; s == nil {
				return name
			}
			r &^= refAlt
		}
		in := s.find(uint64(r))
		if in == nil {
			return name
		}
		plain, linkage, next := in.names(uint64(r))
		// A mangled name has scope and parameters, so it wins over a plain one found before.
		if linkage != "" {
			return linkage
		}
		if name == "" {
			name = plain
		}
		r = next
	}
	return name
}

// names reads the names at an entry, and what it refers to for more.
func (u *unit) names(off uint64) (plain, linkage string, next ref) {
	next = refNone
	c := cursor{b: u.data(), off: off}
	// The declaration says which attributes follow.
	a := u.sec.table(u).find(c.uleb())
	if a == nil {
		return
	}
	for _, attribute := range a.attrs {
		v := read(&c, attribute, u.format)
		if c.bad {
			return
		}
		switch attribute.name {
		case atName:
			plain = u.str(v)
		case atLinkageName, atMIPSLinkage:
			linkage = u.str(v)
		case atAbstractOrigin, atSpecification:
			next = u.ref(v)
		}
	}
	return
}
