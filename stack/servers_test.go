//go:build linux && amd64

package stack

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"unsafe"

	"github.com/ehasm/ehasm/internal/files/procfs"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestServedMemory: of what a server may have, only pages in memory are read.
func TestServedMemory(t *testing.T) {
	const page = pageSize
	all := bytes.Repeat([]byte("0123456789abcdef"), 16*page/16)
	plain := func(p []byte, addr uint64) int {
		if addr >= uint64(len(all)) {
			return 0
		}
		for a := addr &^ (page - 1); a < addr+uint64(len(p)); a += page {
			assert.NotContains(t, []uint64{5 * page, 9 * page}, a, "a page that the server has")
		}
		return copy(p, all[addr:])
	}
	served := []procfs.Mapping{{Start: 4 * page, End: 6 * page}, {Start: 8 * page, End: 10 * page}}
	s := &servedMemory{served, plain, func(addr uint64) bool { return addr/page == 4 || addr/page == 8 }}
	for _, c := range []struct{ from, size, want int }{
		{0, 100, 100}, {0, 4 * page, 4 * page}, {3 * page, 2 * page, 2 * page}, {3*page + 7, 4 * page, 2*page - 7},
		{5 * page, 1, 0}, {6*page - 1, 2, 0}, {6 * page, page, page}, {7*page + 8, 2 * page, 2*page - 8},
		{10 * page, 8 * page, 6 * page}, {16 * page, 1, 0},
	} {
		b := make([]byte, c.size)
		require.Equal(t, c.want, s.read(b, uint64(c.from)), "%+v", c)
		assert.True(t, bytes.Equal(all[c.from:c.from+c.want], b[:c.want]), "%+v", c)
	}
}

// TestPageThere: what was never touched is not there.
func TestPageThere(t *testing.T) {
	b, err := unix.Mmap(-1, 0, 2*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	defer unix.Munmap(b)
	require.NoError(t, unix.Madvise(b, unix.MADV_NOHUGEPAGE))
	b[pageSize] = 1
	addr := uint64(uintptr(unsafe.Pointer(&b[0])))
	assert.False(t, pageThere(int32(os.Getpid()), addr))
	assert.True(t, pageThere(int32(os.Getpid()), addr+pageSize))
	assert.False(t, pageThere(1<<30, addr))
}

// TestAskNoServer: files of disks and mounted file systems are read as ever.
func TestAskNoServer(t *testing.T) {
	var st unix.Stat_t
	require.NoError(t, unix.Stat("/proc", &st))
	mounted := fmt.Sprintf("%02x:%02x", unix.Major(st.Dev), unix.Minor(st.Dev))
	for device, want := range map[string]int{"fe:01": 1, mounted: 1, "00:ffff": 0} {
		list := []procfs.Mapping{{Start: 0x1000, End: 0x2000, Inode: 1, Device: device},
			{Start: 0x2000, End: 0x3000, Device: "00:00"}}
		read := askNoServer(1<<30, list, func(p []byte, _ uint64) int { return len(p) })
		assert.Equal(t, want, read(make([]byte, 1), 0x1000), device)
		assert.Equal(t, 1, read(make([]byte, 1), 0x2000), device)
	}
}
