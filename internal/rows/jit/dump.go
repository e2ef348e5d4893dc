package jit

import (
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
)

// This file takes steps by the unwind information in jitdump files (tools/perf/Documentation/jitdump-specification.txt,
// JIT_CODE_UNWINDING_INFO). V8 writes .eh_frame sections there with --perf-prof-unwinding-info.

// dump is the jitdump file of a process.
type dump struct {
	from   symbols.Written
	open   *symbols.OpenFiles // may be nil
	file   *symbols.JITFile   // nil: not opened yet, or bad
	bad    bool
	codes  []symbols.JITCode    // ascending
	tables map[uint64]codeTable // by the start of the code
	tabled int                  // bytes of their sections
	after  time.Time            // not read before
}

// codeTable holds the rows of a piece of code; nil: it has none that can be read.
type codeTable struct {
	rows *dwarfcfa.LazyTable
	bias uint64 // of the section's addresses
	end  uint64 // of the code
}

const (
	// Code beyond maxCodes is not known; rows beyond the other two are dropped, and read again when asked for.
	maxCodes  = 1 << 16 // pieces of code of a process
	maxTables = 1 << 12 // of them whose rows are kept
	maxTabled = 1 << 19 // bytes of the sections with these rows
)

// step takes a step by the rows in the file.
func (d *dump) step(regs *abi.Regs, mem *ehelf.Memory) abi.Status {
	pc := regs.LookupPC()
	c := d.find(pc)
	if c == nil || c.RowsSize() == 0 {
		return abi.StatusNoInfo
	}
	t := d.table(c)
	if t.rows == nil {
		return abi.StatusNoInfo
	}
	return t.rows.Step(regs, mem, t.bias)
}

// find returns the code that holds an address, or nil.
func (d *dump) find(addr uint64) *symbols.JITCode {
	if c := symbols.FindJITCode(d.codes, addr); c != nil {
		return c
	}
	d.update()
	return symbols.FindJITCode(d.codes, addr)
}

// update reads what the process has written to its file since. A file that is not valid is not read again.
func (d *dump) update() {
	// A large file that grows is read again and again: reading gets a tenth of the time at most.
	const parts = 10 // of the time
	begin := time.Now()
	if d.bad || begin.Before(d.after) || len(d.codes) >= maxCodes {
		return
	}
	if d.file == nil {
		f, err := symbols.OpenJITFile(d.from, d.open)
		if err != nil { // it may be empty still
			d.after = begin.Add(recheckFailed)
			return
		}
		d.file = f
	}
	n := len(d.codes)
	var err error
	if d.codes, err = d.file.Update(d.codes, maxCodes); err != nil {
		d.close()
		d.bad = true
	}
	if len(d.codes) != n {
		d.tables = nil // other code may be at their places
	}
	d.after = time.Now().Add((parts - 1) * time.Since(begin))
}

// table returns the rows of a piece of code. The section's addresses are relative to itself, so it is read at an
// address of its reader's choice.
func (d *dump) table(c *symbols.JITCode) codeTable {
	if t, ok := d.tables[c.Start]; ok && t.end == c.End {
		return t
	}
	t := codeTable{end: c.End}
	if b := d.file.Rows(c); b != nil {
		const base = 1 << 40 // so that no relative address wraps around
		s := dwarfcfa.NewSection(d.from.Name, dwarfcfa.SourceEHFrame, base, b, dwarfcfa.Bases{})
		rows, start := dwarfcfa.NewCodeTable(s, c.End-c.Start)
		t.rows, t.bias = rows, c.Start-uint64(start)
	}
	size := c.RowsSize()
	if d.tables == nil || len(d.tables) == maxTables || d.tabled+size > maxTabled {
		d.tables, d.tabled = make(map[uint64]codeTable), 0
	}
	d.tables[c.Start] = t
	d.tabled += size
	return t
}

// read puts code that the file has for these addresses into b, and returns how many bytes that are.
func (d *dump) read(addr uint64, b []byte) int {
	some := 0
	for n := 0; n < len(b) && d.file != nil; {
		next := addr + uint64(n)
		c := symbols.NextJITCode(d.codes, next)
		if c == nil || c.Start >= addr+uint64(len(b)) {
			break
		}
		n = int(max(c.Start, next) - addr)
		got := d.file.ReadCode(c, addr+uint64(n), b[n:])
		if got == 0 {
			break
		}
		some, n = some+got, n+got
	}
	return some
}

// close closes the file.
func (d *dump) close() {
	if d.file != nil {
		d.file.Close()
		d.file, d.codes, d.tables, d.after = nil, nil, nil, time.Time{}
	}
}
