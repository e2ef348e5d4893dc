//go:build unix

package pages

import (
	"os"

	"golang.org/x/sys/unix"
)

// Map maps n bytes of a file from off on, which is a multiple of the page size,
// for reading: mmap(2).
func Map(f *os.File, off int64, n int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), off, n, unix.PROT_READ, unix.MAP_PRIVATE)
}

// Reserve takes addresses for n bytes. Memory comes as it is written to.
func Reserve(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// Unmap gives back what Map or Reserve returned; nil is nothing.
func Unmap(b []byte) {
	if b != nil {
		unix.Munmap(b)
	}
}
