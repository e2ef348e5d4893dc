//go:build unix

package pages

import (
	"os"

	"golang.org/x/sys/unix"
)

// Map maps n bytes of a file from offset off on for reading: mmap(2). off must be a multiple of the page size. The
// file may be closed afterwards. If it shrinks, reads behind its end fault: SIGBUS, which debug.SetPanicOnFault makes
// a panic.
func Map(f *os.File, off int64, n int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), off, n, unix.PROT_READ, unix.MAP_PRIVATE)
}

// Reserve reserves addresses for n bytes, n > 0. Memory is allocated, as zeros, when it is written to.
func Reserve(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// Unmap unmaps memory of Map or Reserve; b may be nil.
func Unmap(b []byte) {
	if b != nil {
		unix.Munmap(b)
	}
}
