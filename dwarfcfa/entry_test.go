package dwarfcfa

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLEB128(t *testing.T) {
	for _, v := range []uint64{0, 1, 127, 128, 1 << 32, 1<<63 - 1, 1 << 63, math.MaxUint64} {
		c := cursor{data: uleb(v)}
		assert.Equal(t, v, c.uleb())
		assert.NoError(t, c.err)
		assert.True(t, c.done())
	}
	for _, v := range []int64{0, 1, -1, 63, 64, -64, -65, 1 << 55, -1 << 55, 1 << 56, -1 << 56, 1 << 62, -1 << 62,
		math.MaxInt64, math.MinInt64} {
		c := cursor{data: sleb(v)}
		assert.Equal(t, v, c.sleb())
		assert.NoError(t, c.err)
		assert.True(t, c.done())
	}
	padded := []struct {
		bytes string
		u     uint64
		s     int64
	}{
		{"\x80\x00", 0, 0},
		{"\xff\x00", 127, 127},
		{"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 0, 0},
		{"\x81\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 1, 1},
	}
	for _, p := range padded {
		u, s := cursor{data: []byte(p.bytes)}, cursor{data: []byte(p.bytes)}
		assert.Equal(t, p.u, u.uleb())
		assert.Equal(t, p.s, s.sleb())
		assert.NoError(t, u.err)
		assert.NoError(t, s.err)
	}
	c := cursor{data: []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f")}
	assert.Equal(t, int64(-1), c.sleb())
	assert.NoError(t, c.err)
	for _, bad := range []string{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
		"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"} {
		c := cursor{data: []byte(bad)}
		assert.Zero(t, c.uleb())
		assert.ErrorIs(t, c.err, ErrBadEncoding)
	}
	for _, bad := range []string{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x7e", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		c := cursor{data: []byte(bad)}
		assert.Zero(t, c.sleb())
		assert.ErrorIs(t, c.err, ErrBadEncoding, "%x", bad)
	}
}

func TestPointers(t *testing.T) {
	bases := Bases{Text: 0x100, Data: 0x200, Word: func(a Addr) (uint64,
		bool) {
		return uint64(a) * 2, a == testAddr+8
	}}
	tests := []struct {
		enc  PointerEncoding
		data []byte // at testAddr+4
		want Addr
		text string
	}{
		{PEAbsPtr, le64(1 << 40), 1 << 40, "absptr"},
		{PESigned, le64(5), 5, "signed"},
		{PEULEB128, uleb(300), 300, "uleb128"},
		{PESLEB128, sleb(-2), 1<<64 - 2, "sleb128"},
		{PEUData2, []byte{0xfe, 0xff}, 0xfffe, "udata2"},
		{PESData2, []byte{0xfe, 0xff}, 1<<64 - 2, "sdata2"},
		{PEUData4, le32(0xfffffffe), 0xfffffffe, "udata4"},
		{PESData4, le32(0xfffffffe), 1<<64 - 2, "sdata4"},
		{PEUData8, le64(7), 7, "udata8"},
		{PESData8, le64(7), 7, "sdata8"},
		{PEPCRel | PESData4, le32(0xfffffffc), testAddr, "pcrel sdata4"},
		{PETextRel | PEUData2, []byte{1, 0}, 0x101, "textrel udata2"},
		{PEDataRel | PESData4, le32(1), 0x201, "datarel sdata4"},
		{PEFuncRel | PEULEB128, uleb(3), 0x5003, "funcrel uleb128"},
		{PEAligned, cat([]byte{9, 9, 9, 9}, le64(0x77)), 0x77, "aligned absptr"},
		{PEIndirect | PEPCRel | PESData4, le32(4), 2 * (testAddr + 8), "indirect pcrel sdata4"},
	}
	for _, tc := range tests {
		t.Run(tc.text, func(t *testing.T) {
			s := NewSection("", SourceEHFrame, testAddr, cat([]byte{0, 0, 0, 0}, tc.data), bases)
			c := cursor{data: s.Data, pos: 4}
			assert.Equal(t, tc.want, c.pointer(tc.enc, s, 0x5000))
			require.NoError(t, c.err)
			assert.True(t, c.done())
			assert.Equal(t, tc.text, tc.enc.String())
			if tc.enc&peRelMask != PEAligned {
				short := cursor{data: s.Data[:len(s.Data)-1], pos: 4}
				short.pointer(tc.enc, s, 0x5000)
				assert.ErrorIs(t, short.err, ErrTruncated)
			}
		})
	}
	for _, enc := range []PointerEncoding{PEOmit, 0x05, 0x0d, 0x60, 0x70, PEAligned | PESData4, PEIndirect} {
		s := NewSection("", SourceEHFrame, testAddr, make([]byte, 32), bases)
		c := cursor{data: s.Data}
		c.pointer(enc, s, 0)
		assert.ErrorIs(t, c.err, ErrBadEncoding, "%v", enc)
	}
}

// Each form of CIE, with an FDE of one row that shows it was understood.
func TestCIEs(t *testing.T) {
	pcrel4 := func(off int, target Addr) []byte { return le32(uint32(target - testAddr - Addr(off))) }
	aug := func(version byte, augmentation string, rest ...[]byte) []byte {
		return cat([]byte{version}, []byte(augmentation), []byte{0}, cat(rest...))
	}
	factors := cat(uleb(1), sleb(-8), uleb(16))
	tests := []struct {
		name   string
		cie    []byte // from the version on
		fde    func(pos int) []byte
		signal bool
		lsda   Addr
	}{
		{name: "version 1", cie: aug(1, "", factors, usualCIE())},
		{name: "version 3", cie: aug(3, "", uleb(1), sleb(-8), []byte{0x90, 0}, usualCIE())},
		{name: "version 4", cie: aug(4, "", []byte{8, 0}, factors, usualCIE())},
		{name: "z alone", cie: aug(1, "z", factors, uleb(0), usualCIE()),
			fde: func(int) []byte { return cat(le64(testCode), le64(0x10), uleb(0)) }},
		{name: "zR", cie: aug(1, "zR", factors, uleb(1), []byte{0x1b}, usualCIE()),
			fde: func(pos int) []byte { return cat(pcrel4(pos, testCode), le32(0x10), uleb(0)) }},
		{name: "zRS", cie: aug(1, "zRS", factors, uleb(1), []byte{0x1b}, usualCIE()), signal: true,
			fde: func(pos int) []byte { return cat(pcrel4(pos, testCode), le32(0x10), uleb(0)) }},
		{name: "zRB", cie: aug(1, "zRB", factors, uleb(1), []byte{0x1b}, usualCIE()),
			fde: func(pos int) []byte { return cat(pcrel4(pos, testCode), le32(0x10), uleb(0)) }},
		{name: "zPLR", cie: aug(1, "zPLR", factors, uleb(7), []byte{0x9b, 1, 2, 3, 4, 0x03, 0x1b}, usualCIE()),
			lsda: 0x1234,
			fde:  func(pos int) []byte { return cat(pcrel4(pos, testCode), le32(0x10), uleb(4), le32(0x1234)) }},
		{name: "zPLR without an LSDA", cie: aug(1, "zPLR", factors, uleb(7), []byte{0x9b, 1, 2, 3, 4, 0x1b, 0x1b},
			usualCIE()),
			fde: func(pos int) []byte { return cat(pcrel4(pos, testCode), le32(0x10), uleb(4), le32(0)) }},
		{name: "augmentation data longer than known", cie: aug(1, "zR", factors, uleb(3), []byte{0x1b, 9, 9},
			usualCIE()),
			fde: func(pos int) []byte { return cat(pcrel4(pos, testCode), le32(0x10), uleb(2), []byte{9, 9}) }},
		{name: "letters without z", cie: aug(1, "RS", factors, []byte{0x03}, usualCIE()), signal: true,
			fde: func(int) []byte { return cat(le32(testCode), le32(0x10)) }},
		{name: "eh", cie: aug(1, "eh", le64(1), factors, usualCIE())},
		{name: "udata2", cie: aug(1, "zR", factors, uleb(1), []byte{0x22}, usualCIE()), // textrel
			fde: func(int) []byte { return cat([]byte{0, 0x10}, []byte{0x10, 0}, uleb(0)) }},
		{name: "uleb128", cie: aug(1, "zR", factors, uleb(1), []byte{0x01}, usualCIE()),
			fde: func(int) []byte { return cat(uleb(testCode), uleb(0x10), uleb(0)) }},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			for _, b := range []*sectionBuilder{{}, {is64: true}, {debug: true}, {debug: true, is64: true}} {
				cie := b.rawCIE(tc.cie)
				pos := len(b.b) + 8
				if b.is64 {
					pos += 8
					if b.debug {
						pos += 4
					}
				}
				content := cat(le64(testCode), le64(0x10))
				if tc.fde != nil {
					content = tc.fde(pos)
				}
				b.rawFDE(cie, content)
				s := b.section()
				s.bases.Text = testCode - 0x1000
				if b.debug {
					s.Addr = testAddr // for the pc-relative ones
				}
				fde := firstFDE(t, s)
				assert.Equal(t, Addr(testCode), fde.Start)
				assert.Equal(t, Addr(testCode+0x10), fde.End)
				assert.Equal(t, tc.signal, fde.CIE.Signal)
				assert.Equal(t, tc.lsda, fde.LSDA)
				assert.Equal(t, tc.lsda != 0, fde.HasLSDA)
				assert.Equal(t, uint64(16), fde.CIE.RA)
				table, rep := build(t, s)
				assert.Empty(t, rep.LostFDEs)
				want := "000..010 rsp+8 ra=c-8"
				if tc.signal {
					want += " signal"
				}
				assert.Equal(t, []string{want}, rowTexts(table))
			}
		})
	}
}

// In the 64-bit format of .eh_frame, ids of 8 bytes are read too.
func TestEHFrame64WithWideIDs(t *testing.T) {
	s := sectionBuilder{is64: true}
	cie := s.rawCIE(cat(le32(0), []byte{1, 0}, uleb(1), sleb(-8), []byte{16}, usualCIE()))
	s.rawFDE(cie, cat(le32(0), le64(testCode), le64(0x10), def(24)))
	table, _ := build(t, s.section())
	assert.Equal(t, []string{"000..010 rsp+24 ra=c-8"}, rowTexts(table))
}

// A CIE may come after its FDE, and one after a terminator counts as well.
func TestOrderOfEntries(t *testing.T) {
	t.Run("CIE after its FDE", func(t *testing.T) {
		s := sectionBuilder{debug: true}
		const fdeSize = 4 + 4 + 16
		s.fde(fdeSize, testCode, 0x10)
		s.cie()
		table, _ := build(t, s.section())
		assert.Equal(t, []string{"000..010 rsp+8 ra=c-8"}, rowTexts(table))
	})
	t.Run("terminators", func(t *testing.T) {
		var s sectionBuilder
		cie := s.cie()
		s.fde(cie, testCode, 0x10)
		s.b = append(s.b, 0, 0, 0, 0, 0, 0, 0, 0)
		s.fde(cie, testCode+0x20, 0x10, def(16))
		s.b = append(s.b, 0, 0, 0, 0)
		sec := s.section()
		table, rep := build(t, sec)
		assert.Len(t, table.Ranges, 2)
		assert.Equal(t, 2, rep.Entries.FDEs)
		sec.walked = untilTerminator(sec.Data)
		table, _ = build(t, sec)
		assert.Len(t, table.Ranges, 1)
	})
	t.Run("a few zeros at the end", func(t *testing.T) {
		var s sectionBuilder
		s.fde(s.cie(), testCode, 0x10)
		s.b = append(s.b, 0, 0, 0)
		_, rep := build(t, s.section())
		assert.Zero(t, rep.Entries.Lost)
	})
}

// What costs an FDE. good is an FDE before, which survives.
func TestBadEntries(t *testing.T) {
	plain := func(s *sectionBuilder, cie int) { s.fde(cie, testCode+0x20, 0x10) }
	bad := func(content []byte) func(*sectionBuilder) {
		return func(s *sectionBuilder) { plain(s, s.rawCIE(content)) }
	}
	good := cat([]byte{1, 0}, uleb(1), sleb(-8), []byte{16}, usualCIE())
	tests := []struct {
		name string
		add  func(s *sectionBuilder)
		kind error
		want string
	}{
		{"CIE version 0", bad([]byte{0, 0, 1, 1, 16}), ErrUnsupported, "unknown CIE version 0"},
		{"CIE version 2", bad([]byte{2, 0, 1, 1, 16}), ErrUnsupported, "unknown CIE version 2"},
		{"CIE version 5", bad([]byte{5, 0, 1, 1, 16}), ErrUnsupported, "unknown CIE version 5"},
		{"address size", bad(cat([]byte{4, 0, 4, 0}, good[2:])), ErrUnsupported, "CIE with an address size of 4"},
		{"segment size", bad(cat([]byte{4, 0, 8, 2}, good[2:])), ErrUnsupported,
			"CIE with a segment selector of 2 bytes"},
		{"unknown augmentation", bad(cat([]byte{1, 'x', 0}, good[2:])), ErrUnsupported, `unknown CIE augmentation "x"`},
		{"z not first", bad(cat([]byte{1, 'R', 'z', 0}, uleb(1), sleb(-8), []byte{16, 0, 0})), ErrUnsupported,
			`unknown CIE augmentation "Rz"`},
		{"augmentation without an end", bad([]byte{1, 'z', 'R'}), ErrTruncated,
			"truncated: a string runs past the end"},
		{"augmentation data past the end", bad(cat([]byte{1, 'z', 'R', 0}, uleb(1), sleb(-8), []byte{16, 200, 1})),
			ErrTruncated, "truncated: a block"},
		{"augmentation data too short",
			bad(cat([]byte{1, 'z', 'R', 0}, uleb(1), sleb(-8), []byte{16, 0}, usualCIE())), ErrTruncated,
			"truncated: a byte"},
		{"empty CIE", bad(nil), ErrTruncated, "truncated: a byte"},
		{"long LEB128 in a CIE", bad(cat([]byte{1, 0}, []byte(strings.Repeat("\xff", 10)), []byte{1, 1, 16})),
			ErrBadEncoding, "LEB128 number over 64 bits"},
		{"bad initial instructions", bad(cat([]byte{1, 0}, uleb(1), sleb(-8), []byte{16, 0x0b})), ErrBadEncoding,
			"DW_CFA_restore_state with an empty stack"},
		{"omitted FDE pointers", bad(cat([]byte{1, 'z', 'R', 0}, uleb(1), sleb(-8), []byte{16, 1, 0xff}, usualCIE())),
			ErrBadEncoding, "pointer encoded as omitted"},
		{"unknown pointer encoding",
			bad(cat([]byte{1, 'z', 'R', 0}, uleb(1), sleb(-8), []byte{16, 1, 0x1d}, usualCIE())), ErrBadEncoding,
			"unknown pointer encoding 0x1d"},
		{"CIE pointer before the section", func(s *sectionBuilder) { plain(s, -0x1000) }, ErrBadEncoding,
			"leads before the section"},
		{"CIE pointer to the FDE itself", func(s *sectionBuilder) { plain(s, len(s.b)) }, ErrBadEncoding,
			"leads to the FDE itself"},
		{"CIE pointer to an FDE", func(s *sectionBuilder) {
			plain(s, s.fde(0, testCode+0x40, 0x10))
		}, ErrBadEncoding, "an FDE where a CIE should be"},
		{"CIE pointer to a terminator", func(s *sectionBuilder) {
			off := len(s.b)
			s.b = append(s.b, 0, 0, 0, 0)
			plain(s, off)
		}, ErrBadEncoding, "a terminator where a CIE should be"},
		{"CIE pointer into nowhere", func(s *sectionBuilder) { plain(s, 8) }, ErrBadEncoding,
			"the middle of an entry where a CIE should be"},
		{"CIE pointer to a CIE inside an entry", func(s *sectionBuilder) {
			inner := cat(le32(uint32(4+len(good))), le32(0), good)
			off := s.rawCIE(cat(good, inner)) + 8 + len(good)
			plain(s, off)
		}, ErrBadEncoding, "the middle of an entry where a CIE should be"},
		{"FDE too short", func(s *sectionBuilder) { s.rawFDE(0, []byte{1, 2, 3}) }, ErrTruncated, "truncated: a block"},
		{"FDE shorter than its id", func(s *sectionBuilder) { s.b = append(s.b, 2, 0, 0, 0, 1, 1) }, ErrTruncated,
			"truncated: a block"},
		{"range wraps around", func(s *sectionBuilder) { s.fde(0, testCode, 1<<64-1) }, ErrBadEncoding,
			"pc range 0x10000+0xffffffffffffffff overflows 64 bits"},
		{"length past the end", func(s *sectionBuilder) { s.b = append(s.b, le32(0x1000)...) }, ErrTruncated,
			"truncated: an entry of 0x1000 bytes with 0x0 left in the section"},
		{"absurd 64-bit length",
			func(s *sectionBuilder) { s.b = append(append(s.b, 255, 255, 255, 255), le64(1<<63)...) }, ErrTruncated,
			"truncated: an entry of 0x8000000000000000 bytes"},
		{"cut 64-bit length", func(s *sectionBuilder) { s.b = append(s.b, 255, 255, 255, 255, 0) }, ErrTruncated,
			"truncated: a block"},
		{"reserved length", func(s *sectionBuilder) { s.b = append(s.b, 0xf0, 255, 255, 255) }, ErrBadEncoding,
			"reserved length 0xfffffff0"},
		{"cut length", func(s *sectionBuilder) { s.b = append(s.b, 0, 1) }, ErrTruncated, "truncated: a block"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var s sectionBuilder
			s.fde(s.rawCIE(good), testCode, 0x10)
			tc.add(&s)
			_, rep := build(t, s.section())
			require.Equal(t, 1, rep.Entries.Lost)
			err := rep.LostFDEs[0]
			assert.ErrorIs(t, err, tc.kind)
			assert.Contains(t, err.Error(), tc.want)
			assert.Regexp(t, `^libfoo\.so: \.eh_frame\+0x[0-9a-f]+: `, err.Error())
			table, _, terr := buildSection(s.section(), testImage(nil), BuildOptions{})
			require.NoError(t, terr)
			r, ok := table.Lookup(testCode)
			require.True(t, ok)
			assert.Equal(t, "rsp+8 ra=c-8", table.RowText(r.Row))
		})
	}
	t.Run("CIE pointer of .debug_frame past the section", func(t *testing.T) {
		s := sectionBuilder{debug: true}
		s.fde(0x12345678, testCode, 0x10)
		_, rep := build(t, s.section())
		require.Equal(t, 1, rep.Entries.Lost)
		assert.EqualError(t, rep.LostFDEs[0],
			"libfoo.so: .debug_frame+0x0: CIE pointer 0x12345678 leads past the section")
	})
}

