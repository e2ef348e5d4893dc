package sites

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// This file reads tables: for dumps, and to compare a file's table with the object's. runtime/eh/sites.c reads the same
// bytes in place, in a thread that throws.

// Decode is the inverse of Encode, except that names of personality routines
// are lost. Any bytes give an error or a table that satisfies the documentation
// of Table.
func Decode(b []byte) (*Table, error) {
	// No bytes: an object without functions for exceptions.
	t := &Table{}
	if len(b) == 0 {
		return t, nil
	}
	h, b, err := readHeader(b)
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	for range h.personalities {
		t.Personalities = append(t.Personalities,
			Personality{Addr: Addr(le.Uint64(b)), Indirect: b[8]&personalityIndirect != 0})
		b = b[personalitySize:]
	}
	// The index of groups comes before the functions, which are read one after the other.
	index, stream := b[:h.groups*groupSize], b[h.groups*groupSize:]
	r := reader{b: stream}
	var before state
	end := Addr(0) // of the function before, in another group, too
	for i := range h.functions {
		// A group begins with known state, so that a search can begin there.
		if i%perGroup == 0 {
			g := index[i/perGroup*groupSize:]
			if uint64(le.Uint32(g[4:])) != uint64(r.pos) {
				return nil, malformed("group %d", i/perGroup)
			}
			before = groupState(h.base+Addr(le.Uint32(g)), h.base)
		}
		f, err := before.readFunction(&r, end, h.personalities)
		if err != nil {
			return nil, malformed("function %d: %v", i, err)
		}
		t.Functions = append(t.Functions, f)
		end = f.End
	}
	// All bytes must be used.
	if r.pos != len(stream) {
		return nil, malformed("%d bytes too many", len(stream)-r.pos)
	}
	return t, nil
}

// malformed returns an error that wraps ErrFormat.
func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)
}

// header holds the first fields of a table.
type header struct {
	base                             Addr   // the start of the first function
	functions, groups, personalities uint64 // how many there are
}

// readHeader reads the header of a table, and returns what follows it, whose size agrees with it. The error wraps
// ErrFormat. h.functions is at most the bytes of all functions, so a table takes no more memory than a multiple of its
// file.
func readHeader(b []byte) (h header, rest []byte, err error) {
	if len(b) < headerSize {
		return h, nil, malformed("%d bytes", len(b))
	}
	le := binary.LittleEndian
	h = header{Addr(le.Uint64(b)), uint64(le.Uint32(b[8:])), uint64(le.Uint32(b[12:])), uint64(le.Uint32(b[16:]))}
	size := uint64(le.Uint32(b[20:])) // of all functions in bytes
	rest = b[headerSize:]
	// Sums of products of 32-bit numbers do not wrap.
	if uint64(len(rest)) != h.personalities*personalitySize+h.groups*groupSize+size ||
		h.groups != (h.functions+perGroup-1)/perGroup || h.functions > size {
		return h, nil, malformed("%d functions, %d groups, %d personalities and %d bytes in %d",
			h.functions, h.groups, h.personalities, size, len(rest))
	}
	return h, rest, nil
}

// readFunction reads what appendFunction has written. end is the end of the function before. The error lacks the
// function's number, which Decode adds.
func (st *state) readFunction(r *reader, end Addr, personalities uint64) (f Function, err error) {
	// Bit 0 says that a personality follows, bit 1 that the start counts in bytes: see
	// appendFunction.
	start := r.uleb()
	// From the end of the function before, in bytes or in units of the alignment.
	if f.Start = st.end + Addr(start>>2); start&2 == 0 {
		f.Start = aligned(st.end) + Addr(start>>2)*alignment
	}
	size := r.uleb()
	f.End = f.Start + Addr(size)
	body := reader{b: r.bytes(r.uleb())}
	if r.bad || start>>2 > 1<<32 || size > 1<<32 || f.Start < end || f.End <= f.Start {
		return f, errors.New("bounds") // larger numbers could wrap
	}
	// The personality stays as for the function before, unless it is given.
	if start&1 != 0 {
		st.personality = int(min(body.uleb(), personalities+1)) - 1
	}
	if st.personality < -1 || st.personality >= int(personalities) {
		return f, fmt.Errorf("personality %d of %d", st.personality, personalities)
	}
	f.Personality = st.personality
	if f.Personality >= 0 {
		// LSDAs ascend with functions.
		f.LSDA = st.lsda + Addr(body.uleb())
		st.lsda = f.LSDA
		if f.Sites, err = readSites(&body, &f); err != nil {
			return f, err
		}
	}
	// The body must end with the last site.
	if body.bad || body.pos != len(body.b) {
		return f, errors.New("size")
	}
	st.end = f.End
	return f, nil
}

// readSites reads the sites of a function up to the end of its body.
func readSites(r *reader, f *Function) (list []Site, err error) {
	for end := f.Start; !r.bad && r.pos < len(r.b); {
		s := readSite(r, end, f)
		if r.bad || !s.inside(f, end) {
			return nil, fmt.Errorf("site %d", len(list))
		}
		list = append(list, s)
		end = s.End
	}
	return list, nil
}

// readSite reads what Site.append has written; end is the end of the site before.
func readSite(r *reader, end Addr, f *Function) Site {
	// The gap and the form share a number.
	gap := r.uleb()
	s := Site{Start: end + Addr(gap/forms), Kind: Skip}
	s.End = s.Start + callSize
	switch gap % forms {
	case formCleanup:
		s.Kind = Cleanup
	case formOther:
		v := r.uleb()
		s.Kind, s.End = Kind(v&7), s.Start+Addr(v>>3)
	}
	// A second kind follows the arguments; they occur only where a pad is entered or the routine
	// asked.
	if s.Kind == kindArgs {
		s.Args = r.uleb()
		s.Kind = Kind(min(r.uleb(), kindArgs))
		r.bad = r.bad || s.Args == 0 || s.Args%8 != 0 || s.Args > MaxArgs || !s.Kind.HasPad() && s.Kind != Ask
	}
	if s.Kind.HasPad() {
		// Pads are counted back from the function's end.
		s.Pad = f.End - Addr(r.uleb())
	}
	return s
}

// inside reports whether a site lies in its function behind end, the end of the site before, and its pad lies in the
// function.
func (s *Site) inside(f *Function, end Addr) bool {
	return s.Kind <= Ask && s.Start >= end && s.End > s.Start && s.End <= f.End &&
		(!s.Kind.HasPad() || s.Pad >= f.Start && s.Pad < f.End)
}

// reader reads LEB128 numbers of at most 64 bits. After a failure, bad is set; numbers are then 0.
type reader struct {
	b   []byte
	pos int
	bad bool
}

// uleb reads a number.
func (r *reader) uleb() uint64 {
	// n is 0 at the end of the bytes, and below 0 beyond 64 bits.
	v, n := binary.Uvarint(r.b[r.pos:])
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.pos += n
	return v
}

// bytes returns the next n bytes, which it does not copy.
func (r *reader) bytes(n uint64) []byte {
	if r.bad || n > uint64(len(r.b)-r.pos) {
		r.bad = true
		return nil
	}
	b := r.b[r.pos : r.pos+int(n)]
	r.pos += int(n)
	return b
}
