package srcline

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// This file runs line number programs, with those registers that stacks show: address, file and line.

// program is a line number program: DWARF 5, 6.2.4.
type program struct {
	begin, end          uint64 // in .debug_line
	addrSize            uint8
	minLength           int // of instructions
	maxOps              int // per instruction; 1 but on VLIW machines
	lineBase, lineRange int
	opcodeBase          uint8
	lengths             []byte   // numbers of operands of the opcodes from 1 on
	definesFiles        bool     // set by run
	sums                []string // MD5 of the files of version 5, by number; nil: the header has none
}

// newProgram reads the header of the program at an offset of .debug_line, and checks it:
// debug/dwarf, which reads it too, allocates memory for as many folders and files as a
// header of version 5 claims.
func (s *sections) newProgram(off uint64) (p *program, err error) {
	const lengths = 12 // of the 64-bit format
	// Compressed sections are inflated only as far as needed.
	s.packed.line.upTo(off + lengths)
	c := cursor{b: s.line, off: off}
	n, wide := c.initialLength()
	if c.bad || n > uint64(len(s.line))-c.off {
		return nil, fmt.Errorf("length %#x goes beyond the end", n)
	}
	s.packed.line.upTo(c.off + n)
	// Reads beyond the program set bad.
	c.b = c.b[:c.off+n]
	p = &program{end: c.off + n, addrSize: 8, maxOps: 1}
	// The header's fields: DWARF 5, 6.2.4.
	version := c.u16()
	if version >= 5 {
		p.addrSize = c.u8()
		c.skip(1) // segment selector size
	}
	size := c.offset(wide)
	if size > p.end-c.off {
		return nil, errors.New("header goes beyond the end")
	}
	// The program begins behind the header, whose length was just read.
	p.begin = c.off + size
	p.minLength = int(c.u8())
	if version >= 4 {
		p.maxOps = int(c.u8())
	}
	c.skip(1) // default_is_stmt
	// line_base is signed.
	p.lineBase, p.lineRange = int(int8(c.u8())), int(c.u8())
	p.opcodeBase = c.u8()
	// standard_opcode_lengths: numbers of operands, from opcode 1 on.
	p.lengths = c.take(uint64(max(p.opcodeBase, 1) - 1))
	// debug/dwarf allocates by these counts; a damaged header must not make it take all memory.
	if version == 5 {
		if p.sums, err = checkFiles(&c, format{wide, version}); err != nil {
			return nil, err
		}
	}
	if c.bad {
		return nil, errors.New("header goes beyond the end")
	}
	return p, nil
}

// lnctMD5 is the content type of a file's MD5: DWARF 5, 6.2.4.1.
const lnctMD5 = 5

// checkFiles checks the tables of folders and files of version 5, and returns the MD5s of the files.
func checkFiles(c *cursor, f format) (sums []string, err error) {
	// Each table: pairs of content type and form, then entries that consist of them.
	for table := range 2 { // folders, files
		types, forms := make([]uint64, c.u8()), [256]uint16{}
		for i := range types {
			types[i], forms[i] = c.uleb(), uint16(c.uleb())
		}
		count := c.uleb()
		// An entry has a byte at least.
		if c.bad || count > uint64(len(c.b))-c.off {
			return nil, fmt.Errorf("header names %d files", count)
		}
		for n := range count {
			for i := range types {
				if table == 1 && types[i] == lnctMD5 && forms[i] == formData16 && uint64(len(sums)) <= n {
					sums = append(append(sums, make([]string, n-uint64(len(sums)))...), string(c.take(16)))
				} else {
					read(c, attr{form: forms[i]}, f)
				}
			}
		}
	}
	return sums, nil
}

// Opcodes: DWARF 5, 7.22.
const (
	lnsCopy           = 1 // makes a row
	lnsAdvancePC      = 2 // ULEB128: instructions forward
	lnsAdvanceLine    = 3 // SLEB128: lines forward
	lnsSetFile        = 4 // ULEB128: number of a file
	lnsConstAddPC     = 8 // forward as special opcode 255, without a row
	lnsFixedAdvancePC = 9 // 2 bytes, unscaled

	// Extended opcodes follow a zero byte and a length.
	lneEndSequence = 1 // its row's address is past the code
	lneSetAddress  = 2 // an address
	lneDefineFile  = 3 // a file that the header does not have, before DWARF 5
)

// machine is the state machine of DWARF 5, 6.2.2, without the registers that are not needed.
type machine struct {
	addr    uint64 // link-time, of the next row
	opIndex int    // operation in the instruction; 0 on x86
	file    uint64 // number of the file
	line    int
}

