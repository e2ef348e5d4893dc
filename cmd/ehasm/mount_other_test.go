//go:build unix && !linux

package main

import "errors"

func mountSmall(string, int) error { return errors.ErrUnsupported }
