//go:build !linux

package host

// BoundMemory does nothing: such limits are Linux.
func BoundMemory() {}
