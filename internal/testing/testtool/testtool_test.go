package testtool

import (
	"fmt"
	"slices"
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

func TestFolded(t *testing.T) {
	want := []string{"a;f(int, int) 3", "b 12"}
	var got []string
	for stack, n := range Folded(t, "a;f(int, int) 3\nb 12\n") {
		got = append(got, fmt.Sprint(stack, " ", n))
	}
	if !slices.Equal(want, got) {
		t.Fatalf("%q", got)
	}
}
