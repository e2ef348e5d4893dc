package testtool

import (
	"fmt"
	"testing"
)

// recorder takes the place of a test that would be skipped.
type recorder struct {
	testing.TB
	skipped string
}

func (r *recorder) Helper()          {}
func (r *recorder) Skip(args ...any) { r.skipped = fmt.Sprint(args...) }

func TestNeed(t *testing.T) {
	if got := Missing("go", "no-such-program-anywhere"); len(got) != 1 || got[0] != "no-such-program-anywhere" {
		t.Fatalf("Missing: %q", got)
	}
	r := recorder{TB: t}
	Need(&r, "go")
	if r.skipped != "" {
		t.Fatal("skipped: " + r.skipped)
	}
	Need(&r, "go", "no-such-program-anywhere")
	if r.skipped != "needs no-such-program-anywhere" {
		t.Fatalf("skipped: %q", r.skipped)
	}
}
