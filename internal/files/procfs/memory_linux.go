package procfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

// ReadMemory reads memory of a process into b, which is not empty, and returns the number of bytes read: up to the
// first page that is not mapped, 0 without the right to: process_vm_readv(2). The process need not be stopped.
func ReadMemory(pid int32, addr uint64, b []byte) int {
	local, remote := []unix.Iovec{{Base: &b[0]}}, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}
	local[0].SetLen(len(b))
	n, err := unix.ProcessVMReadv(int(pid), local, remote, 0)
	if errors.Is(err, unix.ESRCH) { // of the first thread, which may have ended before others
		n, err = unix.ProcessVMReadv(int(Living(pid)), local, remote, 0)
	}
	if err != nil {
		return 0
	}
	return n
}