// advance moves the machine forward by a number of operations.
func (m *machine) advance(p *program, ops int) {
	// The usual case; VLIW machines have several operations an instruction.
	if p.maxOps == 1 {
		m.addr += uint64(p.minLength * ops)
	} else {
		ops += m.opIndex
		m.addr += uint64(p.minLength * (ops / p.maxOps))
		m.opIndex = ops % p.maxOps
	}
}

// run collects the rows. After an error, t has those found before it. A sequence without its end is dropped: where its
// code ends is not known.
func (t *lineTable) run(p *program, section []byte) error {
	const rowBytes = 8                               // estimate: bytes of the program for a row
	rows := make([]row, 0, (p.end-p.begin)/rowBytes) // all rows, one sequence after the other
	var sequences [][]row
	first := 0 // index of the sequence's first row
	m := machine{file: 1, line: 1}
	// The address part of special opcode 255.
	constAdd := int(255-p.opcodeBase) / max(p.lineRange, 1)
	c := cursor{b: section[:p.end], off: p.begin}
	for c.off < p.end && !c.bad {
		op := c.b[c.off]
		c.off++
		switch {
		// A special opcode moves address and line, and makes a row.
		case op >= p.opcodeBase: // special: DWARF 5, 6.2.5.1
			adjusted := int(op - p.opcodeBase)
			m.advance(p, adjusted/p.lineRange)
			m.line += p.lineBase + adjusted%p.lineRange
			rows = addRow(rows, first, &m)
			continue
		// DW_LNS_copy.
		case op == lnsCopy:
			rows = addRow(rows, first, &m)
		// 0 introduces an extended opcode; extended reports the end of a sequence.
		case op == 0:
			if !m.extended(&c, p) || c.bad {
				break
			}
			// Sequences at address 0 are of code that the linker has dropped.
			if n := len(rows); n > first && (span{rows[first].addr, m.addr}).live() {
				rows = append(rows, row{m.addr, noFile, 0})
				sequences = append(sequences, rows[first:len(rows):len(rows)])
			}
			// The next sequence begins with fresh registers.
			first = len(rows)
			m = machine{file: 1, line: 1}
		case op == lnsAdvancePC:
			m.advance(p, int(c.uleb()))
		case op == lnsAdvanceLine:
			m.line += int(c.sleb())
		case op == lnsSetFile:
			m.file = c.uleb()
		case op == lnsConstAddPC:
			m.advance(p, constAdd)
		case op == lnsFixedAdvancePC: // fixed_advance_pc takes an unscaled operand
			if b := c.take(2); b != nil {
				m.addr += uint64(binary.LittleEndian.Uint16(b))
			}
		// Opcodes of later versions give the number of their operands.
		default: // not needed
			for range p.lengths[op-1] {
				c.uleb()
			}
		}
	}
	// Sequences are in no order; join sorts them by address.
	t.join(sequences)
	if c.bad {
		return errors.New("the program goes beyond its end")
	}
	return nil
}

// extended runs an extended opcode: DWARF 5, 6.2.5.3. end reports that it ends the sequence.
func (m *machine) extended(c *cursor, p *program) (end bool) {
	size := c.uleb()
	from := c.off
	kind := c.u8()
	switch kind {
	case lneSetAddress:
		m.addr = 0
		if p.addrSize > 8 {
			c.bad = true
		} else {
			m.addr = c.uint(uint64(p.addrSize))
		}
	case lneDefineFile:
		p.definesFiles = true
	}
	// The length covers the opcode; what of it is not read here is skipped.
	if size > p.end-from || from+size < c.off {
		c.bad = true
	}
	c.off = from + size
	return kind == lneEndSequence
}

// addRow appends the machine's row to a sequence, whose rows begin at index first. Rows that cover nothing, or go on
// with the line before, are left out: compilers also mark statements and columns by rows.
func addRow(rows []row, first int, m *machine) []row {
	x := row{m.addr, uint32(min(m.file, uint64(noFile-1))), uint32(m.line)}
	if n := len(rows); n > first {
		last := &rows[n-1]
		if x.addr < last.addr {
			return rows // the address goes back, which compilers do not emit
		}
		if last.addr == x.addr { // the earlier row covers no instruction
			rows = rows[:n-1]
			if n--; n == first {
				return append(rows, x)
			}
			last = &rows[n-1]
		}
		// The same line goes on: no new row.
		if last.file == x.file && last.line == x.line {
			return rows
		}
	}
	return append(rows, x)
}
