package dwarfcfa

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// Sections made to cost memory or time lose the FDEs that ask for too much,
// soon, and no others.
func TestBounds(t *testing.T) {
	testtool.Long(t)
	lost := func(t *testing.T, s *sectionBuilder, code codeImage, want string) *Table {
		table, rep := buildOn(t, s.section(), code)
		require.NotZero(t, rep.Entries.Lost)
		assert.ErrorIs(t, rep.LostFDEs[0], ErrUnsupported)
		assert.Contains(t, rep.LostFDEs[0].Error(), want)
		return table
	}
	wide := codeImage{segments: []segment{{testCode, 1 << 40}}}

	t.Run("distinct rows", func(t *testing.T) {
		var s sectionBuilder
		cie := s.cie()
		const perFDE = 1 << 16
		for f := range uint64(5) {
			var prog []byte
			for i := range uint64(perFDE) {
				prog = append(append(prog, def(f*perFDE+i+1)...), advance(1)...)
			}
			s.fde(cie, testCode+f*perFDE, perFDE, prog)
		}
		table := lost(t, &s, wide, "more than 262144 distinct rows")
		assert.Len(t, table.Rows, MaxRows)
	})
	t.Run("distinct expressions", func(t *testing.T) {
		var s sectionBuilder
		cie := s.cie()
		var prog []byte
		for i := range uint64(MaxExprs + 1) {
			prog = append(prog, inst(CFADefCFAExpression, block(concat(dwOpConst4u, le32(uint32(i)))...))...)
		}
		s.fde(cie, testCode, 0x10, prog)
		s.fde(cie, testCode+0x20, 0x10)
		table := lost(t, &s, wide, "more than 131072 expressions")
		assert.Len(t, table.Ranges, 1)
	})
	t.Run("operations of expressions", func(t *testing.T) {
		var s sectionBuilder
		cie := s.cie()
		var prog []byte
		nots := bytes.Repeat([]byte{dwOpNot}, 250)
		for i := range uint64(maxExprPoolOps/250 + 2) {
			prog = append(prog, inst(CFADefCFAExpression, block(concat(dwOpConst4u, le32(uint32(i)), nots)...))...)
		}
		s.fde(cie, testCode, 0x10, prog)
		lost(t, &s, wide, "operations of expressions")
	})
	t.Run("states remembered in CIEs", func(t *testing.T) {
		var s sectionBuilder
		remember := []byte(strings.Repeat("\x0a", MaxRememberDepth))
		const cies = maxInitialStates/MaxRememberDepth + 1
		for i := range uint64(cies) {
			s.fde(s.cie(usualCIE(), remember), testCode+i, 1)
		}
		table := lost(t, &s, wide, "CIEs that remember more than 65536 states")
		assert.Equal(t, Addr(testCode+cies-1), table.High())
	})
	t.Run("CIEs", func(t *testing.T) {
		var s sectionBuilder
		for range maxCIEs {
			s.cie()
		}
		s.fde(s.cie(), testCode, 1)
		lost(t, &s, wide, "more than 262144 CIEs")
	})
	t.Run("lists of a report", func(t *testing.T) {
		var s sectionBuilder
		cie := s.cie()
		for i := range uint64(maxListed + 10) {
			s.fde(cie, testCode+2*i, 1, inst(CFARestoreState))
			s.fde(cie, testCode+2*i+1, 1, inst(CFADefCFARegister, uleb(17)))
		}
		_, rep := buildOn(t, s.section(), wide)
		assert.Equal(t, maxListed+10, rep.Entries.Lost)
		assert.Len(t, rep.LostFDEs, maxListed)
		assert.Equal(t, maxListed+10, rep.Rows.NotCompiled)
		assert.Len(t, rep.NotCompiled, maxListed)
	})
}

// The running kernel's vDSO, from memory.
func TestVDSO(t *testing.T) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip("needs /proc")
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			continue
		}
		from, to, _ := strings.Cut(strings.Fields(line)[0], "-")
		start, err := strconv.ParseInt(from, 16, 64)
		require.NoError(t, err)
		end, err := strconv.ParseInt(to, 16, 64)
		require.NoError(t, err)
		mem, err := os.Open("/proc/self/mem")
		require.NoError(t, err)
		defer mem.Close()
		image := make([]byte, end-start)
		_, err = mem.ReadAt(image, start)
		require.NoError(t, err)
		o, err := NewFile("[vdso]", bytes.NewReader(image), int64(len(image)))
		require.NoError(t, err)
		table, rep, err := BuildTable(o, BuildOptions{Strict: true})
		require.NoError(t, err)
		require.NoError(t, table.Verify())
		assert.NotZero(t, rep.Entries.FDEs)
		return
	}
	t.Skip("needs a vDSO")
}
