package sframe

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// randomEntries makes functions that a version can say.
func randomEntries(r *rand.Rand, version uint8) []Entry {
	addr := uint64(0x1000 + r.IntN(1<<20))
	offset := func() int32 { return int32(r.Uint64()) >> (r.IntN(4) * 8) }
	rule := func() Rule {
		switch r.IntN(4) {
		case 0:
			return Rule{Base: OnReg, Reg: uint8(r.IntN(32)), Offset: offset()}
		case 1:
			return Rule{Base: OnReg, Reg: uint8(r.IntN(32)), Offset: offset(), Deref: true}
		case 2:
			return Rule{}
		}
		return saved(offset())
	}
	entries := make([]Entry, r.IntN(6))
	for i := range entries {
		e := &entries[i]
		e.Start, e.Size = addr, 1+r.Uint32N(1<<(1+r.IntN(18)))
		addr += uint64(e.Size) + uint64(r.IntN(64))
		e.Signal = version == 3 && r.IntN(4) == 0
		if r.IntN(4) == 0 {
			e.Repeat = 16
		}
		start, flexible := uint32(r.IntN(2)), version == 3 && r.IntN(2) == 0
		for range r.IntN(20) {
			row := Row{Start: start, CFA: Rule{Base: OnReg, Reg: 6 + uint8(r.IntN(2)), Offset: offset()}, RA: saved(-8)}
			start += 1 + uint32(r.IntN(1<<(r.IntN(16))))
			switch {
			case version > 1 && r.IntN(8) == 0:
				row = Row{Start: row.Start, Outermost: true}
			case flexible:
				row.CFA.Reg, row.CFA.Deref = uint8(r.IntN(32)), r.IntN(2) == 0
				if row.FP = rule(); r.IntN(2) == 0 {
					row.RA = rule()
				}
				if row.RA.Base == NotSaved {
					row.RA = saved(-8)
				}
			case r.IntN(2) == 0:
				row.FP = saved(offset())
			}
			e.Rows = append(e.Rows, row)
		}
	}
	return entries
}

// decode reads all functions and rows of a section.
func decode(addr uint64, b []byte) (list []Entry, err error) {
	s, err := Parse(addr, b)
	if err != nil {
		return nil, err
	}
	var errs []error
	for i := range s.Len() {
		f, err := s.Function(i)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		e := Entry{Start: f.Start, Size: f.Size, Repeat: f.Repeat, Signal: f.Signal}
		for row, err := range s.All(&f) {
			if err != nil {
				errs = append(errs, err)
				break
			}
			e.Rows = append(e.Rows, row)
		}
		list = append(list, e)
	}
	return list, errors.Join(errs...)
}

func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		opt := Options{Version: uint8(1 + i%3), Addr: r.Uint64N(1 << 24)}
		opt.PCRel = opt.Version > 1 && r.IntN(2) == 0
		entries := randomEntries(r, opt.Version)
		b, err := Encode(opt, entries)
		require.NoError(t, err)
		s, err := Parse(opt.Addr, b)
		require.NoError(t, err)
		assert.Equal(t, len(b), s.Size())
		got, err := decode(opt.Addr, append(b, make([]byte, r.IntN(4))...))
		require.NoError(t, err)
		require.Equal(t, len(entries), len(got))
		for j := range entries {
			require.Equal(t, entries[j], got[j])
		}
	}
}

