//go:build unix

package perfdata

import (
	"os"

	"golang.org/x/sys/unix"
)

func mapPages(f *os.File, off int64, n int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), off, n, unix.PROT_READ, unix.MAP_PRIVATE)
}

func unmapPages(pages []byte) { unix.Munmap(pages) }
