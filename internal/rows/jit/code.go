// Package jit finds the callers of code without tables, mostly made while programs run: by the unwind information that
// run-time compilers write into jitdump files, and by the code itself.
package jit

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/analysis/x86"
	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/unwind"
)

// This file holds the pages of code of a process and the rows found for them. Code made at run time has no file, and
// another function may take its place at any time, so an answer rests on bytes that were read at most a second ago,
// unless the process has ended.

// Code knows the code that one process has made. It implements unwind.Generated. The zero value knows
// nothing; its methods are safe for concurrent use.
type Code struct {
	// Read reads memory of the process and returns how many bytes it could. Nil: only the bytes in the jitdump file are
	// known.
	Read func(addr uint64, b []byte) int
	// Limits may be nil.
	Limits *Limits

	mu      sync.Mutex // for what is below
	dumps   []*dump    // the process's own first, then those of processes that it comes from by fork
	pages   map[uint64]*page
	fetched []byte          // room for a page
	seen    map[uint64]bool // room for follow
}

// page is a page of code, as it was when it was checked last, with what follows from it.
type page struct {
	bytes   []byte
	checked time.Time
	rows    map[uint64]*row // by address
}

const (
	pageSize = 4096
	maxPages = 256 // of a process, 1 MB; then all are forgotten
	maxRows  = 128 // of a page; likewise
	// recheck is how long code is taken to be as it was. Run-time compilers seldom put other code at the place of old.
	// A look costs process_vm_readv and a comparison of 4 KB.
	recheck = time.Second
	// recheckFailed is the same for code that says nothing: it may have been written since.
	recheckFailed = 10 * time.Millisecond
)

// mostDumps bounds the jitdump files of a process: its own, and those of the processes that it was forked from.
const mostDumps = 4

// AddDump says that the process has mapped a jitdump file. The newest counts first.
func (c *Code) AddDump(w symbols.Written) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.dumps) == 0 || c.dumps[0].from != w {
		c.dumps = slices.Insert(c.dumps, 0, &dump{from: w, open: c.Limits.open()})
		if len(c.dumps) > mostDumps {
			c.dumps[mostDumps].close()
			c.dumps = c.dumps[:mostDumps]
		}
	}
}

// Fork returns what is known of a new process that has the same code. read reads the new process's memory. The child
// opens the dump files itself, since it may outlive its parent.
func (c *Code) Fork(read func(addr uint64, b []byte) int) *Code {
	c.mu.Lock()
	defer c.mu.Unlock()
	child := &Code{Read: read, Limits: c.Limits}
	for _, d := range c.dumps {
		child.dumps = append(child.dumps, &dump{from: d.from, open: c.Limits.open()})
	}
	return child
}

// Changed says that the process has mapped something at [start, end). Pages that overlap it are forgotten, with their
// rows.
func (c *Code) Changed(start, end uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for addr := range c.pages {
		if addr < end && start < addr+pageSize {
			delete(c.pages, addr)
		}
	}
}

// Close forgets all. c may be nil. A later question finds nothing.
func (c *Code) Close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pages, c.fetched, c.seen = nil, nil, nil
	for _, d := range c.dumps {
		d.close()
	}
}

// Step is unwind.Generated's. Rows that a compiler wrote into its jitdump file come first: they are exact. guessed says
// that the row is from code, and that not all ways through it agree.
func (c *Code) Step(regs *abi.Regs, mem *ehelf.Memory) (status abi.Status, guessed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.dumps {
		if status := d.step(regs, mem); status != abi.StatusNoInfo {
			return status, false
		}
	}
	pc := regs.Reg[abi.RIP]
	r := c.rowAt(pc)
	// The page may hold older code than the program runs now.
	if r == nil && c.renew(pc) {
		r = c.rowAt(pc)
	}
	if r == nil {
		return abi.StatusNoInfo, false
	}
	return r.step(regs, mem), !r.agreed
}

// Scan is unwind.Generated's.
func (c *Code) Scan(regs *abi.Regs, mem *ehelf.Memory, isCode func(addr uint64) bool) abi.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.scan(regs, mem, isCode); r != nil {
		return r.step(regs, mem)
	}
	return abi.StatusNoInfo
}

// Returns is unwind.Generated's. HotSpot's interpreter returns to places that no call precedes, and a frame that throws
// has the address of the throw.
func (c *Code) Returns(pc uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.returns(pc) || c.renew(pc) && c.returns(pc)
}

// returns is Returns with the lock held and without asking anew. Code that cannot be read counts as a return address:
// nothing speaks against it, and the frame would be lost.
func (c *Code) returns(pc uint64) bool {
	var buf [unwind.MaxCall]byte
	code := buf[:]
	if c.read(pc-uint64(len(code)), code) < len(code) {
		code = code[:min(uint64(len(code)), pc&(pageSize-1))] // the page before may have no code
		if len(code) == 0 || c.read(pc-uint64(len(code)), code) < len(code) {
			return true // not known
		}
	}
	if unwind.EndsInCall(code) || c.throws(pc) {
		return true
	}
	r := c.rowAt(pc)
	return r != nil && r.interpreted
}

// throws reports whether the code at pc begins to throw an exception, as HotSpot's first compiler does
// (c1_LIRAssembler_x86.cpp, throw_op): it loads its own address into rdx. The stub that looks for the handler stores
// this address as its return address.
func (c *Code) throws(pc uint64) bool {
	var buf [10]byte // movabs $pc, %rdx
	return c.read(pc, buf[:]) == len(buf) && buf[0] == 0x48 && buf[1] == 0xba && binary.LittleEndian.Uint64(buf[2:]) == pc
}

