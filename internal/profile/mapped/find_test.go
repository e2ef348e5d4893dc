//go:build linux

package mapped

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestDevice: of a process that has ended, a file with the name and the inode of its mapping, but of another device, is
// another file: each mount of a tmpfs begins with the same inodes.
func TestDevice(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "ehasm-") // a tmpfs, whose device stat and mappings agree on
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "program")
	b, err := os.ReadFile("/bin/true")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, b, 0o700))
	var st syscall.Stat_t
	require.NoError(t, syscall.Stat(path, &st))
	ended := exec.Command("true")
	require.NoError(t, ended.Run())
	p := &Process{PID: int32(ended.Process.Pid), Read: func(uint64, []byte) int { return 0 }}
	own := procfs.Device(unix.Major(st.Dev), unix.Minor(st.Dev))
	other := fmt.Sprintf("00:%02x", unix.Minor(st.Dev)+1)
	for device, found := range map[string]bool{own: true, other: false, "": true} {
		files := NewFiles(unwind.NewObjects(unwind.Options{}), 1)
		for range 2 { // the second time the file is known
			f := files.Find(p, &procfs.Mapping{Start: 1 << 12, End: 2 << 12, Name: path, Inode: st.Ino, Device: device},
				time.Time{})
			assert.Equal(t, found, f.isELF, device)
		}
	}
}

// TestUnchanged: a file that is known counts as the one mapped without a look at the process only if it has the numbers
// of the mapping, and was there before.
func TestUnchanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	b, err := os.ReadFile("/bin/true")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, b, 0o700))
	var st syscall.Stat_t
	require.NoError(t, syscall.Stat(path, &st))
	device := procfs.Device(unix.Major(st.Dev), unix.Minor(st.Dev))
	m := procfs.Mapping{Start: 1 << 12, End: 2 << 12, Name: path, Inode: st.Ino, Device: device}
	changed := time.Unix(st.Ctim.Unix())
	files := NewFiles(unwind.NewObjects(unwind.Options{}), 1)
	_, ok := files.unchanged(&m, changed.Add(time.Minute))
	assert.False(t, ok, "not known")
	require.True(t, files.Find(&Process{PID: -1}, &m, time.Time{}).isELF)
	f, ok := files.unchanged(&m, changed.Add(time.Minute))
	assert.True(t, ok && f.isELF && f.version == versionOf(&st), "known")
	for _, made := range []time.Time{{}, changed.Add(-time.Minute), changed} {
		_, ok = files.unchanged(&m, made)
		assert.False(t, ok, "mapped at %v, changed at %v", made, changed)
	}
	for _, other := range []procfs.Mapping{{Name: path, Inode: st.Ino + 1, Device: device},
		{Name: path, Inode: st.Ino, Device: "00:01"}, {Name: path, Inode: st.Ino}} {
		_, ok = files.unchanged(&other, changed.Add(time.Minute))
		assert.False(t, ok, "%+v", other)
	}
	require.NoError(t, os.WriteFile(path, append(b, 0), 0o700))
	_, ok = files.unchanged(&m, changed.Add(time.Minute))
	assert.False(t, ok, "written to")
}