// A bad CIE costs each FDE that uses it, and is decoded once.
func TestBadCIECostsItsFDEs(t *testing.T) {
	var s sectionBuilder
	bad := s.rawCIE([]byte{9})
	good := s.cie()
	for i := range uint64(10) {
		s.fde(bad, testCode+0x20*i, 0x10)
	}
	s.fde(good, testCode+0x400, 0x10)
	table, rep := build(t, s.section())
	assert.Equal(t, 10, rep.Entries.Lost)
	assert.Equal(t, 11, rep.Entries.FDEs)
	assert.Equal(t, 2, rep.Entries.CIEs)
	assert.Len(t, table.Ranges, 1)
	assert.EqualError(t, rep.LostFDEs[0], "libfoo.so: .eh_frame+0x1b: its CIE at +0x0: unknown CIE version 9")
}

func TestTruncatedSections(t *testing.T) {
	var s sectionBuilder
	cie := s.cie()
	s.fde(cie, testCode, 0x20, advance(1), def(16), save(3, 2), advance(4), def(8))
	s.fde(cie, testCode+0x20, 0x20, inst(CFADefCFAExpression, block(0x76, 0x00, 0x06)))
	whole := s.b
	for n := range len(whole) {
		s.b = whole[:n]
		table, rep, err := buildSection(s.section(), testImage(nil), BuildOptions{})
		require.NoError(t, err)
		require.NoError(t, table.Verify())
		for e, err := range s.section().Entries() {
			_, _ = e, err
		}
		_ = rep
	}
}

