//go:build !unix

package testtool

import "testing"

// MakeFIFO skips the test: this host has no FIFOs in its file systems.
func MakeFIFO(t testing.TB, _ string) {
	t.Helper()
	t.Skip("no FIFOs on this system")
}
