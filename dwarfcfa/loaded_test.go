package dwarfcfa

import (
	"bufio"
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/files/elffile"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// relocated makes a library whose tables the loader relocates.
func relocated(t *testing.T, dir, compiler, linker string, flags ...string) []byte {
	t.Helper()
	testtool.Need(t, compiler)
	object, library := filepath.Join(dir, "library.o"), filepath.Join(dir, "library.so")
	run(t, compiler, append(flags[1:], "-O2", "-fno-plt", "-c", "-o", object, "testdata/loader/library.cc")...)
	run(t, compiler, "-shared", "-fuse-ld="+linker, "-Wl,-z,notext", flags[0], "-o", library, object)
	b, err := os.ReadFile(library)
	require.NoError(t, err)
	return b
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, args, out)
}

// area is what the reader makes of a range of addresses.
type area struct {
	addr     Addr
	data     []byte
	rewrites []rewrite
}

// areas returns the tables of a library for exceptions, as the reader has them.
func areas(o *File) (list []area) {
	if s, err := o.Section(SourceEHFrame); err == nil {
		list = append(list, area{s.Addr, s.Data, s.rewrites})
	}
	for _, name := range []string{".gcc_except_table", ".eh_frame_hdr"} {
		s := o.file.Section(name)
		if s == nil {
			continue
		}
		if e, err := o.Encoded(Addr(s.Addr)); err == nil {
			list = append(list, area{e.s.Addr, e.s.Data, e.s.rewrites})
		}
	}
	return list
}

// loader asks the system's loader what is in memory.
type loader struct {
	in  *bufio.Writer
	out *bufio.Scanner
}

func newLoader(t *testing.T, dir string) *loader {
	t.Helper()
	testtool.Need(t, "gcc")
	helper := filepath.Join(dir, "loaded")
	run(t, "gcc", "-O1", "-shared-libgcc", "-o", helper, "testdata/loader/loaded.c", "-ldl", "-lgcc_s")
	c := exec.Command(helper)
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() { in.Close(); c.Wait() })
	s := bufio.NewScanner(out)
	s.Buffer(nil, 4<<20)
	return &loader{bufio.NewWriter(in), s}
}

// memory returns the load bias, and the bytes of the areas; nil if the library does not load.
func (l *loader) memory(t *testing.T, path string, list []area) (bias uint64, memory [][]byte) {
	t.Helper()
	l.in.WriteString(path)
	for _, a := range list {
		fmt.Fprintf(l.in, " %x %x", uint64(a.addr), len(a.data))
	}
	l.in.WriteString("\n")
	require.NoError(t, l.in.Flush())
	require.True(t, l.out.Scan(), "the loader's helper has ended")
	if l.out.Text() == "-" {
		return 0, nil
	}
	fields := strings.Fields(l.out.Text())
	require.Len(t, fields, 1+len(list))
	bias, err := strconv.ParseUint(fields[0], 16, 64)
	require.NoError(t, err)
	for _, f := range fields[1:] {
		b, err := hex.DecodeString(f)
		require.NoError(t, err)
		memory = append(memory, b)
	}
	return bias, memory
}

// difference says where the reader claims to know a byte that is another in memory; "": nowhere.
func difference(a area, bias uint64, memory []byte) string {
	known := bytes.Clone(a.data)
	for _, w := range a.rewrites {
		if w.biased {
			binary.LittleEndian.PutUint64(known[w.start:], binary.LittleEndian.Uint64(known[w.start:])+bias)
		} else {
			copy(known[w.start:w.end], memory[w.start:w.end])
		}
	}
	for i := range known {
		if known[i] != memory[i] {
			return fmt.Sprintf("%#x: %#x in memory, %#x known", uint64(a.addr)+uint64(i), memory[i], known[i])
		}
	}
	return ""
}

// places are where the relocations of a file are: offsets of Elf64_Rela, and of the words of DT_RELR.
type places struct{ rela, relr []int }

func relocations(t *testing.T, file []byte) (p places) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(file))
	require.NoError(t, err)
	for _, s := range f.Sections {
		for off := s.Offset; s.Type == elf.SHT_RELA && s.Flags&elf.SHF_ALLOC != 0 && off < s.Offset+s.Size; off += 24 {
			p.rela = append(p.rela, int(off))
		}
		for off := s.Offset; s.Type == 19 && off < s.Offset+s.Size; off += 8 {
			p.relr = append(p.relr, int(off))
		}
	}
	return p
}

