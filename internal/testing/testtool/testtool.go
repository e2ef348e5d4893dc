// Package testtool lets a test declare the programs it runs besides Go's own,
// so that if one is missing the test is skipped by name and does not fail.
package testtool

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Sweep returns the cases of a test that takes one after the other: only the first with -short, as between two edits.
func Sweep[T any](cases []T) []T {
	if testing.Short() {
		return cases[:1]
	}
	return cases
}

// Few returns the number of random cases: all, or few of them with -short, as between two edits.
func Few(all, few int) int {
	if testing.Short() {
		return few
	}
	return all
}

// Long skips a test of whole programs with -short, as between two edits.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("long")
	}
}

// Need skips the test unless every one of the programs is on PATH. The message
// is "needs gcc, gdb": the prefix is what CI looks for to tell this skip from
// one that is meant.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	if missing := Missing(programs...); len(missing) > 0 {
		t.Skip("needs " + strings.Join(missing, ", "))
	}
}

// NeedRoot skips a test that only root can run, and says what for.
func NeedRoot(t testing.TB, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, " + what)
	}
}

// Missing returns the programs that are not on PATH.
func Missing(programs ...string) []string {
	var missing []string
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
		}
	}
	return missing
}
