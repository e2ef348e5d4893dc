package main

import (
	"fmt"
	"syscall"
)

// mountSmall mounts a file system of so many bytes; it takes privileges.
func mountSmall(dir string, size int) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size))
}
