//go:build linux && amd64

package main

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ehasm/ehasm/abi"
)

// memory reads words of a process. It reads the words from a thread's rsp on,
// which rows mostly need, at once.
type memory struct {
	pid    int
	low    uint64 // address of window
	window []byte // what was read there
	buf    [512]byte
}

// at moves the window, whose words are read on demand.
func (m *memory) at(rsp uint64) {
	m.low, m.window = rsp, nil
}

// ReadWord implements dwarfcfa.WordReader.
func (m *memory) ReadWord(addr uint64) (uint64, bool) {
	if off := addr - m.low; off <= uint64(len(m.buf)-8) {
		if m.window == nil {
			m.window = m.buf[:m.read(m.low, m.buf[:])]
		}
		if off+8 <= uint64(len(m.window)) {
			return binary.LittleEndian.Uint64(m.window[off:]), true
		}
	}
	var b [8]byte
	n := m.read(addr, b[:])
	return binary.LittleEndian.Uint64(b[:]), n == len(b)
}

// read fills b with memory at addr as far as it is mapped, and returns the
// number of bytes.
func (m *memory) read(addr uint64, b []byte) int {
	local := unix.Iovec{Base: &b[0], Len: uint64(len(b))}
	remote := unix.RemoteIovec{Base: uintptr(addr), Len: len(b)}
	n, _, errno := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(m.pid),
		uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	if errno == 0 && int(n) == len(b) {
		return int(n)
	}
	// A read ends where memory does; try the bytes up to the end of the page.
	if rest := int(pageSize - addr%pageSize); rest < len(b) {
		return m.read(addr, b[:rest])
	}
	return 0
}

const pageSize = 4096

// isRestorer reports whether the code at addr is what signal handlers return to.
func (m *memory) isRestorer(addr uint64) bool {
	var b [abi.MaxSigreturn]byte
	return abi.IsSigreturn(b[:m.read(addr, b[:])])
}
