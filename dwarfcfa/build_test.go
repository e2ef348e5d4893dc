package dwarfcfa

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// Addresses of hand-built sections: .eh_frame at testAddr, code from testCode
// on, testCodeSize bytes long.
const (
	testAddr     = 0x2000
	testCode     = 0x10000
	testCodeSize = 0x10000
)

// sectionBuilder lays out a section entry by entry.
type sectionBuilder struct {
	b     []byte
	debug bool // .debug_frame
	is64  bool
}

// The functions that make bytes are called a thousand times: inlined, they took half of the time that the tests compile.
//
//go:noinline
func cat(parts ...[]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

//go:noinline
func le32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }

//go:noinline
func le64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

//go:noinline
func uleb(v uint64) []byte { return binary.AppendUvarint(nil, v) }

//go:noinline
func sleb(v int64) []byte {
	var b []byte
	for {
		low := byte(v & 0x7f)
		v >>= 7
		if v == 0 && low&0x40 == 0 || v == -1 && low&0x40 != 0 {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}

// inst returns an instruction: its encoding and its operands.
//
//go:noinline
func inst(op Op, operands ...[]byte) []byte { return append([]byte{byte(op)}, cat(operands...)...) }

// low is one of the instructions with an operand in the low six bits.
//
//go:noinline
func low(op Op, n byte, operands ...[]byte) []byte { return inst(op|Op(n), operands...) }

//go:noinline
func block(b ...byte) []byte { return append(uleb(uint64(len(b))), b...) }

// entry appends an entry whose content, after the length, is made by body; it
// returns the entry's offset.
func (s *sectionBuilder) entry(body func(idPos int) []byte) int {
	pos := len(s.b)
	head := 4
	if s.is64 {
		head = 12
	}
	content := body(pos + head)
	if s.is64 {
		s.b = append(s.b, 0xff, 0xff, 0xff, 0xff)
		s.b = append(s.b, le64(uint64(len(content)))...)
	} else {
		s.b = append(s.b, le32(uint32(len(content)))...)
	}
	s.b = append(s.b, content...)
	return pos
}

func (s *sectionBuilder) id(v uint64) []byte {
	if s.is64 && s.debug {
		return le64(v)
	}
	return le32(uint32(v))
}

// cie appends a CIE of version 1 with the usual factors and return address
// column, absolute pointers, and the initial instructions of every compiler:
// CFA = rsp+8, ra at c-8. With instructions given, those instead.
func (s *sectionBuilder) cie(insts ...[]byte) int {
	if insts == nil {
		insts = [][]byte{usualCIE()}
	}
	return s.rawCIE(cat([]byte{1, 0}, uleb(1), sleb(-8), []byte{16}, cat(insts...)))
}

func usualCIE() []byte {
	return cat(inst(CFADefCFA, uleb(7), uleb(8)), low(CFAOffset, 16, uleb(1)))
}

// rawCIE appends a CIE with everything from the version on as given.
func (s *sectionBuilder) rawCIE(content []byte) int {
	return s.entry(func(int) []byte {
		id := uint64(0)
		if s.debug {
			id = 1<<64 - 1
		}
		return cat(s.id(id), content)
	})
}

// fde appends an FDE with absolute pointers.
func (s *sectionBuilder) fde(cie int, start, size uint64, insts ...[]byte) int {
	return s.rawFDE(cie, cat(le64(start), le64(size), cat(insts...)))
}

// rawFDE appends an FDE with everything after the CIE pointer as given.
func (s *sectionBuilder) rawFDE(cie int, content []byte) int {
	return s.entry(func(idPos int) []byte {
		id := uint64(cie)
		if !s.debug {
			id = uint64(idPos - cie)
		}
		return cat(s.id(id), content)
	})
}

func (s *sectionBuilder) section() *Section {
	src, addr := SourceEHFrame, Addr(testAddr)
	if s.debug {
		src, addr = SourceDebugFrame, 0
	}
	return NewSection("libfoo.so", src, addr, s.b, Bases{})
}

// testImage is code of int3, as no function's code is.
func testImage(code []byte) codeImage {
	return codeImage{
		segments: []segment{{testCode, testCode + testCodeSize}},
		read: func(addr Addr, b []byte) int {
			if addr < testCode || addr >= testCode+Addr(len(code)) {
				return 0
			}
			return copy(b, code[addr-testCode:])
		},
	}
}

// build makes the table of a section and checks its invariants.
func build(t testing.TB, s *Section) (*Table, *Report) {
	t.Helper()
	return buildOn(t, s, testImage(nil))
}

func buildOn(t testing.TB, s *Section, code codeImage) (*Table, *Report) {
	t.Helper()
	table, rep, err := buildSection(s, code, BuildOptions{})
	require.NoError(t, err)
	require.NoError(t, table.Verify())
	if !rep.Bounded {
		requireLazy(t, table, newLazySection(newCFISource(s), code))
	}
	return table, rep
}

// fdeTable makes the table of one FDE at testCode, of size 0x100, with the
// usual CIE.
func fdeTable(t testing.TB, insts ...[]byte) (*Table, *Report) {
	t.Helper()
	var s sectionBuilder
	s.fde(s.cie(), testCode, 0x100, insts...)
	return build(t, s.section())
}

// rowTexts renders the ranges of a table relative to testCode.
func rowTexts(t *Table) []string {
	var texts []string
	for _, r := range t.Ranges {
		texts = append(texts, span2(r.Start)+".."+span2(r.End)+" "+t.RowText(r.Row))
	}
	return texts
}

func span2(a Addr) string {
	const digits = "0123456789abcdef"
	a -= testCode
	return string([]byte{digits[a>>8&15], digits[a>>4&15], digits[a&15]})
}

// firstFDE returns the first FDE of a section.
func firstFDE(t testing.TB, s *Section) *FDE {
	t.Helper()
	for e, err := range s.Entries() {
		require.NoError(t, err)
		if e.FDE != nil {
			return e.FDE
		}
	}
	require.Fail(t, "no FDE")
	return nil
}

// buildSection makes the table of a section alone.
func buildSection(s *Section, code codeImage, opt BuildOptions) (*Table, *Report, error) {
	return buildSource(newCFISource(s), code, opt)
}
