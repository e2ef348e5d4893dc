package jit

import (
	"sync"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
)

// This file does for files what Code does for memory. Files do not change, so no page is read twice; but their code has
// calls that never return, so only ways without calls count.

// File knows the frames of code in a file, if the code can return without a call before. Most functions written in
// assembly can. It is safe for concurrent use.
type File struct {
	// Read reads code at a link-time address and returns how many bytes it could.
	Read func(addr uint64, b []byte) int
	// Limits may be nil.
	Limits *Limits

	mu   sync.Mutex        // for what is below
	rows map[uint64]*row   // by address; nil: none
	seen map[uint64]bool   // room for followStrict
	code map[uint64][]byte // pages
}

// Bounds on what is remembered of a file; then all is forgotten.
const (
	maxFileRows  = 2048 // addresses
	maxFilePages = 16
)

// Step does what ehelf.EhElf.Step does, with abi.StatusNoInfo if nothing is known. bias is the file's load bias. regs
// is changed only if the status is StatusOK.
func (f *File) Step(regs *abi.Regs, mem *ehelf.Memory, bias uint64) abi.Status {
	const needed = 1<<abi.RIP | 1<<abi.RSP
	if regs.Valid&needed != needed {
		return abi.StatusNoInfo
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.rowAt(regs.Reg[abi.RIP] - bias)
	if r == nil {
		return abi.StatusNoInfo
	}
	return r.step(regs, mem)
}

// rowAt returns the row for an address, or nil.
func (f *File) rowAt(pc uint64) *row {
	r, known := f.rows[pc]
	if known || !f.Limits.mayFollow() {
		return r
	}
	if f.seen == nil {
		f.seen = make(map[uint64]bool)
	}
	r = followStrict(pc, f.read, f.seen)
	f.Limits.followed(len(f.seen))
	if f.rows == nil || len(f.rows) == maxFileRows {
		f.rows = make(map[uint64]*row)
	}
	f.rows[pc] = r
	return r
}

// read copies code from pages, and returns how many bytes there are.
func (f *File) read(addr uint64, b []byte) int {
	n := 0
	for n < len(b) {
		page := (addr + uint64(n)) &^ (pageSize - 1)
		p, known := f.code[page]
		if !known {
			if f.code == nil || len(f.code) == maxFilePages {
				f.code = make(map[uint64][]byte)
			}
			p = make([]byte, pageSize)
			p = p[:f.Read(page, p)]
			f.code[page] = p
		}
		from := addr + uint64(n) - page
		if from >= uint64(len(p)) {
			break
		}
		n += copy(b[n:], p[from:])
	}
	return n
}
