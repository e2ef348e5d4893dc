package dwarfcfa

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// testELF describes a small ELF file: one segment that holds the headers, a
// build-id, code, .eh_frame_hdr and .eh_frame.
type testELF struct {
	ehFrame    []byte
	behind     []byte   // it
	table      [][2]int // of .eh_frame_hdr: addresses of code and of an FDE, at most two
	noSections bool
	debugFrame []byte // contents of the section named debugName
	debugName  string
	debugFlags uint64
}

const (
	elfText    = 0x140 // offset and address of .text
	elfHdr     = 0x240 // of .eh_frame_hdr
	elfEHFrame = 0x260 // of .eh_frame
	elfEnd     = 0x300 // of the segment
)

var testBuildID = []byte("0123456789abcdefghij")

type elfSection struct {
	name                string
	typ                 uint32
	flags, addr, offset uint64
	size                uint64
}

func (e testELF) bytes() []byte {
	le := binary.LittleEndian
	b := make([]byte, elfEnd)
	const notes = 0x100
	note := cat(le32(4), le32(uint32(len(testBuildID))), le32(3), []byte("GNU\x00"), testBuildID)
	copy(b[notes:], note)
	copy(b[elfEHFrame:], e.ehFrame)
	copy(b[elfEHFrame+len(e.ehFrame):], e.behind)
	// version 1; eh_frame_ptr is pcrel sdata4, no table
	copy(b[elfHdr:], cat([]byte{1, 0x1b, 0xff, 0xff}, le32(uint32(elfEHFrame-(elfHdr+4)))))
	hdrSize := uint64(8)
	if e.table != nil {
		hdrSize = uint64(12 + pairSize*len(e.table))
		copy(b[elfHdr+2:], []byte{byte(PEUData4), byte(PEDataRel | PESData4)})
		le.PutUint32(b[elfHdr+8:], uint32(len(e.table)))
		for i, pair := range e.table {
			copy(b[elfHdr+12+pairSize*i:], cat(le32(uint32(pair[0]-elfHdr)), le32(uint32(pair[1]-elfHdr))))
		}
	}

	progs := []elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Filesz: elfEnd, Memsz: elfEnd, Align: 0x1000},
		{Type: uint32(elf.PT_NOTE), Flags: uint32(elf.PF_R), Off: notes, Vaddr: notes, Filesz: uint64(len(note)),
			Memsz: uint64(len(note)), Align: 4},
		{Type: uint32(elf.PT_GNU_EH_FRAME), Flags: uint32(elf.PF_R), Off: elfHdr, Vaddr: elfHdr, Filesz: hdrSize,
			Memsz: hdrSize,
			Align: 4},
	}
	if e.ehFrame == nil {
		progs = progs[:2]
	}
	h := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64),
		Version: 1,
		Phoff:   64, Ehsize: 64, Phentsize: 56, Phnum: uint16(len(progs)),
	}
	if !e.noSections {
		sections := []elfSection{{}, {".text", 1, 6, elfText, elfText, elfHdr - elfText}}
		if e.ehFrame != nil {
			sections = append(sections,
				elfSection{".eh_frame_hdr", 1, 2, elfHdr, elfHdr, 8},
				elfSection{".eh_frame", 1, 2, elfEHFrame, elfEHFrame, uint64(len(e.ehFrame))})
		}
		if e.debugFrame != nil {
			sections = append(sections, elfSection{e.debugName, 1, e.debugFlags, 0, uint64(len(b)),
				uint64(len(e.debugFrame))})
			b = append(b, e.debugFrame...)
		}
		names := []byte{0}
		index := make([]int, len(sections)+1)
		sections = append(sections, elfSection{".shstrtab", 3, 0, 0, 0, 0})
		for i, s := range sections[1:] {
			index[i+1] = len(names)
			names = append(append(names, s.name...), 0)
		}
		last := &sections[len(sections)-1]
		last.offset, last.size = uint64(len(b)), uint64(len(names))
		b = append(b, names...)
		for len(b)%8 != 0 {
			b = append(b, 0)
		}
		h.Shoff, h.Shentsize, h.Shnum, h.Shstrndx = uint64(len(b)), 64, uint16(len(sections)), uint16(len(sections)-1)
		for i, s := range sections {
			b, _ = binary.Append(b, le, elf.Section64{
				Name: uint32(index[i]), Type: s.typ, Flags: s.flags, Addr: s.addr, Off: s.offset, Size: s.size,
				Addralign: 1,
			})
		}
	}
	head, _ := binary.Append(nil, le, h)
	for _, p := range progs {
		head, _ = binary.Append(head, le, p)
	}
	copy(b, head)
	return b
}