// mutate changes relocations of a file: where they write, what, by which symbol and addend.
func mutate(rnd *rand.Rand, b []byte, p places, list []area) {
	le := binary.LittleEndian
	place := func() uint64 { // mostly in a table, at a pointer, across one, or anywhere
		a := list[rnd.IntN(len(list))]
		if n := len(a.rewrites); n > 0 && rnd.IntN(2) == 0 {
			return uint64(a.addr) + uint64(a.rewrites[rnd.IntN(n)].start) + uint64([]int{0, 0, 4, -4, 8, 1}[rnd.IntN(6)])
		}
		return uint64(a.addr) + uint64(rnd.IntN(len(a.data)+8)) - 4
	}
	if len(p.relr) > 0 && rnd.IntN(3) == 0 {
		off := p.relr[rnd.IntN(len(p.relr))]
		le.PutUint64(b[off:], []uint64{place() &^ 7, le.Uint64(b[off:]) ^ 1<<rnd.IntN(64), 1<<63 | 1}[rnd.IntN(3)])
		return
	}
	types := []elf.R_X86_64{0, 1, 1, 2, 5, 6, 7, 8, 8, 8, 8, 10, 16, 17, 18, 24, 32, 33, 36, 37, 38, 42}
	for range 1 + rnd.IntN(3) {
		r := b[p.rela[rnd.IntN(len(p.rela))]:]
		switch rnd.IntN(5) {
		case 0:
			le.PutUint64(r, place())
		case 1:
			le.PutUint32(r[8:], uint32(types[rnd.IntN(len(types))]))
		case 2:
			le.PutUint32(r[12:], uint32(rnd.IntN(12)))
		case 3:
			le.PutUint64(r[16:], []uint64{rnd.Uint64(), 0, place(), uint64(rnd.IntN(1 << 12))}[rnd.IntN(4)])
		case 4: // one more that falls on a table
			le.PutUint64(r, place())
			le.PutUint64(r[8:], uint64(types[rnd.IntN(len(types))])|uint64(rnd.IntN(2)*rnd.IntN(12))<<32)
			le.PutUint64(r[16:], uint64(rnd.IntN(1<<12)))
		}
	}
}

// TestLoaded: what the reader claims to know of tables in memory is what the system's loader leaves there.
func TestLoaded(t *testing.T) {
	mutants, err := strconv.Atoi(cmp.Or(os.Getenv("EHASM_LOADED"), "240"))
	require.NoError(t, err)
	dir := t.TempDir()
	system := newLoader(t, dir)
	large := []string{"-mcmodel=large", "-fno-pic"}
	shapes := []struct {
		name, compiler, linker string
		flags                  []string // the linker's, the compiler's
	}{
		{"gcc, bfd", "g++", "bfd", append([]string{"-Wl,-z,now"}, large...)},
		{"gcc, gold", "g++", "gold", append([]string{"-Wl,-z,now"}, large...)},
		{"gcc, lld", "g++", "lld", append([]string{"-Wl,-z,now"}, large...)},
		{"gcc, mold", "g++", "mold", append([]string{"-Wl,-z,now"}, large...)},
		{"gcc, bfd, RELR", "g++", "bfd", append([]string{"-Wl,-z,pack-relative-relocs"}, large...)},
		{"gcc, lld, values in the file", "g++", "lld", append([]string{"-Wl,--apply-dynamic-relocs"}, large...)},
		{"clang, bfd", "clang++", "bfd", append([]string{"-Wl,-z,now"}, large...)},
		{"gcc, lld, position-independent", "g++", "lld", []string{"-Wl,-z,now", "-fPIC"}},
	}
	tried, loadedMutants, changed, unknown := 0, 0, 0, 0
	for n, shape := range testtool.Sweep(shapes) {
		file := relocated(t, dir, shape.compiler, shape.linker, shape.flags...)
		path := filepath.Join(dir, "mutant.so")
		check := func(file []byte) (loads bool) {
			require.NoError(t, os.WriteFile(path, file, 0o755))
			o, err := NewFile("mutant", bytes.NewReader(file), int64(len(file)))
			require.NoError(t, err)
			list := areas(o)
			BuildTable(o, BuildOptions{AllowEmpty: true}) // a panic is found, and no more
			bias, memory := system.memory(t, path, list)
			for i := range memory {
				assert.Empty(t, difference(list[i], bias, memory[i]), "%s", shape.name)
				for _, w := range list[i].rewrites {
					if changed++; !w.biased {
						unknown++
					}
				}
			}
			return memory != nil
		}
		require.True(t, check(file), shape.name)
		o, err := NewFile("library", bytes.NewReader(file), int64(len(file)))
		require.NoError(t, err)
		list, p := areas(o), relocations(t, file)
		for seed := range mutants / len(shapes) {
			tried++
			b := bytes.Clone(file)
			mutate(rand.New(rand.NewPCG(uint64(seed), uint64(n))), b, p, list)
			if check(b) {
				loadedMutants++
			}
			if t.Failed() {
				t.Fatalf("%s, mutant %d", shape.name, seed)
			}
		}
	}
	t.Logf("%d of %d mutants load; %d relocations of tables, %d of them unknown", loadedMutants, tried, changed, unknown)
	assert.Greater(t, loadedMutants, tried/4)
	assert.NotZero(t, unknown)
}

