// Package gotable reads .gopclntab, the table of functions that Go's linker leaves in every
// program, also in stripped ones. It has the names of functions and, for each instruction, how
// far the stack pointer lies below the return address. Package gotable reads the format of Go
// 1.18 and later (package runtime, type pcHeader; golang.org/s/go12symtab).
package gotable

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"unsafe"

	"github.com/ehasm/ehasm/internal/files/elffile"
)

// ErrNone says that a file has no table, or none that can be read. Open wraps it.
var ErrNone = errors.New("no .gopclntab")

// Function is a function of a Go program.
type Function struct {
	Lo, Hi uint64 // link-time addresses, [Lo, Hi)
	Name   string // of at most LongestName bytes
	NameAt uint32 // offset of the name in the section; a zero byte ends it
	// MovesStack says that the function switches to another stack. Depths does not show that.
	MovesStack bool
	Assembly   bool // written in assembly; the compiler's functions keep to calls

	depths uint32 // offset in Table.deltas
}

// Table holds the functions of a file. It reads each description from the file on demand, so the file must stay open.
// All methods but Functions are safe for concurrent use.
type Table struct {
	text    uint64 // the address that the functions' offsets count from
	file    *elf.Section
	size    uint64 // of the section
	names   uint64 // offsets in the section
	deltas  uint64
	lines   uint64 // the function table, and what its entries lead to
	entries []byte // of the function table
	count   int    // of functions
	flagAt  int    // offset of a function's flags
	loaded  []byte // the section, once Functions was called
}

// The header (pcHeader): after the magic number, the size of an instruction and the size of a word,
// its fields are words from the eighth byte on.
const (
	magic118   = 0xfffffff0 // Go 1.18 and 1.19
	magic120   = 0xfffffff1 // since Go 1.20
	headerSize = 72         // bytes
	countAt    = 8          // number of functions
	textAt     = 24         // address of the text
	namesAt    = 32         // offset of the names
	deltasAt   = 56         // offset of the tables of depths (pctab)
	linesAt    = 64         // offset of the function table
)

// Offsets in an entry of the function table, and in the description (runtime._func) that it points
// to.
const (
	entrySize   = 8  // offsets of the function's start and of its description
	nameAt      = 4  // offset of the name in the names
	depthsAt    = 16 // offset of the function's table of depths (pcsp)
	flagAt118   = 37 // of the flags in Go 1.18 and 1.19
	flagAt120   = 41 // one field more lies before them: startLine
	flagWriteSP = 2  // abi.FuncFlagSPWrite
	flagAsm     = 4  // abi.FuncFlagAsm
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
	t := &Table{file: s, size: s.Size}
	b := t.bytes(0, headerSize)
	le := binary.LittleEndian
	// instructions of any length, words of 8 bytes
	if s.Flags&elf.SHF_COMPRESSED != 0 || len(b) < headerSize || !bytes.Equal(b[4:8], []byte{0, 0, 1, 8}) {
		return nil, fmt.Errorf("%w of a known form", ErrNone)
	}
	switch le.Uint32(b) {
	case magic118:
		t.flagAt = flagAt118
	case magic120:
		t.flagAt = flagAt120
	default:
		return nil, fmt.Errorf("%w of a known version: %#x", ErrNone, le.Uint32(b))
	}
	count := le.Uint64(b[countAt:])
	t.names, t.deltas, t.lines = le.Uint64(b[namesAt:]), le.Uint64(b[deltasAt:]), le.Uint64(b[linesAt:])
	// The table has count+1 entries: the last holds the end of the last function.
	if max(t.names, t.deltas, t.lines) > s.Size || count == 0 || count >= (s.Size-t.lines)/entrySize {
		return nil, fmt.Errorf("%w that is whole", ErrNone)
	}
	t.count, t.text = int(count), textStart(f, s, le.Uint64(b[textAt:]))
	if t.entries = t.bytes(t.lines, (t.count+1)*entrySize); len(t.entries) < (t.count+1)*entrySize {
		return nil, fmt.Errorf("%w that is whole", ErrNone)
	}
	// The functions must lie in .text, else the table is of another file or damaged.
	if text := f.Section(".text"); text == nil || t.text < text.Addr || t.text+t.offset(t.count) > text.Addr+text.Size {
		return nil, fmt.Errorf("%w of the file's code", ErrNone)
	}
	return t, nil
}

// bytes returns n bytes at an offset in the section, or as many as there are.
func (t *Table) bytes(off uint64, n int) []byte {
	if off >= t.size {
		return nil
	}
	n = int(min(uint64(n), t.size-off))
	if t.loaded != nil {
		return t.loaded[off : off+uint64(n)]
	}
	b := make([]byte, n)
	n, _ = t.file.ReadAt(b, int64(off))
	return b[:n]
}

// textStart returns the address from which functions' offsets count. Before Go 1.26 the header has it, and from then on
// runtime.moduledata, which is a section. Without both it is the start of .text.
func textStart(f *elf.File, table *elf.Section, header uint64) uint64 {
	if a := relocated(f, table.Addr+textAt, header); a != 0 {
		return a
	}
	if m := f.Section(".go.module"); m != nil && m.Type == elf.SHT_PROGBITS && m.Size >= moduleText+8 &&
		m.Size < maxTable {
		if b, err := m.Data(); err == nil && relocated(f, m.Addr, binary.LittleEndian.Uint64(b)) == table.Addr {
			return relocated(f, m.Addr+moduleText, binary.LittleEndian.Uint64(b[moduleText:]))
		}
	}
	if text := f.Section(".text"); text != nil {
		return text.Addr
	}
	return 0
}

