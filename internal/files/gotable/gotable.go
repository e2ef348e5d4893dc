// Package gotable reads .gopclntab, the table that Go's linker leaves in every program, stripped
// ones as well: the names of functions, and at each instruction how far the stack pointer lies
// below the return address. It reads the format of Go 1.18 and later (package runtime, type
// pcHeader; golang.org/s/go12symtab).
package gotable

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrNone is wrapped if a file has no table that can be read.
var ErrNone = errors.New("no .gopclntab")

// Function is a function of a Go program.
type Function struct {
	Lo, Hi uint64 // link-time addresses, [Lo, Hi)
	Name   string
	// MovesStack says that the function sets its stack pointer to another stack, which Depths
	// does not show.
	MovesStack bool
	Assembly   bool // written in assembly; the compiler's functions keep to calls

	depths uint32 // offset in Table.deltas
}

// Table holds the functions of a file.
type Table struct {
	text   uint64 // the address that the functions' offsets count from
	names  []byte
	deltas []byte
	lines  []byte // the function table, and what its entries lead to
	count  int    // of functions
	flagAt int    // offset of a function's flags
}

// The header: its fields are words from the eighth byte on.
const (
	magic118   = 0xfffffff0
	magic120   = 0xfffffff1
	headerSize = 72
	countAt    = 8
	textAt     = 24
	namesAt    = 32
	deltasAt   = 56
	linesAt    = 64
)

// Parts of an entry of the function table, and of what it leads to.
const (
	entrySize   = 8 // offsets of the function's start and of its description
	nameAt      = 4
	depthsAt    = 16
	flagAt118   = 37
	flagAt120   = 41
	flagWriteSP = 2
	flagAsm     = 4
)

// moduleText is the offset of the text's address in runtime.moduledata, which has the table's
// own address first.
const moduleText = 176

// maxTable bounds the bytes of a table.
const maxTable = 1 << 30

// Open finds the table of a file. The error wraps ErrNone if there is none.
func Open(f *elf.File) (*Table, error) {
	var s *elf.Section
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if s == nil {
			s = f.Section(name)
		}
	}
	if s == nil || s.Type != elf.SHT_PROGBITS || s.Size > maxTable || f.Machine != elf.EM_X86_64 {
		return nil, ErrNone
	}
	b, err := s.Data()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	le := binary.LittleEndian
	if len(b) < headerSize || !bytes.Equal(b[4:8], []byte{0, 0, 1, 8}) { // instructions of any length, words of 8 bytes
		return nil, fmt.Errorf("%w of a known form", ErrNone)
	}
	t := &Table{}
	switch le.Uint32(b) {
	case magic118:
		t.flagAt = flagAt118
	case magic120:
		t.flagAt = flagAt120
	default:
		return nil, fmt.Errorf("%w of a known version: %#x", ErrNone, le.Uint32(b))
	}
	for at, part := range map[int]*[]byte{namesAt: &t.names, deltasAt: &t.deltas, linesAt: &t.lines} {
		off := le.Uint64(b[at:])
		if off > uint64(len(b)) {
			return nil, fmt.Errorf("%w that is whole", ErrNone)
		}
		*part = b[off:]
	}
	count := le.Uint64(b[countAt:])
	if count == 0 || count >= uint64(len(t.lines)/entrySize) {
		return nil, fmt.Errorf("%w that is whole", ErrNone)
	}
	t.count, t.text = int(count), textStart(f, s, le.Uint64(b[textAt:]))
	if text := f.Section(".text"); text == nil || t.text < text.Addr || t.text+t.offset(t.count) > text.Addr+text.Size {
		return nil, fmt.Errorf("%w of the file's code", ErrNone)
	}
	return t, nil
}