// smallFrame returns an .eh_frame with one FDE over the start of .text.
func smallFrame() []byte {
	var s sectionBuilder
	s.fde(s.cie(), elfText, 0x20, advance(1), def(16))
	return append(s.b, 0, 0, 0, 0)
}

func smallDebugFrame() []byte {
	s := sectionBuilder{debug: true}
	cie := s.cie()
	for i := range uint64(8) {
		s.fde(cie, elfText+0x20*i, 0x20, advance(1), def(24))
	}
	return s.b
}

func open(b []byte) (*File, error) {
	return NewFile("libfoo.so", bytes.NewReader(b), int64(len(b)))
}

func TestObject(t *testing.T) {
	for _, stripped := range []bool{false, true} {
		b := testELF{ehFrame: smallFrame(), noSections: stripped}.bytes()
		o, err := open(b)
		require.NoError(t, err)
		assert.Equal(t, "libfoo.so", o.Name())
		assert.Equal(t, testBuildID, o.BuildID())
		assert.Equal(t, int64(len(b)), o.FileSize())
		assert.NoError(t, o.Close())
		for _, src := range []Source{SourceAuto, SourceEHFrame} {
			s, err := o.Section(src)
			require.NoError(t, err)
			assert.Equal(t, smallFrame(), s.Data)
			assert.Equal(t, Addr(elfEHFrame), s.Addr)
			assert.Equal(t, int64(8), s.HdrSize())
			assert.Equal(t, int64(len(s.Data)), s.Size())
			assert.Equal(t, SourceEHFrame, s.Source())
			table, rep, err := BuildTable(o, BuildOptions{Source: src})
			require.NoError(t, err)
			require.Len(t, table.Ranges, 2)
			assert.Equal(t, "rsp+16 ra=c-8", table.RowText(table.Ranges[1].Row))
			assert.Equal(t, Addr(elfText), table.Low())
			assert.Equal(t, 1, rep.Entries.FDEs)
		}
		_, err = o.Section(SourceDebugFrame)
		assert.ErrorIs(t, err, ErrNoUnwindInfo)
		assert.EqualError(t, err, "libfoo.so: no unwind tables: no .debug_frame")
	}
}

// DW_EH_PE_indirect: the FDE's start is a word of the file's image.
func TestIndirectPointers(t *testing.T) {
	var s sectionBuilder
	cie := s.rawCIE(cat([]byte{1, 'z', 'R', 0}, uleb(1), sleb(-8), []byte{16, 1, byte(PEIndirect | PEUData4)},
		usualCIE()))
	const slot = elfText + 0x80
	s.rawFDE(cie, cat(le32(slot), le32(0x20), uleb(0)))
	s.rawFDE(cie, cat(le32(elfEnd-4), le32(0x20), uleb(0)))
	b := testELF{ehFrame: s.b}.bytes()
	copy(b[slot:], le64(elfText+0x10))
	o, err := open(b)
	require.NoError(t, err)
	table, rep, err := BuildTable(o, BuildOptions{})
	require.NoError(t, err)
	assert.Equal(t, Addr(elfText+0x10), table.Low())
	require.Equal(t, 1, rep.Entries.Lost)
	assert.Contains(t, rep.LostFDEs[0].Error(), "indirect pointer to 0x2fc, which the file does not hold")
}