// TestAddressInExpression: DW_OP_addr is a constant, and left out where the loader adds the load bias.
func TestAddressInExpression(t *testing.T) {
	const source = `	.text
f:	.skip 16, 0x90
	.section .eh_frame,"aw",@unwind
cie:	.long 1f-0f
0:	.long 0
	.byte 1
	.asciz "zR"
	.uleb128 1
	.sleb128 -8
	.byte 16
	.uleb128 1
	.byte 0x1b
	.byte 0x90,1
	.balign 8
1:	.long 1f-0f
0:	.long .-cie
	.long f-.
	.long 16
	.uleb128 0
	.byte 0x0f,20
	.byte 0x03
	.quad WORD
	.byte 0x03
	.quad 0x1234
	.byte 0x22,0x06
	.balign 8
1:	.data
	.quad 0
word:	.quad 0
`
	dir := t.TempDir()
	assembly, library := filepath.Join(dir, "f.s"), filepath.Join(dir, "f.so")
	for _, linker := range []string{"bfd", "gold", "lld"} {
		require.NoError(t, os.WriteFile(assembly, []byte(strings.Replace(source, "WORD", "word", 1)), 0o644))
		run(t, "gcc", "-shared", "-fuse-ld="+linker, "-Wl,-z,notext", "-o", library, assembly)
		_, rep := libraryTable(t, library)
		require.Equal(t, 1, rep.Entries.Lost, linker)
		assert.ErrorIs(t, rep.LostFDEs[0], errLoader)

		require.NoError(t, os.WriteFile(assembly, []byte(strings.Replace(source, "WORD", "0x5678", 1)), 0o644))
		run(t, "gcc", "-shared", "-fuse-ld="+linker, "-o", library, assembly)
		table, _ := libraryTable(t, library)
		ops := table.Exprs[len(table.Exprs)-1].Ops // gold's PLT has one, too
		assert.Equal(t, ExprOp{Code: OpConst, Arg: 0x5678}, ops[0], linker)
		assert.Equal(t, ExprOp{Code: OpConst, Arg: 0x1234}, ops[1], linker)
	}
}

// libraryTable returns the table of a library, which may have no row.
func libraryTable(t *testing.T, path string) (*Table, *Report) {
	t.Helper()
	o, err := Open(path)
	require.NoError(t, err)
	defer o.Close()
	table, rep, err := BuildTable(o, BuildOptions{})
	if rep.Entries.Lost == 0 {
		require.NoError(t, err)
	}
	return table, rep
}

