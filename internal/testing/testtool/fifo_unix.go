//go:build unix

package testtool

import (
	"syscall"
	"testing"
)

// MakeFIFO makes a FIFO that its owner may read and write.
func MakeFIFO(t testing.TB, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}
