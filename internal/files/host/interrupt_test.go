//go:build unix

package host

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRepeated: the same signal once more, as timeout(1) sends it, does not end the process before it has cleaned up.
func TestRepeated(t *testing.T) {
	if !testtool.InChild(t) {
		return
	}
	ctx, stop := until(context.Background(), time.Hour)
	defer stop()
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	<-ctx.Done()
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	assert.Equal(t, BySignal+int(syscall.SIGTERM), InterruptStatus(ctx))
}
