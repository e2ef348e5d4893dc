package testtool

import "testing"

func TestNeed(t *testing.T) {
	if got := Missing("go", "no-such-program-anywhere"); len(got) != 1 || got[0] != "no-such-program-anywhere" {
		t.Fatalf("Missing: %q", got)
	}
	var skipped *testing.T
	t.Run("skips", func(t *testing.T) {
		skipped = t
		Need(t, "no-such-program-anywhere")
		t.Fatal("not reached")
	})
	if !skipped.Skipped() {
		t.Fatal("not skipped")
	}
}
