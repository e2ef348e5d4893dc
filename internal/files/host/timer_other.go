//go:build !linux

package host

// StopTimer does nothing: programs are preloaded on Linux.
func StopTimer() {}
