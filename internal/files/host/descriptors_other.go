//go:build !unix

package host

// RaiseDescriptors returns nil: only Unix has this limit.
func RaiseDescriptors() error { return nil }
