//go:build !linux

package testtool

import (
	"os"
	"testing"
)

// AsOther runs f with the file permissions of a user who is not root.
func AsOther(t testing.TB, _ string, f func()) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Skip("not written for root on this system")
	}
	f()
}