// TestBytes writes the examples that are short enough to be written by hand.
func TestBytes(t *testing.T) {
	entries := []Entry{{Start: 0x1010, Size: 0x20, Rows: []Row{
		{CFA: Rule{Base: OnReg, Reg: 7, Offset: 8}, RA: saved(-8)},
		{Start: 4, CFA: Rule{Base: OnReg, Reg: 6, Offset: 0x100}, RA: saved(-8), FP: saved(-16)},
	}}}
	rows := []byte{0, 1<<1 | 1, 8, 4, 2<<1 | 1<<5, 0, 1, 0xf0, 0xff}
	header := func(version, flags byte, fde int) []byte {
		return []byte{0xe2, 0xde, version, flags, 3, 0, 0xf8, 0, 1, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0,
			byte(fde), 0, 0, 0}
	}
	for _, c := range []struct {
		opt  Options
		want [][]byte
	}{
		{Options{Version: 1, Addr: 0x2000}, [][]byte{header(1, 1, 17),
			{0x10, 0xf0, 0xff, 0xff, 0x20, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0}, rows}},
		{Options{Version: 2, Addr: 0x1000}, [][]byte{header(2, 1, 20),
			{0x10, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}, rows}},
		{Options{Version: 2, Addr: 0x1000, PCRel: true}, [][]byte{header(2, 5, 20),
			{0xf4, 0xff, 0xff, 0xff, 0x20, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}, rows}},
	} {
		b, err := Encode(c.opt, entries)
		require.NoError(t, err)
		var want []byte
		for _, part := range c.want {
			want = append(want, part...)
		}
		assert.Equal(t, want, b, "%+v", c.opt)
	}
	b, err := Encode(Options{Version: 3, Addr: 0x1000}, []Entry{{Start: 0x1010, Size: 0x20, Signal: true, Rows: []Row{{
		CFA: Rule{Base: OnReg, Reg: 7, Offset: 64, Deref: true},
		RA:  Rule{Base: OnReg, Reg: 7, Offset: 72, Deref: true}, FP: Rule{Base: OnReg, Reg: 12},
	}}}})
	require.NoError(t, err)
	assert.Equal(t, []byte{
		0xe2, 0xde, 3, 1, 3, 0, 0xf8, 0, 1, 0, 0, 0, 1, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0,
		0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0,
		1, 0, 0x80, 1, 0, // attributes: one row, signal, flexible
		0, 6<<1 | 1, 7<<3 | 3, 64, 7<<3 | 3, 72, 12<<3 | 1, 0,
	}, b)
}

func TestCannotSay(t *testing.T) {
	plain := Row{CFA: Rule{Base: OnReg, Reg: 7, Offset: 8}, RA: saved(-8)}
	with := func(change func(*Row)) Row {
		r := plain
		change(&r)
		return r
	}
	for _, c := range []struct {
		row    Row
		signal bool
		can    [4]bool // by version
	}{
		{row: plain, can: [4]bool{1: true, 2: true, 3: true}},
		{row: plain, signal: true, can: [4]bool{3: true}},
		{row: Row{Outermost: true}, can: [4]bool{2: true, 3: true}},
		{row: with(func(r *Row) { r.CFA.Reg = 10 }), can: [4]bool{3: true}},
		{row: with(func(r *Row) { r.CFA.Deref = true }), can: [4]bool{3: true}},
		{row: with(func(r *Row) { r.RA.Offset = -16 }), can: [4]bool{3: true}},
		{row: with(func(r *Row) { r.FP = Rule{Base: OnReg, Reg: 3} }), can: [4]bool{3: true}},
		{row: with(func(r *Row) { r.FP = Rule{Base: OnCFA, Offset: 8} })},
		{row: with(func(r *Row) { r.CFA = Rule{Base: OnCFA} })},
		{row: with(func(r *Row) { r.RA = Rule{} })},
	} {
		for version := uint8(1); version <= 3; version++ {
			_, err := Encode(Options{Version: version}, []Entry{{Size: 1, Signal: c.signal, Rows: []Row{c.row}}})
			if c.can[version] {
				assert.NoError(t, err, "version %d: %+v", version, c.row)
			} else {
				assert.ErrorIs(t, err, ErrCannotSay, "version %d: %+v", version, c.row)
			}
		}
	}
	_, err := Encode(Options{Version: 2}, []Entry{{Start: 1 << 31}})
	assert.ErrorIs(t, err, ErrCannotSay, "too far")
	_, err = Encode(Options{Version: 2}, []Entry{{Start: 2}, {Start: 1}})
	assert.ErrorIs(t, err, ErrMalformed)
	_, err = Encode(Options{Version: 2}, []Entry{{Rows: []Row{plain, plain}}})
	assert.ErrorIs(t, err, ErrMalformed)
	_, err = Encode(Options{Version: 4}, nil)
	assert.ErrorIs(t, err, ErrUnsupported)
}

