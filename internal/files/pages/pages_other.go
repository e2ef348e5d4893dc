//go:build !unix

package pages

import (
	"errors"
	"os"
)

// Map returns errors.ErrUnsupported.
func Map(*os.File, int64, int) ([]byte, error) { return nil, errors.ErrUnsupported }

// Reserve returns errors.ErrUnsupported.
func Reserve(int) ([]byte, error) { return nil, errors.ErrUnsupported }

// Unmap does nothing.
func Unmap([]byte) {}
