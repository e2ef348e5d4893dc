package dwarfcfa

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/sframe"
)

// TestSFrameRepeats: rows that repeat over more than the code are not written out. Those of a PLT are.
func TestSFrameRepeats(t *testing.T) {
	saved := sframe.Rule{Base: sframe.OnCFA, Offset: -8, Deref: true}
	row := []sframe.Row{{CFA: sframe.Rule{Base: sframe.OnReg, Reg: 7, Offset: 8}, RA: saved},
		{Start: 1, CFA: sframe.Rule{Base: sframe.OnReg, Reg: 7, Offset: 16}, RA: saved}}
	entries := []sframe.Entry{{Start: elfText, Size: 0x40, Repeat: 16, Rows: row}}
	const hostile = 100
	for i := range uint64(hostile) {
		entries = append(entries, sframe.Entry{Start: elfText + 0x100 + i<<20, Size: 1 << 20, Repeat: 2, Rows: row})
	}
	entries = append(entries, sframe.Entry{Start: elfText + 1<<30, Size: 0x20, Rows: row})
	data, err := sframe.Encode(sframe.Options{Version: 3}, entries)
	require.NoError(t, err)
	o, err := open(testELF{debugName: SFrameName, debugFrame: data}.bytes())
	require.NoError(t, err)
	s, err := o.Section(SourceSFrame)
	require.NoError(t, err)
	var starts []Addr
	for e, err := range s.Entries() {
		require.NoError(t, err)
		if e.FDE != nil {
			starts = append(starts, e.FDE.Start)
		}
	}
	assert.Equal(t, []Addr{elfText, elfText + 1<<30}, starts)
	var b strings.Builder
	require.NoError(t, DumpRows(&b, s, nil))
	assert.Equal(t, 2*4+2, strings.Count(b.String(), " c-8"), b.String())
}

// TestDumpRowsCIE: the program of a CIE is looked at once, not for each of its FDEs.
func TestDumpRowsCIE(t *testing.T) {
	var s sectionBuilder
	const fdes = 60_000
	cie := s.cie(usualCIE(), bytes.Repeat([]byte{byte(CFADefCFAOffset), 8}, 400_000))
	for i := range uint64(fdes) {
		s.fde(cie, testCode+i, 1)
	}
	section := s.section()
	done := make(chan error, 1)
	go func() { done <- DumpRows(io.Discard, section, nil) }()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(time.Minute): // 60,000 times 400,000 instructions take four
		require.Fail(t, "still interpreting")
	}
}
