package dwarfcfa

import (
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzSections: any bytes as a section give a table that keeps what Table
// documents, and steps and dumps do not panic. The first byte chooses the kind
// of section.
func FuzzSections(f *testing.F) {
	var s sectionBuilder
	cie := s.cie()
	s.fde(cie, testCode, 0x40, advance(1), def(16), save(3, 2), inst(CFARememberState), advance(4), def(8),
		inst(CFARestoreState), advance(3), inst(CFADefCFAExpression,
			block(0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22)))
	s.fde(cie, testCode+0x20, 0x40, inst(CFAExpression, uleb(6), block(0x76, 0x70, 0x06)),
		inst(CFAValExpression, uleb(16), block(0x23, 8)))
	f.Add(append([]byte{0}, s.b...))
	d := sectionBuilder{debug: true, is64: true}
	d.fde(d.rawCIE(cat([]byte{4, 0, 8, 0}, uleb(1), sleb(-8), uleb(3), usualCIE(), save(3, 1))), testCode, 0x10,
		inst(CFASetLoc, le64(testCode+4)), def(24))
	f.Add(append([]byte{1}, d.b...))
	var z sectionBuilder
	z.rawFDE(z.rawCIE(cat([]byte{1, 'z', 'P', 'L', 'R', 'S', 0}, uleb(1), sleb(-8), []byte{16}, uleb(7),
		[]byte{0x9b, 1, 2, 3, 4, 0x1b, 0x1b}, usualCIE())), cat(le32(testCode-testAddr-0x29), le32(0x20), uleb(4),
		le32(7), advance(2), def(32)))
	f.Add(append([]byte{0}, z.b...))

	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		src, addr := SourceEHFrame, Addr(testAddr)
		if data[0]&1 != 0 {
			src, addr = SourceDebugFrame, 0
		}
		bases := Bases{Text: testCode, Data: testCode, Word: func(a Addr) (uint64,
			bool) {
			return uint64(a) + 1, a&7 == 0
		}}
		s := NewSection("fuzz", src, addr, data[1:], bases)
		if data[0]&2 != 0 {
			s.walked = untilTerminator(s.Data)
		}
		s.moved = data[0]&4 != 0
		if data[0]&8 != 0 {
			for off := int(data[0] >> 4); off+8 <= len(s.Data); off += 24 {
				s.rewrites = append(s.rewrites, rewrite{start: off, end: off + 8, biased: off&1 == 0})
			}
		}
		code := testImage(make([]byte, 0x1000))
		table, rep, err := buildSection(s, code, BuildOptions{})
		require.NoError(t, err)
		require.NoError(t, table.Verify())
		e := rep.Entries
		require.LessOrEqual(t, e.Lost+e.Empty+e.OutsideCode+e.Shadowed, e.FDEs)
		requireLazy(t, table, newLazySection(newCFISource(s), code))
		if len(table.Ranges) > 0 {
			require.GreaterOrEqual(t, table.Low(), Addr(testCode))
			require.LessOrEqual(t, table.High(), Addr(testCode+testCodeSize))
		}
		rnd := rand.New(rand.NewPCG(1, uint64(len(data))))
		for i, r := range table.Ranges {
			if i == 64 {
				break
			}
			for _, pc := range []Addr{r.Start, r.End - 1, r.End} {
				regs := randomRegs(rnd, pc)
				old := regs
				status := table.Step(&regs, randomMemory{rnd.Uint64()}, 0)
				require.Equal(t, status, regs.Status)
				if status != 0 {
					old.Status = status
					require.Equal(t, old, regs)
				}
			}
		}
		require.NoError(t, DumpEntries(io.Discard, s, nil))
		require.NoError(t, DumpRows(io.Discard, s, nil))
		require.NoError(t, DumpTable(io.Discard, table, nil))
		for range s.DescribeRows(nil) {
		}
	})
}

// FuzzFile: any bytes as a file give a table or an error.
func FuzzFile(f *testing.F) {
	f.Add(testELF{ehFrame: smallFrame()}.bytes())
	f.Add(testELF{ehFrame: smallFrame(), noSections: true}.bytes())
	f.Add(testELF{debugFrame: smallDebugFrame(), debugName: ".debug_frame"}.bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := open(data)
		if err != nil {
			require.Nil(t, o)
			return
		}
		for _, src := range []Source{SourceAuto, SourceEHFrame, SourceDebugFrame} {
			table, _, err := BuildTable(o, BuildOptions{Source: src})
			require.True(t, (table == nil) == (err != nil), "a table or an error")
			lazy, lazyErr := NewLazyTable(o, src)
			require.Equal(t, err, lazyErr)
			if err == nil {
				require.NoError(t, table.Verify())
				requireLazy(t, table, lazy)
			}
		}
	})
}
