//go:build !unix

package input

import "os"

// OpenTrusted opens the file at path for reading.
func OpenTrusted(path string) (*os.File, error) { return os.Open(path) }

// MkdirAll makes the folder at path and the missing folders above it.
func MkdirAll(path string) error { return os.MkdirAll(path, 0o700) }

// MkdirAllShared is MkdirAll for folders that all users read.
func MkdirAllShared(path string) error { return os.MkdirAll(path, 0o755) }