// renew reads the page of an address again unless that was done just now, since new code may have been written there.
// It reports whether the page has changed. It is true at most once in recheckFailed for a page.
func (c *Code) renew(addr uint64) bool {
	p := c.pages[addr&^(pageSize-1)]
	if p == nil || time.Since(p.checked) < recheckFailed {
		return false
	}
	p.checked = time.Time{}
	return c.page(addr) != p
}

// rowAt returns the row for an address, or nil.
func (c *Code) rowAt(pc uint64) *row {
	p := c.page(pc)
	if p == nil {
		return nil
	}
	r, known := p.rows[pc]
	if !known {
		if !c.Limits.mayFollow() {
			return nil
		}
		if c.seen == nil {
			c.seen = make(map[uint64]bool)
		}
		r = follow(pc, c.read, c.seen)
		c.Limits.followed(len(c.seen))
		if p.rows == nil || len(p.rows) == maxRows {
			p.rows = make(map[uint64]*row)
		}
		p.rows[pc] = r
	}
	return r
}

// page returns the page of code that holds an address, or nil. If memory can't be read it is the page as it was last,
// since a process that has ended still has samples.
func (c *Code) page(addr uint64) *page {
	base := addr &^ (pageSize - 1)
	p, now := c.pages[base], time.Now()
	if p != nil && now.Sub(p.checked) < recheck {
		return p
	}
	if c.fetched == nil {
		c.fetched = make([]byte, pageSize)
	}
	b := c.fetched[:c.fetch(base, c.fetched)]
	if len(b) == 0 {
		return p // the process may have ended
	}
	if p != nil && bytes.Equal(p.bytes, b) {
		p.checked = now
		return p
	}
	// All at once: what is used is soon back, and ages would have to be kept.
	if c.pages == nil || len(c.pages) == maxPages {
		c.pages = make(map[uint64]*page)
	}
	p = &page{bytes: bytes.Clone(b), checked: now}
	c.pages[base] = p
	return p
}

// fetch reads code of the process, or of its jitdump files if that has ended, with traps between their pieces. Traps
// stop a follower where nothing is known.
func (c *Code) fetch(addr uint64, b []byte) int {
	if c.Read != nil {
		if n := c.Read(addr, b); n > 0 {
			return n
		}
	}
	const trap = 0xcc // int3
	for i := range b {
		b[i] = trap
	}
	some := 0
	for _, d := range slices.Backward(c.dumps) {
		some += d.read(addr, b)
	}
	if some == 0 {
		return 0
	}
	return len(b)
}

// read copies code from pages, and returns how many bytes there are.
func (c *Code) read(addr uint64, b []byte) int {
	n := 0
	for n < len(b) {
		p := c.page(addr + uint64(n))
		from := (addr + uint64(n)) & (pageSize - 1)
		if p == nil || from >= uint64(len(p.bytes)) {
			break
		}
		n += copy(b[n:], p.bytes[from:])
	}
	return n
}

// dwarfOf are the DWARF numbers of the processor's registers.
var dwarfOf = [...]int{x86.RAX: abi.RAX, x86.RCX: abi.RCX, x86.RDX: abi.RDX, x86.RBX: abi.RBX, x86.RSP: abi.RSP,
	x86.RBP: abi.RBP,
	x86.RSI: abi.RSI, x86.RDI: abi.RDI, x86.R8: abi.R8, x86.R9: abi.R9, x86.R10: abi.R10, x86.R11: abi.R11,
	x86.R12: abi.R12,
	x86.R13: abi.R13, x86.R14: abi.R14, x86.R15: abi.R15}

// step replaces the registers by the caller's. The status is StatusBadRegister if the row needs a register that is not
// valid, StatusUnreadable if a word can't be read; both leave regs alone. A frame of more than mostFrame, or one that
// goes down, is StatusNoInfo: the row is wrong.
func (r *row) step(regs *abi.Regs, mem *ehelf.Memory) abi.Status {
	next := abi.Regs{}
	get := func(v value) (word uint64, status abi.Status) {
		reg := dwarfOf[v.reg]
		switch {
		case v.kind == unknown || regs.Valid>>reg&1 == 0:
			return 0, abi.StatusBadRegister
		case v.kind == entry:
			return regs.Reg[reg] + uint64(v.offset), abi.StatusOK
		}
		word, ok := mem.ReadWord(regs.Reg[reg] + uint64(v.offset))
		if !ok {
			return 0, abi.StatusUnreadable
		}
		return word, abi.StatusOK
	}
	var status abi.Status
	if next.Reg[abi.RIP], status = get(r.pc); status != abi.StatusOK {
		return status
	}
	if next.Reg[abi.RSP], status = get(r.sp); status != abi.StatusOK {
		return status
	}
	back := regs.Reg[dwarfOf[r.pc.reg]] + uint64(r.pc.offset) // of the return address
	if old := regs.Reg[abi.RSP]; back-old >= mostFrame || next.Reg[abi.RSP]-back-1 >= mostFrame {
		return abi.StatusNoInfo
	}
	next.Valid = 1<<abi.RIP | 1<<abi.RSP
	for _, reg := range calleeSaved {
		if v, status := get(r.regs[reg]); status == abi.StatusOK {
			next.Reg[dwarfOf[reg]] = v
			next.Valid |= 1 << dwarfOf[reg]
		}
	}
	*regs = next
	return abi.StatusOK
}

// mostFrame bounds a frame, in bytes: as much as the whole default stack of a Java thread.
const mostFrame = 1 << 20
