package elfout

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/elfouttest"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// wideCode has frames far apart, with every form of an advance, a large CFA
// offset, registers saved again, elsewhere, above the CFA, and restored.
func wideCode() *asmgen.Code {
	code := elfouttest.Tiny()
	code.Text = make([]byte, 0x30000)
	code.Symbols, code.Fixups, code.Data = nil, nil, nil
	save := func(reg uint8, off int32) asmgen.FrameSave { return asmgen.FrameSave{Reg: reg, Off: off} }
	code.Frames = []asmgen.Frame{
		{Start: 0, End: 0x10, Rows: []asmgen.FrameRow{{Off: 0, CFAOffset: 8}}},
		{Start: 0x10, End: 0x20000, Rows: []asmgen.FrameRow{
			{Off: 0x10, CFAOffset: 16, Saved: []asmgen.FrameSave{save(abi.RBX, -16)}},
			{Off: 0x10 + 0x3f, CFAOffset: 200, Saved: []asmgen.FrameSave{save(abi.RBX, -16), save(abi.R15, -1024)}},
			{Off: 0x10 + 0x3f + 0x40, CFAOffset: 100_000, Saved: []asmgen.FrameSave{save(abi.RBX, -24)}},
			{Off: 0x1000, CFAOffset: 16, Saved: []asmgen.FrameSave{save(abi.RBX, 1024), save(abi.RBP, 0)}},
			{Off: 0x1000 + 0x10000, CFAOffset: 8},
			{Off: 0x1000 + 0x10000 + 0xff, CFAOffset: 0},
		}},
		{Start: 0x20100, End: 0x30000, Rows: []asmgen.FrameRow{{Off: 0x20100, CFAOffset: 8}}},
	}
	return code
}

// TestEhFrameRows has readelf interpret .eh_frame and compares its rows with
// the frames it was made of.
func TestEhFrameRows(t *testing.T) {
	testtool.Need(t, "readelf")
	for name, code := range map[string]*asmgen.Code{"tiny": elfouttest.Tiny(), "wide": wideCode()} {
		t.Run(name, func(t *testing.T) {
			im, err := New(code, testSource)
			require.NoError(t, err)
			out := runTool(t, "readelf", "-W", "--debug-dump=frames-interp", written(t, im))
			require.Equal(t, wantRows(code, im.text.addr), gotRows(t, out))
		})
	}
}

func wantRows(code *asmgen.Code, text uint64) []string {
	var rows []string
	for _, f := range code.Frames {
		rows = append(rows, fmt.Sprintf("FDE %x..%x", text+uint64(f.Start), text+uint64(f.End)))
		if len(f.Rows) == 1 && f.Rows[0].CFAOffset == 8 && len(f.Rows[0].Saved) == 0 {
			continue // readelf prints no row for an FDE without instructions
		}
		for _, r := range f.Rows {
			row := fmt.Sprintf("%x rsp+%d ra=c-8", text+uint64(r.Off), r.CFAOffset)
			saved := map[uint8]int32{}
			for _, s := range r.Saved {
				saved[s.Reg] = s.Off
			}
			for reg := range uint8(abi.RIP) {
				if off, ok := saved[reg]; ok {
					row += fmt.Sprintf(" %s=c%+d", abi.RegName(int(reg)), off)
				}
			}
			rows = append(rows, row)
		}
	}
	return rows
}

var fdeLine = regexp.MustCompile(`FDE cie=\S+ pc=([0-9a-f]+)\.\.([0-9a-f]+)`)

func gotRows(t *testing.T, out string) []string {
	t.Helper()
	var rows, columns []string
	inFDE := false
	for _, line := range strings.Split(out, "\n") {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fdeLine.MatchString(line):
			inFDE = true
			m := fdeLine.FindStringSubmatch(line)
			rows = append(rows, "FDE "+hex(t, m[1])+".."+hex(t, m[2]))
		case strings.Contains(line, " CIE ") || strings.Contains(line, "ZERO"):
			inFDE = false
		case inFDE && fields[0] == "LOC":
			columns = fields[2:]
		case inFDE && strings.Contains(fields[1], "rsp"):
			ra, rest := "", ""
			for i, rule := range fields[2:] {
				switch {
				case columns[i] == "ra":
					ra = " ra=" + rule
				case rule != "u":
					rest += " " + columns[i] + "=" + rule
				}
			}
			rows = append(rows, hex(t, fields[0])+" "+fields[1]+ra+rest)
		}
	}
	return rows
}

func hex(t *testing.T, s string) string {
	t.Helper()
	v, err := strconv.ParseUint(s, 16, 64)
	require.NoError(t, err)
	return strconv.FormatUint(v, 16)
}

// TestEhFrameHeader looks every frame up in the sorted table.
func TestEhFrameHeader(t *testing.T) {
	im, err := New(wideCode(), testSource)
	require.NoError(t, err)
	f := open(t, im)
	sec := f.Section(".eh_frame_hdr")
	hdr, err := sec.Data()
	require.NoError(t, err)
	frame, err := f.Section(".eh_frame").Data()
	require.NoError(t, err)
	rel := func(b []byte) uint64 { return uint64(int64(int32(binary.LittleEndian.Uint32(b)))) }

	require.Equal(t, []byte{1, 0x1b, 0x03, 0x3b}, hdr[:4])
	require.Equal(t, f.Section(".eh_frame").Addr, sec.Addr+4+rel(hdr[4:]))
	require.Equal(t, uint32(3), binary.LittleEndian.Uint32(hdr[8:]))
	require.Len(t, hdr, 12+3*8)
	for i, want := range im.code.Frames {
		start := sec.Addr + rel(hdr[12+8*i:])
		require.Equal(t, im.text.addr+uint64(want.Start), start)
		off := sec.Addr + rel(hdr[16+8*i:]) - f.Section(".eh_frame").Addr
		begin := f.Section(".eh_frame").Addr + off + 8 + rel(frame[off+8:])
		require.Equal(t, start, begin)
		require.Equal(t, want.End-want.Start, binary.LittleEndian.Uint32(frame[off+12:]))
	}
}

func TestLEB(t *testing.T) {
	// DWARF 5 tables 7.7 and 7.8 (figures C.1, C.2).
	for v, want := range map[uint64][]byte{2: {2}, 127: {127}, 128: {0x80, 1}, 129: {0x81, 1}, 12857: {0xb9, 0x64}} {
		require.Equal(t, want, binary.AppendUvarint(nil, v))
	}
	for v, want := range map[int64][]byte{
		2: {2}, -2: {0x7e}, 127: {0xff, 0}, -127: {0x81, 0x7f}, 128: {0x80, 1}, -128: {0x80, 0x7f}, 129: {0x81, 1},
		-129: {0xff, 0x7e},
	} {
		require.Equal(t, want, dwarfcfa.AppendSLEB(nil, v))
	}
}
