package testtool

import (
	"iter"
	"strconv"
	"strings"
	"testing"
)

// Folded yields the stacks of a profile in the folded format, each with its count. Names have spaces, too: the count
// follows the last one. A line that has no count ends the test.
func Folded(t testing.TB, text string) iter.Seq2[string, int] {
	return func(yield func(stack string, count int) bool) {
		t.Helper()
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			i := strings.LastIndexByte(line, ' ')
			n, err := strconv.Atoi(line[i+1:])
			if i < 0 || err != nil {
				t.Fatalf("no stack with a count: %q", line)
			}
			if !yield(line[:i], n) {
				return
			}
		}
	}
}
