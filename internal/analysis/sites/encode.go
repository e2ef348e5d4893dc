package sites

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Numbers of the format, docs/abi.md section 6.
const (
	headerSize      = 24
	personalitySize = 16
	groupSize       = 8
	perGroup        = 32 // functions in a group

	personalityIndirect = 1 << 0

	alignment = 16 // of most functions

	// Most calls have a displacement of 32 bits, and most sites are one call.
	callSize = 5

	// The distance of a site is multiplied by forms.
	formSkip    = 0 // a skip of callSize
	formCleanup = 1 // a cleanup of callSize
	formOther   = 2 // size and kind follow
	forms       = 3

	// In the place of the kind: arguments and kind follow.
	kindArgs = 6
)

// ErrFormat is wrapped by the errors of Encode and Decode.
var ErrFormat = errors.New("malformed table of sites")

func aligned(a Addr) Addr { return (a + alignment - 1) &^ (alignment - 1) }

// Encode returns the encoded table; it is empty if there is no function.
func (t *Table) Encode() ([]byte, error) {
	if len(t.Functions) == 0 {
		return nil, nil
	}
	base := t.Functions[0].Start
	if last := t.Functions[len(t.Functions)-1]; last.End-base > 1<<32-1 {
		return nil, fmt.Errorf("%w: functions %#x bytes apart", ErrFormat, uint64(last.End-base))
	}
	le := binary.LittleEndian
	var groups, stream []byte
	var at, lsda Addr
	personality := -2 // of the function before
	for i, f := range t.Functions {
		if i%perGroup == 0 {
			at, lsda, personality = f.Start, base, -2
			groups = le.AppendUint32(groups, uint32(f.Start-base))
			groups = le.AppendUint32(groups, uint32(len(stream)))
		}
		var body []byte
		start := uint64(f.Start-at)<<2 | 2
		if f.Start%alignment == 0 {
			start = uint64(f.Start-aligned(at)) / alignment << 2
		}
		if f.Personality != personality {
			start |= 1
			body = binary.AppendUvarint(body, uint64(f.Personality+1))
			personality = f.Personality
		}
		if f.Personality >= 0 {
			body = binary.AppendUvarint(body, uint64(f.LSDA-lsda))
			lsda = f.LSDA
			site := f.Start
			for _, s := range f.Sites {
				size, form := uint64(s.End-s.Start), uint64(formOther)
				switch {
				case s.Args != 0:
				case size == callSize && s.Kind == Cleanup:
					form = formCleanup
				case size == callSize && s.Kind == Skip:
					form = formSkip
				}
				body = binary.AppendUvarint(body, uint64(s.Start-site)*forms+form)
				switch {
				case s.Args != 0:
					body = binary.AppendUvarint(body, size<<3|kindArgs)
					body = binary.AppendUvarint(body, s.Args)
					body = binary.AppendUvarint(body, uint64(s.Kind))
				case form == formOther:
					body = binary.AppendUvarint(body, size<<3|uint64(s.Kind))
				}
				site = s.End
				if s.Kind.HasPad() {
					body = binary.AppendUvarint(body, uint64(f.End-s.Pad))
				}
			}
		}
		stream = binary.AppendUvarint(stream, start)
		stream = binary.AppendUvarint(stream, uint64(f.End-f.Start))
		stream = binary.AppendUvarint(stream, uint64(len(body)))
		stream = append(stream, body...)
		at = f.End
	}
	var b []byte
	b = le.AppendUint64(b, uint64(base))
	b = le.AppendUint32(b, uint32(len(t.Functions)))
	b = le.AppendUint32(b, uint32(len(groups)/groupSize))
	b = le.AppendUint32(b, uint32(len(t.Personalities)))
	b = le.AppendUint32(b, uint32(len(stream)))
	for _, p := range t.Personalities {
		b = le.AppendUint64(b, uint64(p.Addr))
		flags := uint64(0)
		if p.Indirect {
			flags |= personalityIndirect
		}
		b = le.AppendUint64(b, flags)
	}
	b = append(b, groups...)
	return append(b, stream...), nil
}

