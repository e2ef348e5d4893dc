package ehelf_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
)

// TestRelroLoads runs the code of a read-only file, none of whose memory is writable.
func TestRelroLoads(t *testing.T) {
	o, err := ehelf.FromBytes(relro(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, o.Close()) }()
	regs, mem, want := deepStack(30)
	pcs := make([]uint64, 40)
	require.Equal(t, 30, o.Walk(&regs, &mem, bias, pcs))
	require.Equal(t, want, pcs[:30])
	require.Equal(t, abi.StatusNoInfo, regs.Status)

	low := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(o.Memory()))))
	high := low + uint64(len(o.Memory()))
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	var seen []string
	var covered uint64
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		var access string
		_, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &access)
		require.NoError(t, err, "%s", line)
		if from, to = max(from, low), min(to, high); from < to {
			seen = append(seen, access)
			covered += to - from
		}
	}
	require.Equal(t, []string{"r--p", "r-xp", "r--p"}, seen)
	require.Equal(t, high-low, covered)
}
