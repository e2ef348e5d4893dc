//go:build !unix

package trust

import "os"

// Open opens the file at path for reading.
func Open(path string) (*os.File, error) { return os.Open(path) }

// MkdirAll makes the folder at path and the missing folders above it.
func MkdirAll(path string) error { return os.MkdirAll(path, 0o700) }

// MkdirAllShared is MkdirAll for folders that all users read.
func MkdirAllShared(path string) error { return os.MkdirAll(path, 0o755) }
