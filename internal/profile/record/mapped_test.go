//go:build linux && amd64

package record

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMappedSoonGone: rings are read often after mappings of what may be out of reach soon, and not because known programs are
// executed again.
func TestMappedSoonGone(t *testing.T) {
	tr := newTracker(unwind.NewObjects(unwind.Options{}))
	defer tr.Close()
	pid := int32(os.Getpid())
	mapped := func(name string, inode uint64, exec bool) bool {
		r := &perfdata.Mmap{PID: pid, TID: pid, Addr: 0x10000, Len: 0x1000, Exec: exec, Name: []byte(name), Inode: inode}
		m := mappingOf(r)
		f := tr.Find(tr.origin(pid), &m, time.Time{})
		return tr.mapped(r, &f)
	}
	info, err := os.Stat("/bin/true")
	require.NoError(t, err)
	inode := info.Sys().(*syscall.Stat_t).Ino
	assert.True(t, mapped("/bin/true", inode, true), "its first mapping")
	assert.False(t, mapped("/bin/true", inode, true), "known, and there")
	assert.True(t, mapped("/bin/true", inode+1, true), "another file")
	assert.False(t, mapped("/etc/passwd", 1, false), "no code")
	assert.True(t, mapped("//anon", 0, true), "code made at run time")
	assert.True(t, mapped("//anon", 0, true), "and more of it")
}

// TestMappedElsewhere: a file that is there for its process alone stays one that may soon be out of reach.
func TestMappedElsewhere(t *testing.T) {
	testtool.NeedRoot(t, "for map_files")
	pid, m := replaced(t, func(path string) {})
	tr := newTracker(unwind.NewObjects(unwind.Options{}))
	defer tr.Close()
	for range 2 {
		f := tr.Find(tr.origin(pid), &m, time.Time{})
		assert.True(t, tr.mapped(&perfdata.Mmap{PID: pid, TID: pid, Addr: m.Start, Len: m.End - m.Start, PgOff: m.Offset,
			Exec: true, Name: []byte(m.Name), Inode: m.Inode}, &f))
	}
}