func TestBadSections(t *testing.T) {
	good, err := Encode(Options{Version: 2},
		[]Entry{{Start: 0x1000, Size: 16, Rows: []Row{{CFA: Rule{Base: OnReg, Reg: 7, Offset: 8}, RA: saved(-8)}}}})
	require.NoError(t, err)
	const fde, row = headerSize, headerSize + fdeSizeV2
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		want   error
	}{
		"short header":       {func(b []byte) []byte { return b[:27] }, ErrTruncated},
		"magic":              {func(b []byte) []byte { b[0]++; return b }, ErrMalformed},
		"big-endian":         {func(b []byte) []byte { b[0], b[1] = b[1], b[0]; return b }, ErrMalformed},
		"version":            {func(b []byte) []byte { b[2] = 4; return b }, ErrUnsupported},
		"no version":         {func(b []byte) []byte { b[2] = 0; return b }, ErrUnsupported},
		"flags":              {func(b []byte) []byte { b[3] = 8; return b }, ErrUnsupported},
		"ABI":                {func(b []byte) []byte { b[4] = 2; return b }, ErrUnsupported},
		"functions":          {func(b []byte) []byte { b[8] = 3; return b }, ErrTruncated},
		"rows":               {func(b []byte) []byte { b[16]++; return b }, ErrTruncated},
		"rows of a function": {func(b []byte) []byte { b[fde+8] = 4; return b }, ErrTruncated},
		"number of rows":     {func(b []byte) []byte { b[fde+12] = 2; return b }, ErrTruncated},
		"row type":           {func(b []byte) []byte { b[fde+16] = 3; return b }, ErrMalformed},
		"unknown info":       {func(b []byte) []byte { b[fde+16] = 0x80; return b }, ErrUnsupported},
		"blocks of nothing":  {func(b []byte) []byte { b[fde+16] = 0x10; return b }, ErrMalformed},
		"word size":          {func(b []byte) []byte { b[row+1] |= 0x60; return b }, ErrMalformed},
		"words":              {func(b []byte) []byte { b[row+1] += 2; return b }, ErrTruncated},
		"mangled":            {func(b []byte) []byte { b[row+1] |= 0x80; return b }, ErrUnsupported},
		"three words are many": {func(b []byte) []byte { b[row+1] = 3<<1 | 1; b[16] += 2; return append(b, 0, 0) },
			ErrMalformed},
	} {
		_, err := decode(0, c.change(append([]byte(nil), good...)))
		assert.ErrorIs(t, err, c.want, name)
	}
}

// TestNoWords has a row without data words: the end of the stack, but not in version 1.
func TestNoWords(t *testing.T) {
	for version := uint8(1); version <= 3; version++ {
		b, err := Encode(Options{Version: version},
			[]Entry{{Size: 1, Rows: []Row{{CFA: Rule{Base: OnReg, Reg: 7}, RA: saved(-8)}}}})
		require.NoError(t, err)
		b[len(b)-2] = 1
		list, err := decode(0, b)
		if version == 1 {
			assert.ErrorIs(t, err, ErrMalformed)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, []Row{{Outermost: true}}, list[0].Rows)
	}
}

// TestMutations changes bytes of sections: whatever they say, reading ends, with rows that
// ascend, and what is read and can be written is read again.
func TestMutations(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	failed := 0
	for i := range 20000 {
		version := uint8(1 + i%3)
		b, err := Encode(Options{Version: version}, randomEntries(r, version))
		require.NoError(t, err)
		for range 1 + r.IntN(8) {
			switch r.IntN(8) {
			case 0:
				b = b[:r.IntN(len(b)+1)]
			case 1:
				b = append(b, byte(r.Uint32()))
			}
			if len(b) > 0 {
				off := r.IntN(len(b))
				if r.IntN(2) == 0 {
					off = r.IntN(min(len(b), 60))
				}
				b[off] = byte(r.Uint32())
			}
		}
		if !checkRead(t, b) {
			failed++
		}
	}
	t.Logf("%d of 20000 end in an error", failed)
	assert.Greater(t, failed, 10000)
	assert.Less(t, failed, 20000)
}

// checkRead reads a section and reports whether it is without error.
func checkRead(t *testing.T, b []byte) bool {
	list, err := decode(0x1000, b)
	if err != nil {
		known := errors.Is(err, ErrTruncated) || errors.Is(err, ErrMalformed) || errors.Is(err, ErrUnsupported)
		require.True(t, known, err)
	}
	for i := range list {
		last := int64(-1)
		for _, row := range list[i].Rows {
			require.Greater(t, int64(row.Start), last)
			last = int64(row.Start)
			require.True(t, row.Outermost || row.CFA.Base == OnReg && row.RA.Base != NotSaved || len(b) > 6 &&
				b[6] == 0, row)
		}
	}
	return err == nil
}

func FuzzParse(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 6 {
		version := uint8(1 + i%3)
		b, err := Encode(Options{Version: version}, randomEntries(r, version))
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { checkRead(t, b) })
}
