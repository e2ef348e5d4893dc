//go:build linux && amd64

package recorder

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPostponeCollection: there is no collection before the heap is so large, and after the first they come as
// usual.
func TestPostponeCollection(t *testing.T) {
	t.Setenv("GOGC", "")
	was := debug.SetGCPercent(100)
	defer debug.SetGCPercent(was)
	runtime.GC()
	end := postponeCollection(64<<20, 70)
	defer end()
	percent := func() int { p := debug.SetGCPercent(1600); debug.SetGCPercent(p); return p }
	assert.Equal(t, 1600, percent())
	runtime.GC()
	require.Eventually(t, func() bool { return percent() == 70 }, 10*time.Second, time.Millisecond)
	t.Setenv("GOGC", "200")
	postponeCollection(64<<20, 70)()
	assert.Equal(t, 70, percent(), "as the user has it")
}

func TestSpareProcessors(t *testing.T) {
	was := runtime.GOMAXPROCS(0)
	end := spareProcessors()
	assert.Greater(t, runtime.GOMAXPROCS(0), was)
	end()
	assert.Equal(t, was, runtime.GOMAXPROCS(0))
}