func TestDebugFrame(t *testing.T) {
	plain := smallDebugFrame()
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	w.Write(plain)
	w.Close()
	size := uint64(len(plain))
	tests := []struct {
		name string
		elf  testELF
	}{
		{"plain", testELF{debugName: ".debug_frame", debugFrame: plain}},
		{"beside an .eh_frame without an FDE", testELF{debugName: ".debug_frame", debugFrame: plain,
			ehFrame: make([]byte, 4)}},
		{"SHF_COMPRESSED", testELF{debugName: ".debug_frame", debugFlags: uint64(elf.SHF_COMPRESSED),
			debugFrame: cat(le32(1), le32(0), le64(size), le64(8), z.Bytes())}},
		{".zdebug_frame", testELF{debugName: ".zdebug_frame",
			debugFrame: cat([]byte("ZLIB"), binary.BigEndian.AppendUint64(nil, size), z.Bytes())}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			o, err := open(tc.elf.bytes())
			require.NoError(t, err)
			for range 2 {
				s, err := o.Section(SourceAuto)
				require.NoError(t, err)
				assert.Equal(t, ".debug_frame", s.Name)
				assert.Equal(t, plain, s.Data)
			}
			table, _, err := BuildTable(o, BuildOptions{})
			require.NoError(t, err)
			assert.Len(t, table.Ranges, 16)
		})
	}
	bad := []struct {
		name, want string
		elf        testELF
	}{
		{"absurd size", "are said to hold", testELF{debugName: ".debug_frame", debugFlags: uint64(elf.SHF_COMPRESSED),
			debugFrame: cat(le32(1), le32(0), le64(1<<40), le64(8), z.Bytes())}},
		{"shorter than it says", "unexpected EOF", testELF{debugName: ".debug_frame",
			debugFlags: uint64(elf.SHF_COMPRESSED),
			debugFrame: cat(le32(1), le32(0), le64(size+1), le64(8), z.Bytes())}},
		{"unknown compression", "compression", testELF{debugName: ".debug_frame",
			debugFlags: uint64(elf.SHF_COMPRESSED),
			debugFrame: cat(le32(9), le32(0), le64(size), le64(8), z.Bytes())}},
		{"old, without a header", "no ZLIB header", testELF{debugName: ".zdebug_frame", debugFrame: plain}},
		{"old, absurd size", "are said to hold", testELF{debugName: ".zdebug_frame",
			debugFrame: cat([]byte("ZLIB"), binary.BigEndian.AppendUint64(nil, 1<<40), z.Bytes())}},
		{"old, not zlib", "zlib", testELF{debugName: ".zdebug_frame",
			debugFrame: []byte("ZLIB\x00\x00\x00\x00\x00\x00\x00\x20garbage")}},
	}
	for _, tc := range bad {
		t.Run(tc.name, func(t *testing.T) {
			o, err := open(tc.elf.bytes())
			if err == nil {
				_, err = o.Section(SourceAuto)
			}
			require.Error(t, err)
			assert.Contains(t, err.Error(), tc.want)
			assert.Contains(t, err.Error(), "libfoo.so: ")
		})
	}
}

