package lsda

import (
	"errors"
	"fmt"

	"github.com/ehasm/ehasm/dwarfcfa"
)

// Addr is a link-time address of the object.
type Addr = dwarfcfa.Addr

// Table is one decoded LSDA. It does not change once made.
type Table struct {
	Sites   []Site
	actions Addr              // the action table, which follows the call sites
	bytes   *dwarfcfa.Encoded // the section that the area lies in, for actions
}

// Site is a call-site record for calls in [Start, End), as stored. Records of
// real compilers ascend and are disjoint; Effective says how a personality
// routine treats others.
type Site struct {
	Start, End Addr
	Pad        Addr   // landing pad; 0: an exception passes through the frame
	Action     uint64 // 1 + offset of the first action record; 0: none, the pad is a cleanup
}

// ErrLimit is wrapped if an area is larger than any real one.
var ErrLimit = errors.New("limit of exception tables")

const (
	maxSites   = 1 << 20 // of an area; librustc_driver has 5,231 at most
	maxActions = 1 << 12 // of a chain
)

// Reader reads the areas of one object. It caches the section that it read
// last, and is not safe for concurrent use.
type Reader struct {
	object *dwarfcfa.File
	bytes  *dwarfcfa.Encoded // of one section
}

// NewReader makes a reader for o, which must stay open.
func NewReader(o *dwarfcfa.File) *Reader {
	return &Reader{object: o}
}

// Table reads the LSDA of an FDE. It returns nil without an error if the FDE
// has none. Errors name the FDE, and wrap dwarfcfa.ErrTruncated,
// dwarfcfa.ErrBadEncoding or ErrLimit.
func (r *Reader) Table(f *dwarfcfa.FDE) (*Table, error) {
	if !f.HasLSDA {
		return nil, nil
	}
	t, err := r.table(f)
	if err != nil {
		return nil, fmt.Errorf("FDE %#x..%#x: LSDA at %#x: %w", uint64(f.Start), uint64(f.End), uint64(f.LSDA), err)
	}
	return t, nil
}

// table reads the area of an FDE that has one. Areas of one section lie together, so its bytes are
// kept.
func (r *Reader) table(f *dwarfcfa.FDE) (*Table, error) {
	addr := f.LSDA
	if addr == 0 {
		return nil, fmt.Errorf("%w: where it is, is known only at run time", dwarfcfa.ErrUnsupported)
	}
	if f.CIE.LSDAEncoding&dwarfcfa.PEIndirect != 0 {
		return nil, fmt.Errorf("%w: an indirect pointer", dwarfcfa.ErrUnsupported)
	}
	if r.bytes == nil || addr < r.bytes.Addr() || addr >= r.bytes.End() {
		bytes, err := r.object.Encoded(addr)
		if err != nil {
			return nil, err
		}
		r.bytes = bytes
	}
	return Parse(r.bytes, addr, f.Start)
}

// Parse reads the area at addr among bytes; function is the first pc of its FDE. The header: encoding and value of
// LPStart, encoding and offset of the type table, encoding and size of the call sites (GCC's except.cc,
// output_function_exception_table).
func Parse(bytes *dwarfcfa.Encoded, addr, function Addr) (*Table, error) {
	t := &Table{bytes: bytes}
	base := function // of landing pads: LPStart
	e := bytes.At(addr, bytes.End())
	if enc := dwarfcfa.PointerEncoding(e.U8()); enc != dwarfcfa.PEOmit && e.Err() == nil {
		var null bool
		// 0 makes the addresses of landing pads absolute. Compilers leave LPStart out where the pads are the
		// function's.
		if base, null = e.Pointer(enc, function); null && bytes.Moved() {
			return nil, fmt.Errorf("%w: landing pads at absolute addresses in a file that is loaded anywhere",
				dwarfcfa.ErrUnsupported)
		}
	}
	// of the type table, which the routine reads
	if dwarfcfa.PointerEncoding(e.U8()) != dwarfcfa.PEOmit && e.Err() == nil {
		n := e.ULEB()
		if end := e.Addr() + Addr(n); e.Err() == nil && (end < e.Addr() || end > e.End()) {
			return nil, fmt.Errorf("%w: type table ends %#x bytes on", dwarfcfa.ErrTruncated, n)
		}
	}
	encoding := dwarfcfa.PointerEncoding(e.U8()) // of call sites
	n := e.ULEB()
	if e.Err() != nil {
		return nil, e.Err()
	}
	t.actions = e.Addr() + Addr(n)
	if t.actions < e.Addr() || t.actions > e.End() {
		return nil, fmt.Errorf("%w: call sites of %#x bytes", dwarfcfa.ErrTruncated, n)
	}
	// The call sites, each of three encoded values and an action.
	sites := bytes.At(e.Addr(), t.actions)
	for sites.Addr() < t.actions {
		start, length, pad := sites.Value(encoding), sites.Value(encoding), sites.Value(encoding)
		s := Site{Start: function + Addr(start), Action: sites.ULEB()}
		s.End = s.Start + Addr(length)
		if sites.Err() != nil {
			return nil, sites.Err()
		}
		if s.Start < function || s.End < s.Start {
			return nil, fmt.Errorf("%w: call site %d, %#x bytes from %#x on, overflows 64 bits", dwarfcfa.ErrBadEncoding,
				len(t.Sites), length, start)
		}
		if pad != 0 {
			s.Pad = base + Addr(pad)
		}
		if len(t.Sites) == maxSites {
			return nil, fmt.Errorf("%w: more than %d call sites", ErrLimit, maxSites)
		}
		t.Sites = append(t.Sites, s)
	}
	return t, nil
}

// Effective returns the ranges in which a personality routine finds each call site: it takes the first record that
// holds the pc, and gives up at the first one that begins after it. They ascend and are disjoint. libstdc++'s
// eh_personality.cc and libc++abi's cxa_personality.cpp search so.
func (t *Table) Effective() []Site {
	out := make([]Site, 0, len(t.Sites))
	var reached Addr // a pc below this finds an earlier record, or none
	for _, s := range t.Sites {
		e := s
		e.Start = max(s.Start, reached)
		if e.Start < e.End {
			out = append(out, e)
		}
		reached = max(reached, s.End, s.Start)
	}
	return out
}

// Chain returns the filters of a site's action records, in the order in which they are tried; none if the site has no
// action. 0 is a cleanup, above 0 is a type to catch, below 0 an exception specification.
func (t *Table) Chain(s Site) ([]int64, error) {
	var chain []int64
	if s.Action == 0 {
		return nil, nil
	}
	addr := t.actions + Addr(s.Action-1)
	if addr < t.actions {
		return nil, fmt.Errorf("%w: action %#x", dwarfcfa.ErrTruncated, s.Action)
	}
	for len(chain) < maxActions {
		e := t.bytes.At(addr, t.bytes.End())
		filter := e.SLEB()
		link := e.Addr()
		next := e.SLEB()
		if e.Err() != nil {
			return nil, e.Err()
		}
		chain = append(chain, filter)
		if next == 0 {
			return chain, nil
		}
		addr = link + Addr(next)
	}
	return nil, fmt.Errorf("%w: a chain of more than %d actions", ErrLimit, maxActions)
}