// TestReloc: the relocations are those that readelf lists.
func TestReloc(t *testing.T) {
	testtool.Need(t, "readelf")
	dir := t.TempDir()
	for _, flags := range testtool.Sweep([]string{"-Wl,-z,now", "-Wl,--pack-dyn-relocs=relr", "-Wl,-z,rel"}) {
		file := relocated(t, dir, "g++", "lld", flags, "-mcmodel=large", "-fno-pic")
		out, err := exec.Command("readelf", "-rW", filepath.Join(dir, "library.so")).Output()
		require.NoError(t, err)
		want := map[string]int{}
		for line := range strings.Lines(string(out)) {
			if words := strings.Fields(line); len(words) >= 3 && strings.HasPrefix(words[2], "R_X86_64_") {
				want[strings.TrimLeft(words[0], "0")+" "+strings.TrimPrefix(words[2], "R_X86_64_")]++
			} else if len(words) == 1 && len(words[0]) == 16 { // of DT_RELR
				want[strings.TrimLeft(words[0], "0")+" RELATIVE"]++
			}
		}
		f, err := elf.NewFile(bytes.NewReader(file))
		require.NoError(t, err)
		got := map[string]int{}
		for r, err := range elffile.Relocs(f) {
			require.NoError(t, err)
			name := strings.Replace(strings.TrimPrefix(r.Type.String(), "R_X86_64_"), "JMP_SLOT", "JUMP_SLOT", 1)
			got[fmt.Sprintf("%x %s", r.Addr, name)]++
		}
		assert.NotEmpty(t, want)
		assert.Equal(t, want, got, flags)
	}
}

// counted counts the bytes that are read.
type counted struct {
	io.ReaderAt
	n *int64
}

func (c counted) ReadAt(b []byte, off int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(b, off)
	*c.n += int64(n)
	return n, err
}

// TestRelocationsCost: many relocations cost what the file has.
func TestRelocationsCost(t *testing.T) {
	testtool.Long(t)
	const (
		relocations = 1 << 14
		maxPasses   = 12 // over the file
	)
	file := relocated(t, t.TempDir(), "g++", "bfd", "-Wl,-z,now", "-mcmodel=large", "-fno-pic")
	for _, c := range []struct {
		name, err string
		tag       elf.DynTag
		table     []byte
	}{
		{"copies", "", elf.DT_RELA, bytes.Repeat(concat(le64(1<<32), le64(1<<32|uint64(elf.R_X86_64_COPY)), le64(0)),
			relocations)},
		{"relative ones without an end", "more than 4194304 relocations", elf.DynTag(36),
			append(le64(1<<32), bytes.Repeat(le64(1<<64-1), 1<<20)...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, n := withRelocations(t, file, c.tag, c.table), int64(0)
			o, err := NewFile("library", counted{bytes.NewReader(b), &n}, int64(len(b)))
			require.NoError(t, err)
			_, _, err = BuildTable(o, BuildOptions{})
			if c.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.err)
			}
			assert.Less(t, n, maxPasses*int64(len(b)))
		})
	}
}

// withRelocations returns a file with a table of relocations in one more segment, in the place of PT_GNU_STACK and of
// the file's DT_RELA.
func withRelocations(t *testing.T, file []byte, tag elf.DynTag, table []byte) []byte {
	t.Helper()
	const base = 1 << 24
	b := append(append(bytes.Clone(file), make([]byte, -len(file)&0xfff)...), table...)
	le, placed := binary.LittleEndian, 0
	for h := range uint64(le.Uint16(b[56:])) {
		p := b[le.Uint64(b[32:])+56*h:]
		switch elf.ProgType(le.Uint32(p)) {
		case elf.PT_GNU_STACK:
			size := uint64(len(table))
			copy(p, concat(le32(uint32(elf.PT_LOAD)), le32(uint32(elf.PF_R)), le64(uint64(len(b))-size), le64(base), le64(base),
				le64(size), le64(size)))
		case elf.PT_DYNAMIC:
			for d := b[le.Uint64(p[8:]):]; le.Uint64(d) != 0; d = d[16:] {
				switch elf.DynTag(le.Uint64(d)) {
				case elf.DT_RELA:
					copy(d, concat(le64(uint64(tag)), le64(base)))
					placed++
				case elf.DT_RELASZ:
					size := elf.DT_RELASZ
					if tag != elf.DT_RELA {
						size = tag - 1
					}
					copy(d, concat(le64(uint64(size)), le64(uint64(len(table)))))
					placed++
				}
			}
		}
	}
	require.Equal(t, 2, placed)
	return b
}
