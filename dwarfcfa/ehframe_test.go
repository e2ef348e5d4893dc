package dwarfcfa

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// TestEqualStarts: of FDEs with one start, the rows are of the FDE that libgcc finds, with each linker's table and with
// tables in which pairs were exchanged and copied.
func TestEqualStarts(t *testing.T) {
	testtool.Need(t, "gcc", "ld.lld", "ld.gold")
	dir := t.TempDir()
	system := newLoader(t, dir)
	path, compared := filepath.Join(dir, "starts.so"), 0
	for n, linker := range []string{"gold", "lld"} /* the others refuse such files */ {
		run(t, "gcc", "-shared", "-fuse-ld="+linker, "-o", path, "testdata/loader/starts.s")
		file, err := os.ReadFile(path)
		require.NoError(t, err)
		for seed := range 25 {
			b := bytes.Clone(file)
			o, err := NewFile(linker, bytes.NewReader(b), int64(len(b)))
			require.NoError(t, err)
			hdr, err := o.ehFrameHdr()
			require.NoError(t, err)
			if seed > 0 {
				off := int(o.file.Section(".eh_frame_hdr").Offset) + 12
				rnd := rand.New(rand.NewPCG(uint64(seed), uint64(n)))
				pair := func() []byte { return b[off+pairSize*rnd.IntN(len(hdr.table)/pairSize):][:pairSize] }
				from, to := pair(), pair()
				if copy(to[4:], from[4:]); rnd.IntN(2) == 0 {
					copy(to, from)
				}
			}
			compared += compareStarts(t, system, path, b)
		}
	}
	assert.Greater(t, compared, 100)
}

// compareStarts compares for each start of a library which FDE counts. It returns how many libgcc finds.
func compareStarts(t *testing.T, system *loader, path string, b []byte) (found int) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, b, 0o755))
	o, err := NewFile(path, bytes.NewReader(b), int64(len(b)))
	require.NoError(t, err)
	s, err := o.Section(SourceEHFrame)
	require.NoError(t, err)
	var list []area
	starts := map[Addr]Addr{} // by the FDE's own address
	hidden := map[Addr]bool{}
	var own []Addr
	for e, err := range s.Entries() {
		require.NoError(t, err)
		if e.FDE != nil {
			list = append(list, area{addr: e.FDE.Start})
			starts[s.Addr+Addr(e.Offset)] = e.FDE.Start
			addr, ok := s.Named(e.FDE.Start)
			hidden[s.Addr+Addr(e.Offset)] = !ok || addr != e.Offset || e.FDE.Start == e.FDE.End
			own = append(own, s.Addr+Addr(e.Offset))
		}
	}
	_, memory := system.memory(t, path, list)
	require.NotNil(t, memory)
	source := newCFISource(s)
	counts := map[Addr]uint64{} // offset of the FDE that counts
	for _, sp := range findSpans(source, o.codeImage(), new(Report)) {
		counts[sp.start] = sp.offset
	}
	for i, a := range list {
		fde := Addr(binary.BigEndian.Uint64(memory[i]))
		assert.Equal(t, fde != own[i], hidden[own[i]], "%#x: libgcc %#x, own %#x", uint64(a.addr), uint64(fde),
			uint64(own[i]))
		if fde == 0 { // hidden by an empty one
			continue
		}
		found++
		if offset, ok := s.Named(a.addr); ok {
			assert.Equal(t, fde, s.Addr+Addr(offset))
			if starts[fde] == a.addr { // else the table says another start than the FDE itself
				assert.Equal(t, fde, s.Addr+Addr(counts[a.addr]), "%#x", uint64(a.addr))
			}
		}
	}
	return found
}

// TestNamedFDEs: FDEs that only the table of .eh_frame_hdr leads to.
func TestNamedFDEs(t *testing.T) {
	two := func(between []byte) (frame []byte, offsets [2]int) {
		var s sectionBuilder
		cie := s.cie()
		offsets[0] = s.fde(cie, elfText, 0x20, advance(1), def(16))
		s.b = append(s.b, between...)
		offsets[1] = s.fde(cie, elfText+0x20, 0x20, advance(1), def(24))
		return append(s.b, 0, 0, 0, 0), offsets
	}
	for _, tc := range []struct {
		name    string
		between []byte
		elf     testELF
		cut     bool   // the section ends before what lies between
		far     bool   // the table names a third one far away
		move    int    // added to the second FDE's address in the table
		lost    string // "": both FDEs have rows
	}{
		{name: "whole", elf: testELF{noSections: true}},
		{name: "behind a terminator", between: make([]byte, 4), elf: testELF{noSections: true}},
		{name: "behind bytes that are no entry", between: bytes.Repeat([]byte{0xf7}, 20), elf: testELF{noSections: true}},
		{name: "behind the section", between: bytes.Repeat([]byte{0xf7}, 20), cut: true},
		{name: "inside an FDE", between: make([]byte, 4), elf: testELF{noSections: true}, move: -20, lost: ""},
		{name: "outside of the file", between: make([]byte, 4), elf: testELF{noSections: true}, move: 1 << 20,
			lost: "outside the section"},
		{name: "behind the section, and outside of the file", between: bytes.Repeat([]byte{0xf7}, 20), cut: true, far: true},
		{name: "before the section", between: make([]byte, 4), elf: testELF{noSections: true}, move: -0x200,
			lost: "outside the section"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			frame, offsets := two(tc.between)
			e := tc.elf
			e.ehFrame, e.table = frame, [][2]int{{elfText, elfEHFrame + offsets[0]},
				{elfText + 0x20, elfEHFrame + offsets[1] + tc.move}}
			if tc.far {
				e.table = append(e.table[1:], [2]int{elfText + 0x40, 1 << 20})
			}
			if tc.cut {
				e.ehFrame, e.behind = frame[:offsets[1]-len(tc.between)], frame[offsets[1]-len(tc.between):]
			}
			o, err := open(e.bytes())
			require.NoError(t, err)
			table, rep, err := BuildTable(o, BuildOptions{})
			require.NoError(t, err)
			if tc.move != 0 {
				assert.Len(t, table.Ranges, 2)
				_, _, err = BuildTable(o, BuildOptions{Strict: true})
				if tc.lost != "" {
					require.Equal(t, 1, rep.Entries.Lost)
					assert.ErrorContains(t, rep.LostFDEs[0], tc.lost)
					assert.ErrorContains(t, err, tc.lost)
				}
				return
			}
			assert.Equal(t, 2, rep.Entries.FDEs-rep.Entries.Lost)
			assert.Equal(t, len(tc.between) > 4 && !tc.cut ||
				tc.far, rep.Entries.Lost > 0, "bytes of which nothing says that they are no entry")
			assert.Len(t, table.Ranges, 4)
			lazy, err := NewLazyTable(o, SourceAuto)
			require.NoError(t, err)
			requireLazy(t, table, lazy.section)
		})
	}
}