// textStart returns the address that functions' offsets count from: the header has it before Go 1.26, and
// runtime.moduledata, which is a section from then on; otherwise .text begins there.
func textStart(f *elf.File, table *elf.Section, header uint64) uint64 {
	if a := relocated(f, table.Addr+textAt, header); a != 0 {
		return a
	}
	if m := f.Section(".go.module"); m != nil && m.Type == elf.SHT_PROGBITS && m.Size >= moduleText+8 && m.Size < maxTable {
		if b, err := m.Data(); err == nil && relocated(f, m.Addr, binary.LittleEndian.Uint64(b)) == table.Addr {
			return relocated(f, m.Addr+moduleText, binary.LittleEndian.Uint64(b[moduleText:]))
		}
	}
	if text := f.Section(".text"); text != nil {
		return text.Addr
	}
	return 0
}

// relocated returns the word at an address, which the file has as value, once relocated at bias 0.
func relocated(f *elf.File, addr, value uint64) uint64 {
	const relaSize = 24
	le := binary.LittleEndian
	for _, s := range f.Sections {
		if s.Type != elf.SHT_RELA || s.Flags&elf.SHF_ALLOC == 0 || s.Size > maxTable {
			continue
		}
		b, err := s.Data()
		for ; err == nil && len(b) >= relaSize; b = b[relaSize:] {
			if le.Uint64(b) == addr && elf.R_X86_64(le.Uint32(b[8:])) == elf.R_X86_64_RELATIVE {
				return le.Uint64(b[16:])
			}
		}
	}
	return value
}

// offset returns where function i begins, from text on.
func (t *Table) offset(i int) uint64 {
	return uint64(binary.LittleEndian.Uint32(t.lines[i*entrySize:]))
}

// Functions returns the functions, ascending. Those whose description leads out of the table are left out.
func (t *Table) Functions() []Function {
	le := binary.LittleEndian
	list := make([]Function, 0, t.count)
	for i := range t.count {
		at := uint64(le.Uint32(t.lines[i*entrySize+4:]))
		lo, hi := t.offset(i), t.offset(i+1)
		if at+uint64(t.flagAt) >= uint64(len(t.lines)) || lo >= hi || hi > t.offset(t.count) {
			continue
		}
		d := t.lines[at:]
		f := Function{Lo: t.text + lo, Hi: t.text + hi, depths: le.Uint32(d[depthsAt:])}
		if n := uint64(le.Uint32(d[nameAt:])); n < uint64(len(t.names)) {
			name, _, _ := bytes.Cut(t.names[n:], []byte{0})
			f.Name = string(name)
		}
		f.MovesStack, f.Assembly = d[t.flagAt]&flagWriteSP != 0, d[t.flagAt]&flagAsm != 0
		if n := len(list); n > 0 && list[n-1].Hi > f.Lo {
			continue
		}
		list = append(list, f)
	}
	return list
}

// Depth says that at the addresses [Lo, Hi) the return address is at rsp + Bytes.
type Depth struct {
	Lo, Hi uint64
	Bytes  int32
}

// Depths appends the depths of a function, ascending and within it. ok is false if its table is damaged, or a depth
// negative or no multiple of 8.
func (t *Table) Depths(list []Depth, f *Function) (_ []Depth, ok bool) {
	if f.depths == 0 || uint64(f.depths) >= uint64(len(t.deltas)) {
		return list, false
	}
	b, pc, value := t.deltas[f.depths:], f.Lo, int64(-1)
	for first := true; pc < f.Hi; first = false {
		change, n := binary.Uvarint(b)
		if n <= 0 || change == 0 && !first || change > 1<<32 {
			return list, pc > f.Lo && n > 0 // it ends before padding
		}
		length, m := binary.Uvarint(b[n:])
		if m <= 0 || length == 0 || length > f.Hi-pc {
			return list, false
		}
		value += int64(change>>1) ^ -int64(change&1)
		if value < 0 || value%8 != 0 || value > 1<<30 {
			return list, false
		}
		list = append(list, Depth{pc, pc + length, int32(value)})
		pc += length
		b = b[n+m:]
	}
	return list, true
}
