//go:build !linux

package limits

// BoundMemory does nothing: such limits are Linux.
func BoundMemory() {}
