//go:build !unix

package host

// RaiseDescriptors returns nil: such a limit is Unix.
func RaiseDescriptors() error { return nil }
