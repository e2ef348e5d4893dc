package srcline

import (
	"bytes"
	"debug/elf"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// load reads an object's sections into memory.
func load(t testing.TB, path string) *sections {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	r := bytes.NewReader(b)
	f, err := elf.NewFile(r)
	require.NoError(t, err)
	s, err := loadSections(f, r, "")
	require.NoError(t, err)
	return s
}

// FuzzSections has broken sections. Nothing may panic; that Lookup would catch
// it is for debug/dwarf and for files that shrink.
func FuzzSections(f *testing.F) {
	dir := f.TempDir()
	for name, flags := range map[string][]string{
		"v5": {"-O2"}, "v4": {"-O2", "-gdwarf-4"}, "v2": {"-gdwarf-2"}, "split": {"-gsplit-dwarf"},
		"dwarf64": {"-O2", "-gdwarf64"},
	} {
		s := load(f, compile(f, dir, name, flags...))
		f.Add(s.info, s.abbrev, s.str, s.lineStr, s.addr, s.ranges, s.rnglists, s.line, s.aranges, s.strOffsets)
	}
	f.Fuzz(func(t *testing.T, info, abbrev, str, lineStr, addr, ranges, rnglists, line, aranges, strOffsets []byte) {
		s := &sections{contents: contents{info: info, abbrev: abbrev, str: str, lineStr: lineStr,
			strOffsets: strOffsets,
			addr:       addr, ranges: ranges, rnglists: rnglists, line: line, aranges: aranges}}
		s.alt = s
		askAll(&Info{sec: s, limit: 1 << 20})
	})
}

// everything is all that Lookup finds.
var everything = Want{Inline: true, Lines: true, Parameters: true}

// askAll reads the index and asks for something in every part of it.
func askAll(o *Info) {
	o.dir = "/nonexistent"
	if q := newQuick(o.sec, nil); q != nil {
		for _, a := range q.list {
			if u, _ := q.unit(o.sec, a.lo); u != nil {
				o.lookup(u, a.lo, everything)
			}
		}
	}
	o.whole()
	for _, p := range o.index {
		for _, a := range []uint64{p.lo, p.lo + (p.hi-p.lo)/2, p.hi} {
			o.lookup(p.unit, a, everything)
		}
	}
}

// TestBroken changes sections at random places.
func TestBroken(t *testing.T) {
	dir := t.TempDir()
	for name, flags := range map[string][]string{"v5": {"-O2"}, "v4": {"-O2", "-gdwarf-4"}} {
		whole := load(t, compile(t, dir, name, flags...))
		rnd := rand.New(rand.NewPCG(1, 2))
		failed := 0
		for range 1500 {
			s := &sections{contents: contents{info: whole.info, abbrev: whole.abbrev, str: whole.str,
				lineStr: whole.lineStr,
				ranges:  whole.ranges, rnglists: whole.rnglists, line: whole.line, aranges: whole.aranges}}
			all := []*[]byte{&s.info, &s.abbrev, &s.ranges, &s.rnglists, &s.line, &s.aranges}
			p := all[rnd.IntN(len(all))]
			if len(*p) == 0 {
				continue
			}
			b := bytes.Clone(*p)
			*p = b
			if rnd.IntN(3) == 0 {
				*p = b[:rnd.IntN(len(b))]
			} else {
				b[rnd.IntN(len(b))] = byte(rnd.Uint32())
			}
			o := &Info{sec: s, limit: defaultLimit}
			askAll(o)
			if o.Err() != nil {
				failed++
			}
		}
		assert.Greater(t, failed, 100)
	}
}

// TestOpenErrors has files that are no object, or have no usable sections.
func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(bytes.NewReader(make([]byte, 64)), Options{})
	assert.ErrorContains(t, err, "not an ELF file")

	p := compile(t, dir, "prog", "-O2", "-gz")
	run(t, dir, "objcopy", "--strip-debug", p, "none")
	b, err := os.ReadFile(filepath.Join(dir, "none"))
	require.NoError(t, err)
	_, err = Open(bytes.NewReader(b), Options{})
	assert.ErrorIs(t, err, ErrNone)

	f, err := elf.Open(p)
	require.NoError(t, err)
	defer f.Close()
	b, err = os.ReadFile(p)
	require.NoError(t, err)
	sec := f.Section(".debug_info")
	const chdr = 24 // the stream follows
	clear(b[sec.Offset+chdr : sec.Offset+chdr+100])
	_, err = Open(bytes.NewReader(b), Options{})
	assert.ErrorContains(t, err, ".debug_info: zlib")
}

// TestShrunk truncates an object while it is mapped.
func TestShrunk(t *testing.T) {
	p := compile(t, t.TempDir(), "prog", "-O2")
	addrs := text(t, p)
	o := open(t, p, Options{})
	require.NoError(t, os.Truncate(p, 1))
	assert.Empty(t, o.Lookup(addrs[0], both))
	assert.ErrorContains(t, o.Err(), "reading debug information")
}