// relocated returns the word at an address after relocation at bias 0. value is the word in the file.
func relocated(f *elf.File, addr, value uint64) uint64 {
	for r, err := range elffile.Relocs(f) {
		if err == nil && r.Addr == addr && r.Type == elf.R_X86_64_RELATIVE && !r.InFile {
			return r.Addend
		}
	}
	return value
}

// offset returns where function i begins, as an offset from text.
func (t *Table) offset(i int) uint64 {
	return uint64(binary.LittleEndian.Uint32(t.entries[i*entrySize:]))
}

// Section returns the section that holds the table.
func (t *Table) Section() *elf.Section { return t.file }

// Len returns the number of functions.
func (t *Table) Len() int { return t.count }

// Index returns the number of the function that holds a link-time address.
func (t *Table) Index(addr uint64) (i int, ok bool) {
	i = sort.Search(t.count+1, func(i int) bool { return t.text+t.offset(i) > addr }) - 1
	return i, i >= 0 && i < t.count
}

// LongestName is how many bytes of a name are read.
const LongestName = 4096

// Function returns a function by its number; ok is false if its description is damaged.
func (t *Table) Function(i int) (f Function, ok bool) {
	le := binary.LittleEndian
	lo, hi := t.offset(i), t.offset(i+1)
	d := t.bytes(t.lines+uint64(le.Uint32(t.entries[i*entrySize+4:])), t.flagAt+1)
	if len(d) <= t.flagAt || lo >= hi || hi > t.offset(t.count) {
		return Function{}, false
	}
	f = Function{Lo: t.text + lo, Hi: t.text + hi, depths: le.Uint32(d[depthsAt:])}
	start := t.names + uint64(le.Uint32(d[nameAt:]))
	f.NameAt = uint32(start) // no section that is read has 4 GB
	// Most names end within the first read; a longer name is read again, whole.
	name := t.bytes(start, firstRead)
	if bytes.IndexByte(name, 0) < 0 {
		name = t.bytes(start, LongestName)
	}
	name, _, _ = bytes.Cut(name, []byte{0})
	if t.loaded != nil {
		f.Name = unsafe.String(unsafe.SliceData(name), len(name)) // all functions of a hostile file may have one long name
	} else {
		f.Name = string(name)
	}
	f.MovesStack, f.Assembly = d[t.flagAt]&flagWriteSP != 0, d[t.flagAt]&flagAsm != 0
	return f, true
}

// firstRead is how many bytes of a name, or of depths, are read at first.
const firstRead = 128

// Functions returns all functions, ascending, without those whose description is damaged. It reads the whole table.
func (t *Table) Functions() []Function {
	if t.loaded == nil {
		if b := t.bytes(0, int(t.size)); uint64(len(b)) == t.size {
			t.loaded = b
		}
	}
	// Overlapping functions are left out, so that the result ascends.
	list := make([]Function, 0, t.count)
	for i := range t.count {
		f, ok := t.Function(i)
		if n := len(list); !ok || n > 0 && list[n-1].Hi > f.Lo {
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

// Depths appends the depths of a function, ascending and within the function. ok is false if its table is damaged, or
// if a depth is negative or no multiple of 8.
func (t *Table) Depths(list []Depth, f *Function) (_ []Depth, ok bool) {
	const longest = 1 << 16 // bytes of a function's depths
	if f.depths == 0 {      // the offset 0 says that there is no table
		return list, false
	}
	start := t.deltas + uint64(f.depths)
	n := len(list)
	list, ok, whole := appendDepths(list, t.bytes(start, firstRead), f)
	if !whole {
		list, ok, _ = appendDepths(list[:n], t.bytes(start, longest), f)
	}
	return list, ok
}

// appendDepths is Depths for the bytes of a function's table; whole is false if they end within it.
// The table is a sequence of pairs of varints: the change of the depth, zigzag-encoded, and the
// number of bytes of code for which it holds (golang.org/s/go12symtab).
func appendDepths(list []Depth, b []byte, f *Function) (_ []Depth, ok, whole bool) {
	pc, value := f.Lo, int64(-1)
	for first := true; pc < f.Hi; first = false {
		change, n := binary.Uvarint(b)
		if n <= 0 {
			return list, false, n < 0 // n is 0 if b ends within the number
		}
		if change == 0 && !first || change > 1<<32 {
			return list, pc > f.Lo, true // it ends before padding
		}
		length, m := binary.Uvarint(b[n:])
		if m == 0 {
			return list, false, false
		}
		if m < 0 || length == 0 || length > f.Hi-pc {
			return list, false, true
		}
		value += int64(change>>1) ^ -int64(change&1)
		if value < 0 || value%8 != 0 || value > 1<<30 {
			return list, false, true
		}
		list = append(list, Depth{pc, pc + length, int32(value)})
		pc += length
		b = b[n+m:]
	}
	return list, true, true
}
