package testtool

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// otherUser owns no file.
const otherUser = 65534

// AsOther runs f with the file permissions of a user who is not root: those of
// this process, or, where it is root, of otherUser (setfsuid(2), which holds for this
// thread alone). dir, a t.TempDir, is made reachable for that user.
func AsOther(t testing.TB, dir string, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := syscall.Setfsuid(otherUser); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setfsuid(0)
	f()
}