// Decode is the inverse of Encode, except that names of personality routines
// are lost. Any bytes give an error or a table that satisfies the documentation
// of Table.
func Decode(b []byte) (*Table, error) {
	t := &Table{}
	if len(b) == 0 {
		return t, nil
	}
	bad := func(format string, args ...any) (*Table, error) {
		return nil, fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
	}
	if len(b) < headerSize {
		return bad("%d bytes", len(b))
	}
	le := binary.LittleEndian
	base := Addr(le.Uint64(b))
	functions, groups, personalities, size := uint64(le.Uint32(b[8:])), uint64(le.Uint32(b[12:])), uint64(le.Uint32(b[16:])), uint64(le.Uint32(b[20:]))
	b = b[headerSize:]
	if uint64(len(b)) != personalities*personalitySize+groups*groupSize+size || groups != (functions+perGroup-1)/perGroup || functions > size {
		return bad("%d functions, %d groups, %d personalities and %d bytes in %d", functions, groups, personalities, size, len(b))
	}
	for range personalities {
		t.Personalities = append(t.Personalities, Personality{Addr: Addr(le.Uint64(b)), Indirect: b[8]&personalityIndirect != 0})
		b = b[personalitySize:]
	}
	index, stream := b[:groups*groupSize], b[groups*groupSize:]
	r := reader{b: stream}
	var at, lsda, end Addr
	var personality int
	for i := range functions {
		if i%perGroup == 0 {
			g := index[i/perGroup*groupSize:]
			if uint64(le.Uint32(g[4:])) != uint64(r.pos) {
				return bad("group %d", i/perGroup)
			}
			at, lsda, personality = base+Addr(le.Uint32(g)), base, -2
		}
		f := Function{Personality: -1}
		start := r.uleb()
		if f.Start = at + Addr(start>>2); start&2 == 0 {
			f.Start = aligned(at) + Addr(start>>2)*alignment
		}
		size := r.uleb()
		f.End = f.Start + Addr(size)
		body := reader{b: r.bytes(r.uleb())}
		if r.bad || start>>2 > 1<<32 || size > 1<<32 || f.Start < end || f.End <= f.Start {
			return bad("function %d", i)
		}
		if start&1 != 0 {
			personality = int(min(body.uleb(), personalities+1)) - 1
		}
		f.Personality = personality
		if f.Personality < -1 || f.Personality >= int(personalities) {
			return bad("function %d: personality %d of %d", i, f.Personality, personalities)
		}
		if f.Personality >= 0 {
			f.LSDA = lsda + Addr(body.uleb())
			lsda = f.LSDA
			for site := f.Start; !body.bad && body.pos < len(body.b); {
				gap := body.uleb()
				s := Site{Start: site + Addr(gap/forms), Kind: Skip}
				s.End = s.Start + callSize
				switch gap % forms {
				case formCleanup:
					s.Kind = Cleanup
				case formOther:
					v := body.uleb()
					s.Kind, s.End = Kind(v&7), s.Start+Addr(v>>3)
				}
				if s.Kind == kindArgs {
					s.Args = body.uleb()
					s.Kind = Kind(min(body.uleb(), kindArgs))
					if s.Args == 0 || s.Args%8 != 0 || s.Args > MaxArgs || !s.Kind.HasPad() && s.Kind != Ask {
						return bad("function %d: arguments of site %d", i, len(f.Sites))
					}
				}
				if s.Kind.HasPad() {
					s.Pad = f.End - Addr(body.uleb())
				}
				if body.bad || s.Kind > Ask || s.Start < site || s.End <= s.Start || s.End > f.End ||
					s.Kind.HasPad() && (s.Pad < f.Start || s.Pad >= f.End) {
					return bad("function %d: site %d", i, len(f.Sites))
				}
				f.Sites = append(f.Sites, s)
				site = s.End
			}
		}
		if body.bad || body.pos != len(body.b) {
			return bad("function %d", i)
		}
		t.Functions = append(t.Functions, f)
		at, end = f.End, f.End
	}
	if r.pos != len(stream) {
		return bad("%d bytes too many", len(stream)-r.pos)
	}
	return t, nil
}

// reader reads LEB128 numbers of at most 64 bits.
type reader struct {
	b   []byte
	pos int
	bad bool
}

func (r *reader) uleb() uint64 {
	v, n := binary.Uvarint(r.b[r.pos:])
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.pos += n
	return v
}

func (r *reader) bytes(n uint64) []byte {
	if r.bad || n > uint64(len(r.b)-r.pos) {
		r.bad = true
		return nil
	}
	b := r.b[r.pos : r.pos+int(n)]
	r.pos += int(n)
	return b
}