// Which part of the file is changed, and what comes of it.
func TestBadObjects(t *testing.T) {
	change := func(off int, with ...byte) func([]byte) []byte {
		return func(b []byte) []byte {
			copy(b[off:], with)
			return b
		}
	}
	const (
		eClass, eData, eType, eMachine = 4, 5, 16, 18
		ePhoff, eShoff, eShentsize     = 32, 40, 58
		pOffset, pFilesz               = 64 + 8, 64 + 32
	)
	sectionHeader := func(i, field int, with ...byte) func([]byte) []byte {
		return func(b []byte) []byte {
			shoff := binary.LittleEndian.Uint64(b[eShoff:])
			copy(b[int(shoff)+64*i+field:], with)
			return b
		}
	}
	tests := []struct {
		name   string
		change func([]byte) []byte
		kind   error
		want   string
	}{
		{"empty file", func([]byte) []byte { return nil }, ErrNotELF, "not an ELF file"},
		{"text", func([]byte) []byte { return []byte("#!/bin/sh\n") }, ErrNotELF, "not an ELF file"},
		{"archive", func([]byte) []byte { return []byte("!<arch>\n/               0") }, ErrNotELF,
			"not an ELF file: a static archive"},
		{"ELF32", change(eClass, 1), ErrNotX86_64, "not an x86-64 ELF file: ELF32, for machine EM_X86_64"},
		{"big-endian", func(b []byte) []byte { return change(eMachine, 0, 21)(change(eData, 2)(b)) }, ErrNotX86_64,
			"not an x86-64 ELF file: big-endian, for machine EM_PPC64"},
		{"other machine", change(eMachine, 183), ErrNotX86_64, "not an x86-64 ELF file: for machine EM_AARCH64"},
		{"absurd class", change(eClass, 7), ErrBadEncoding, "malformed ELF header: unknown class or byte order"},
		{"core file", change(eType, 4), ErrNotLoadable, "not an executable or shared object: a core file"},
		{"relocatable object", change(eType, 1), ErrNotLoadable,
			"not an executable or shared object: a relocatable object"},
		{"ELF type none", change(eType, 0), ErrNotLoadable, "not an executable or shared object: ELF type ET_NONE"},
		{"program headers out of the file", change(ePhoff+2, 1), ErrTruncated,
			"the program headers at 0x10040 lead past the end of the file"},
		{"section headers out of the file", change(eShoff+3, 1), ErrTruncated, "lead past the end of the file"},
		{"absurd section header size", change(eShentsize, 1), ErrBadEncoding, "malformed ELF headers"},
		{"segment out of the file", change(pOffset+3, 1), ErrTruncated, "truncated: segment 0 ends at"},
		{"segment of absurd size", change(pFilesz+7, 0x80), ErrBadEncoding,
			"malformed ELF headers: invalid program header file size"},
		{"segment larger in the file", change(pFilesz+8, 1, 0), ErrBadEncoding, "segment 0 has an absurd size"},
		{"section out of the file", sectionHeader(3, 24, 0, 0, 0, 1), ErrTruncated,
			"truncated: section .eh_frame ends at"},
		{"section of absurd size", sectionHeader(3, 32, 0, 0, 0, 0, 0, 0, 0, 0x80), ErrBadEncoding,
			"malformed ELF headers: invalid section size"},
		{"compressed .eh_frame", sectionHeader(3, 8, 2, 8), ErrBadEncoding, "compressed sections are said to hold"},
		{"no unwind tables", func([]byte) []byte { return testELF{}.bytes() }, ErrNoUnwindInfo,
			"no unwind tables: neither .eh_frame nor .debug_frame has an FDE"},
		{"empty .eh_frame", func([]byte) []byte { return testELF{ehFrame: []byte{0, 0, 0, 0}}.bytes() },
			ErrNoUnwindInfo,
			"no unwind tables: neither .eh_frame nor .debug_frame has an FDE"},
		{"unknown .eh_frame_hdr", func([]byte) []byte {
			return change(elfHdr, 2)(testELF{ehFrame: smallFrame(), noSections: true}.bytes())
		}, ErrUnsupported, ".eh_frame_hdr: unknown version 2"},
		{".eh_frame_hdr leads nowhere", func([]byte) []byte {
			return change(elfHdr+7, 0x7f)(testELF{ehFrame: smallFrame(), noSections: true}.bytes())
		}, ErrBadEncoding, "leads outside the file"},
		{".eh_frame_hdr without a pointer", func([]byte) []byte {
			return change(elfHdr+1, 0xff)(testELF{ehFrame: smallFrame(), noSections: true}.bytes())
		}, ErrBadEncoding, ".eh_frame_hdr: pointer encoded as omitted"},
		{"all FDEs bad", func([]byte) []byte {
			var s sectionBuilder
			s.fde(s.cie(), elfText, 0x20, inst(CFARestoreState))
			return testELF{ehFrame: s.b}.bytes()
		}, ErrNoUnwindInfo, "no unwind tables: 1 of the 1 FDEs of .eh_frame are bad, the first: " +
			".eh_frame+0x12: FDE 0x140..0x160: DW_CFA_restore_state with an empty stack"},
		{"no FDE in the code", func([]byte) []byte {
			var s sectionBuilder
			s.fde(s.cie(), 0, 0x20)
			return testELF{ehFrame: s.b}.bytes()
		}, ErrNoUnwindInfo, "no unwind tables: no FDE of .eh_frame covers code of the file (1 FDEs, 0 empty, 1 outside)"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			b := tc.change(testELF{ehFrame: smallFrame()}.bytes())
			o, err := open(b)
			if err == nil {
				_, _, err = BuildTable(o, BuildOptions{})
			}
			require.Error(t, err)
			assert.ErrorIs(t, err, tc.kind)
			assert.Contains(t, err.Error(), tc.want)
			assert.Regexp(t, `^libfoo\.so: [^\n]+$`, err.Error())
		})
	}
}

