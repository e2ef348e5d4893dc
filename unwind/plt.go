package unwind

import (
	"bytes"
	"debug/elf"
	"fmt"
	"strings"
	"sync"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/files/elffile"
)

// lld and mold write no unwind information for procedure linkage tables, and neither
// does GNU ld with --no-ld-generated-unwind-info. Frame pointers do not help: the entries
// have no frame, and rbp belongs to a caller.

// plt holds an object's procedure linkage tables, read when they are first
// needed.
type plt struct {
	once     sync.Once
	sections []pltSection
}

// pltSection is the code of a section at a link-time address.
type pltSection struct {
	addr uint64 // link-time
	code []byte
}

// maxPLT bounds the bytes read of a section. libLLVM has 200 KB.
const maxPLT = 64 << 20

// stepPLT steps over a frame whose link-time pc is in a procedure linkage table.
// It returns false and changes nothing if the pc is elsewhere or the stack is not
// readable.
func (o *Object) stepPLT(pc uint64, regs *abi.Regs, mem *ehelf.Memory) bool {
	const word = 8
	if regs.Exact == 0 || regs.Valid>>abi.RSP&1 == 0 {
		return false // nothing in a PLT calls
	}
	o.file.plt.once.Do(o.readPLT)
	for _, s := range o.file.plt.sections {
		if pc-s.addr >= uint64(len(s.code)) {
			continue
		}
		cfa, ok := pltCFA(s.code, int(pc-s.addr))
		if !ok {
			return false
		}
		caller, ok := mem.ReadWord(regs.Reg[abi.RSP] + cfa - word)
		if !ok {
			return false
		}
		regs.Reg[abi.RIP] = caller
		regs.Reg[abi.RSP] += cfa
		regs.Exact = 0
		return true
	}
	return false
}

// readPLT reads the object's procedure linkage tables; none if the file cannot be read.
func (o *Object) readPLT() {
	image, _, err := o.Open()
	if err != nil {
		return
	}
	defer image.Close()
	o.file.plt.sections, _ = readPLT(image) // without them there is no information
}

// readPLT returns the sections of procedure linkage tables, by their names.
func readPLT(image Image) (sections []pltSection, err error) {
	defer func() {
		if p := recover(); p != nil { // debug/elf does that on rare malformed files
			err = fmt.Errorf("debug/elf: %v", p)
		}
	}()
	f, err := elffile.Open(image)
	if err != nil {
		return nil, err
	}
	for _, s := range f.Sections {
		named := s.Name == ".plt" || s.Name == ".iplt" || strings.HasPrefix(s.Name, ".plt.")
		if !named || s.Flags&elf.SHF_EXECINSTR == 0 || s.Type != elf.SHT_PROGBITS || s.Size > maxPLT {
			continue
		}
		code, err := s.Data()
		if err != nil {
			return nil, err
		}
		sections = append(sections, pltSection{s.Addr, code})
	}
	return sections, nil
}

// pltCFA returns CFA minus rsp at the instruction at an offset of a procedure linkage table's code. The entries of ld,
// lld and mold (x86-64 psABI 5.2, and its chapter on CET for those with endbr64) push a number, or a word for the
// dynamic linker, and jump. ok is false for other code, as in a section that has only the name.
func pltCFA(code []byte, off int) (cfa uint64, ok bool) {
	// is reports whether the code at an offset begins with these bytes.
	is := func(off int, insn ...byte) bool {
		return off >= 0 && off <= len(code) && bytes.HasPrefix(code[off:], insn)
	}
	const first = 32 // the first entry, which others jump to, is at most as long
	jump := off
	if is(off, 0xf2) { // bnd
		jump++
	}
	switch {
	case is(off, 0xff, 0x35): // push of memory: in the first entry, after the number
		return 16, true
	case is(jump, 0xff, 0x25): // jmp to what is in the GOT
		if off < first && is(off-6, 0xff, 0x35) {
			return 24, true
		}
		return 8, true
	case is(jump, 0xe9) && is(off-5, 0x68): // push of a number, jmp to the first entry
		return 16, true
	case is(off, 0x68), is(off, 0xf3, 0x0f, 0x1e, 0xfa): // push of a number; endbr64
		return 8, true
	case is(off, 0x41, 0xbb), is(off, 0x41, 0x53): // mold has the number in r11, and pushes that
		return 8, true
	}
	return 0, false
}
