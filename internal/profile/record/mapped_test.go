//go:build linux && amd64

package record

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/mapped"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMappedSoonGone: rings are read often after mappings of what may be out of reach soon, and not because known
// programs are executed again.
func TestMappedSoonGone(t *testing.T) {
	tr := newTracker(unwind.NewObjects(unwind.Options{}))
	defer tr.files.Close()
	pid := int32(os.Getpid())
	mapped := func(name string, inode uint64, exec bool) bool {
		r := &perfdata.Mmap{PID: pid, TID: pid, Addr: 0x10000, Len: 0x1000, Exec: exec, Name: []byte(name),
			File: perfdata.FileID{Inode: inode}}
		m := mappingOf(r)
		f := tr.files.Find(tr.origin(pid), &m, time.Time{})
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
	defer tr.files.Close()
	for range 2 {
		f := tr.files.Find(tr.origin(pid), &m, time.Time{})
		assert.True(t, tr.mapped(&perfdata.Mmap{PID: pid, TID: pid, Addr: m.Start, Len: m.End - m.Start, PgOff: m.Offset,
			Exec: true, Name: []byte(m.Name), File: perfdata.FileID{Inode: m.Inode}}, &f))
	}
}

// TestMovedCode: anonymous memory with the bytes of a file's code at its place is that code, whether /proc lists it or
// a record tells. Other memory there is not.
func TestMovedCode(t *testing.T) {
	pid := int32(os.Getpid())
	tr := newTracker(unwind.NewObjects(unwind.Options{}))
	defer tr.files.Close()
	list, err := procfs.Mappings(pid)
	require.NoError(t, err)
	i := slices.IndexFunc(list, func(m procfs.Mapping) bool { return m.Exec && m.Inode != 0 })
	require.GreaterOrEqual(t, i, 0)
	file := list[i]
	list[i].Name, list[i].Offset, list[i].Inode = procfs.AnonName, list[i].Start, 0
	o, offset := tr.listed(tr.origin(pid), list, i)
	assert.Equal(t, file.Name, o.Name)
	assert.Equal(t, file.Offset, offset)
	other := &mapped.Process{PID: pid, Read: func(addr uint64, b []byte) int { return len(b) }} // zeros
	o, _ = tr.listed(other, list, i)
	assert.Equal(t, procfs.AnonName, o.Name)

	const page = 4096
	size := file.End - file.Start - page
	f := tr.files.Find(tr.origin(pid), &file, time.Time{})
	anon := perfdata.Mmap{PID: pid, TID: pid, Addr: file.Start + page, Len: size, PgOff: file.Start + page, Exec: true,
		Name: []byte(procfs.AnonName)}
	for shift, moved := range map[uint64]bool{0: true, page: false} { // the file's place, and another one
		tr.comm(&perfdata.Comm{PID: pid, TID: pid, Name: []byte("x"), Exec: true})
		tr.mapped(&perfdata.Mmap{PID: pid, TID: pid, Addr: file.Start + shift, Len: file.End - file.Start, PgOff: file.Offset,
			Exec: true,
			Name: []byte(file.Name), File: perfdata.FileID{Inode: file.Inode}}, &f)
		tr.mapped(&anon, &mapped.Found{})
		maps := mapsOf(tr, pid)
		m := maps.Find(anon.Addr + page)
		require.NotNil(t, m)
		assert.Equal(t, moved, m.Object.Name == file.Name)
		assert.Equal(t, moved, m.FileOffset(anon.Addr) == file.Offset+page)
	}
}
