package unwind

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/testing/unwindtest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRelease: walks are the same after objects were released, whatever took their steps, and what
// was met is known still when the file is gone.
func TestRelease(t *testing.T) {
	for name, opt := range map[string]Options{"compiled": {}, "stepper": onDemand(math.MaxInt64),
		"both": onDemand(100)} {
		t.Run(name, func(t *testing.T) {
			ps, objects, dir := world(t, opt)
			maps := ps.Space(1).Maps()
			want := walks(maps)
			lib := objects.All()[1]
			for range 3 {
				var w Walker
				w.Forget(func(*Object) bool { return true })
				if name == "both" {
					assert.Eventually(t, func() bool { return lib.code.Load() != nil }, time.Minute, time.Millisecond)
				}
				for _, o := range objects.All() {
					assert.True(t, o.Needed())
					o.Release([]uint64{0x3000, 0x3200})
					assert.False(t, o.Needed())
					assert.Nil(t, o.code.Load())
					assert.Nil(t, o.stepper)
				}
				assert.Equal(t, want, walks(maps))
			}
			lib.Release([]uint64{0x3000, 0x3200})
			require.NoError(t, os.Remove(filepath.Join(dir, "lib.so")))
			assert.True(t, lib.SignalFrame(0x3200))
			assert.False(t, lib.SignalFrame(0x3000))
			assert.False(t, lib.Needed(), "nothing was read for that")
			assert.ErrorIs(t, lib.Ready(), os.ErrNotExist)
		})
	}
	t.Run("walker", func(t *testing.T) {
		ps, objects, _ := world(t, Options{})
		var w Walker
		maps := ps.Space(1).Maps()
		w.view(maps)
		w.Forget(func(o *Object) bool { return o == objects.All()[1] })
		assert.Empty(t, w.views)
		w.view(maps)
		w.Forget(func(*Object) bool { return false })
		assert.NotNil(t, w.views[maps])
	})
	t.Run("being compiled", func(t *testing.T) {
		opt := onDemand(1)
		begun, over := make(chan bool, 2), make(chan bool)
		opt.Compile = func(name string, file io.ReaderAt, size int64) ([]byte, error) {
			begun <- true
			<-over
			return unwindtest.Compile(name, file, size)
		}
		ps, objects, _ := world(t, opt)
		walks(ps.Space(1).Maps())
		<-begun
		for _, o := range objects.All() {
			o.Release(nil)
		}
		close(over)
		time.Sleep(time.Millisecond)
		objects.compiling.Lock()
		defer objects.compiling.Unlock()
		for _, o := range objects.All() {
			assert.Nil(t, o.code.Load(), "what is compiled then is of no use")
		}
	})
}
