package preload

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestEnviron: the library comes first, but for the runtime of AddressSanitizer.
func TestEnviron(t *testing.T) {
	for _, c := range []struct{ before, sanitizer, want string }{
		{"", "", "L"}, {"a.so b.so", "", "L:a.so:b.so"}, {"", "libasan.so.8", "libasan.so.8:L"},
		{"a.so:/x/libasan.so.6:b.so", "", "/x/libasan.so.6:L:a.so:b.so"},
		{"libasan.so.8", "libasan.so.8", "libasan.so.8:L"},
		{"a.so", "libclang_rt.asan-x86_64.so", "libclang_rt.asan-x86_64.so:L:a.so"},
	} {
		got := Environ([]string{"A=1", "LD_PRELOAD=" + c.before}, "L", c.sanitizer)
		assert.Equal(t, []string{"A=1", "LD_PRELOAD=" + c.want}, got)
	}
}
