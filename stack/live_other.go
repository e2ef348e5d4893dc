//go:build !(linux && amd64)

package stack

import (
	"context"
	"errors"
)

// readLive says that processes cannot be looked at.
func readLive(context.Context, int32, Options) (*Target, func(), error) {
	return nil, func() {}, errors.New("needs Linux on x86-64; cores can be read here")
}