// Cut anywhere, a file is an error or, where only padding is missing, whole.
func TestTruncatedObjects(t *testing.T) {
	for _, e := range []testELF{
		{ehFrame: smallFrame()},
		{ehFrame: smallFrame(), noSections: true},
		{debugFrame: smallDebugFrame(), debugName: ".debug_frame"},
	} {
		whole := e.bytes()
		for n := range whole {
			o, err := open(whole[:n])
			if err == nil {
				_, _, err = BuildTable(o, BuildOptions{Strict: true})
			}
			require.Error(t, err, "%d of %d bytes", n, len(whole))
			if n < 4 {
				assert.ErrorIs(t, err, ErrNotELF)
			} else {
				assert.ErrorIs(t, err, ErrTruncated, "%d of %d bytes", n, len(whole))
			}
		}
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lib\nfoo.so")
	require.NoError(t, os.WriteFile(path, testELF{ehFrame: smallFrame()}.bytes(), 0o644))
	o, err := Open(path)
	require.NoError(t, err)
	_, _, err = BuildTable(o, BuildOptions{})
	assert.NoError(t, err)
	assert.NoError(t, o.Close())

	require.NoError(t, os.WriteFile(path, []byte("x"), 0o644))
	_, err = Open(path)
	assert.ErrorIs(t, err, ErrNotELF)
	assert.NotContains(t, err.Error(), "\n")

	_, err = Open(dir)
	assert.EqualError(t, err, dir+": not a regular file")
	assert.ErrorIs(t, err, ErrNotELF)

	fifo := filepath.Join(dir, "fifo")
	testtool.MakeFIFO(t, fifo)
	_, err = Open(fifo)
	assert.ErrorIs(t, err, ErrNotELF, "it is not waited for")

	_, err = Open(filepath.Join(dir, "none"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.EqualError(t, err, filepath.Join(dir, "none")+": no such file or directory")
}

// TestSections: with SourceAuto, both sections where both hold FDEs.
func TestSections(t *testing.T) {
	plain, first := smallDebugFrame(), smallFrame()
	names := func(sections []*Section) (all []string) {
		for _, s := range sections {
			all = append(all, s.Name)
		}
		return all
	}
	for _, tc := range []struct {
		elf  testELF
		src  Source
		want []string
	}{
		{testELF{ehFrame: first}, SourceAuto, []string{".eh_frame"}},
		{testELF{ehFrame: first, debugName: ".debug_frame", debugFrame: plain}, SourceAuto,
			[]string{".eh_frame", ".debug_frame"}},
		{testELF{ehFrame: first, debugName: ".debug_frame", debugFrame: plain}, SourceEHFrame, []string{".eh_frame"}},
		{testELF{ehFrame: first, debugName: ".debug_frame", debugFrame: plain}, SourceDebugFrame,
			[]string{".debug_frame"}},
		{testELF{ehFrame: make([]byte, 4), debugName: ".debug_frame", debugFrame: plain}, SourceAuto,
			[]string{".debug_frame"}},
	} {
		o, err := open(tc.elf.bytes())
		require.NoError(t, err)
		sections, err := o.Sections(tc.src)
		require.NoError(t, err)
		assert.Equal(t, tc.want, names(sections))
	}
	o, err := open(testELF{ehFrame: first, debugName: ".zdebug_frame", debugFrame: plain}.bytes())
	require.NoError(t, err)
	sections, err := o.Sections(SourceAuto)
	assert.Equal(t, []string{".eh_frame"}, names(sections), "beside the error")
	var damage *DecodeError
	assert.ErrorAs(t, err, &damage)
	assert.ErrorContains(t, err, "libfoo.so: .debug_frame+0x0: ")
}
