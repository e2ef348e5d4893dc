// Package unwindtest makes small ELF objects with unwind tables, for tests of
// whole stacks.
package unwindtest

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
)

// Kind is what the frames of a function look like.
type Kind int

// The kinds.
const (
	Plain     Kind = iota // two words: the caller's rbp, the return address
	Signal                // the same, as a signal frame
	Outermost             // the return address is undefined
	ByRAX                 // as Plain, but rax points to the two words
	BelowRSP              // as Plain, but the word below rsp points to the two words
)

// Func is a function [Addr, Addr+Size), link-time addresses.
type Func struct {
	Name string
	Addr uint64
	Size uint64
	Kind Kind
}

// ELF is an object with one executable segment: file offset Off, link-time
// address VAddr.
type ELF struct {
	Off, VAddr, Size uint64
	Entry            uint64
	BuildID          []byte
	Funcs            []Func
	EmptyHdr         bool // there is an .eh_frame_hdr, of no bytes
	Stripped         bool // functions have no symbols
}

// pack joins values of fixed size, little-endian.
func pack(fields ...any) []byte {
	var b bytes.Buffer
	for _, f := range fields {
		if err := binary.Write(&b, binary.LittleEndian, f); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

// pad appends zeros up to a multiple of align, a power of two.
func pad(b []byte, align int) []byte { return append(b, make([]byte, -len(b)&(align-1))...) }

// ehFrame writes an .eh_frame at an address: DWARF 5, 6.4.1, with the augmentations of the LSB.
func (e *ELF) ehFrame(addr uint64) []byte {
	var out []byte
	entry := func(body []byte) {
		body = pad(body, 8)
		out = append(out, pack(uint32(len(body)))...)
		out = append(out, body...)
	}
	var cieAt [2]int
	for i, aug := range []string{"zR\x00", "zRS\x00"} {
		cieAt[i] = len(out)
		// version, augmentation, code and data alignment factors 1 and -8, return
		// address 16, DW_EH_PE_pcrel|sdata8; CFA rsp+16, rip at -8, rbp at -16.
		entry(pack(uint32(0), uint8(1), []byte(aug), []byte{1, 0x78, 16, 1, 0x1c, 0x0c, 7, 16, 0x90, 1, 0x86, 2}))
	}
	for _, f := range e.Funcs {
		cie := cieAt[0]
		if f.Kind == Signal {
			cie = cieAt[1]
		}
		insts := []byte{0}
		if f.Kind == Outermost {
			insts = []byte{0x07, 16} // DW_CFA_undefined
		}
		if f.Kind == ByRAX {
			insts = []byte{0x0c, 0, 16} // DW_CFA_def_cfa
		}
		if f.Kind == BelowRSP {
			// DW_CFA_def_cfa_expression: breg7 -8, deref, plus_uconst 16
			insts = []byte{0x0f, 5, 0x77, 0x78, 0x06, 0x23, 16}
		}
		entry(pack(uint32(len(out)+4-cie), f.Addr-(addr+uint64(len(out))+8), f.Size, uint8(0), insts))
	}
	return append(out, 0, 0, 0, 0)
}

// Bytes returns the file. Its code is call *%rax throughout, so that each even address
// lies after a call, and no odd one does.
func (e *ELF) Bytes() []byte {
	const ehdr, phdr, shdr = 64, 56, 64
	names := "\x00.eh_frame\x00.shstrtab\x00.symtab\x00.strtab\x00.text\x00.eh_frame_hdr\x00"
	sections := uint16(6)
	if e.EmptyHdr {
		sections++
	}
	note := pack(uint32(4), uint32(len(e.BuildID)), uint32(3), []byte("GNU\x00"), e.BuildID)
	if len(e.BuildID) == 0 {
		note = nil
	}
	strtab := []byte{0}
	symtab := make([]byte, 24)
	for _, f := range e.Funcs {
		if e.Stripped {
			break
		}
		symtab = append(symtab, pack(uint32(len(strtab)), uint8(0x12), uint8(0), uint16(5), f.Addr, f.Size)...)
		strtab = append(append(strtab, f.Name...), 0)
	}
	offset := uint64(ehdr + 2*phdr)
	place := func(b []byte) uint64 { p := offset; offset += uint64(len(b)+7) &^ 7; return p }
	noteAt := place(note)
	frame := e.ehFrame(offset)
	frameAt, symAt, strAt, namesAt := place(frame), place(symtab), place(strtab), place([]byte(names))
	shAt := offset
	offset += uint64(sections) * shdr
	if offset > e.Off {
		panic("segment too early")
	}
	out := pack([]byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"), uint16(3), uint16(62), uint32(1),
		e.Entry, uint64(ehdr), shAt, uint32(0), uint16(ehdr), uint16(phdr), uint16(2), uint16(shdr), sections,
		uint16(2))
	out = append(out, pack(uint32(1), uint32(5), e.Off, e.VAddr, e.VAddr, e.Size, e.Size, uint64(4096))...)
	out = append(out, pack(uint32(4), uint32(4), noteAt, noteAt, noteAt, uint64(len(note)), uint64(len(note)),
		uint64(4))...)
	for _, b := range [][]byte{note, frame, symtab, strtab, []byte(names)} {
		out = pad(append(out, b...), 8)
	}
	section := func(name, typ uint32, flags, addr, off, size uint64, link, info uint32, entsize uint64) {
		out = append(out, pack(name, typ, flags, addr, off, size, link, info, uint64(8), entsize)...)
	}
	section(0, 0, 0, 0, 0, 0, 0, 0, 0)
	section(1, 1, 2, frameAt, frameAt, uint64(len(frame)), 0, 0, 0)
	section(11, 3, 0, 0, namesAt, uint64(len(names)), 0, 0, 0)
	section(21, 2, 0, 0, symAt, uint64(len(symtab)), 4, 1, 24)
	section(29, 3, 0, 0, strAt, uint64(len(strtab)), 0, 0, 0)
	section(37, 1, 6, e.VAddr, e.Off, e.Size, 0, 0, 0)
	if e.EmptyHdr {
		section(43, 1, 2, frameAt, frameAt, 0, 0, 0, 0)
	}
	out = append(out, make([]byte, e.Off-uint64(len(out)))...)
	return append(out, bytes.Repeat([]byte{0xff, 0xd0}, int(e.Size)/2)...)
}

// Compile makes an eh_elf.
func Compile(name string, file io.ReaderAt, size int64) ([]byte, error) {
	o, err := dwarfcfa.NewFile(name, file, size)
	if err != nil {
		return nil, err
	}
	table, _, err := dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{})
	if err != nil {
		return nil, err
	}
	layout, err := plan.Build(table, plan.Options{})
	if err != nil {
		return nil, err
	}
	code, err := asmgen.Assemble(layout, asmgen.Options{})
	if err != nil {
		return nil, err
	}
	image, err := elfout.New(code, elfout.Source{Name: "test", BuildID: o.BuildID(), FileSize: size})
	if err != nil {
		return nil, err
	}
	return image.Bytes(), nil
}