func TestNothingIsAllocatedForClaims(t *testing.T) {
	b := append([]byte{255, 255, 255, 255}, le64(math.MaxUint64)...)
	s := NewSection("", SourceEHFrame, 0, b, Bases{})
	assert.Less(t, testing.AllocsPerRun(10, func() {
		for range s.Entries() {
		}
	}), 20.0)
	binary.LittleEndian.PutUint64(b[4:], 1<<40)
	for _, err := range s.Entries() {
		assert.ErrorIs(t, err, ErrTruncated)
	}
}

func TestErrorText(t *testing.T) {
	e := &DecodeError{File: "a\nb.so", Section: ".eh_frame", Offset: 0x1c8, HasFDE: true, Start: 0x4010, End: 0x4080,
		Err: cause(ErrBadEncoding, "DW_CFA_restore_state with an empty stack")}
	assert.Equal(t, `"a\nb.so": .eh_frame+0x1c8: FDE 0x4010..0x4080: DW_CFA_restore_state with an empty stack`,
		e.Error())
	assert.ErrorIs(t, e, ErrBadEncoding)
	assert.Equal(t, "libfoo.so", PrintableName("libfoo.so"))
}

func TestSources(t *testing.T) {
	for _, s := range []Source{SourceAuto, SourceEHFrame, SourceDebugFrame} {
		got, err := ParseSource(s.String())
		assert.NoError(t, err)
		assert.Equal(t, s, got)
	}
	_, err := ParseSource("x")
	assert.Error(t, err)
}
