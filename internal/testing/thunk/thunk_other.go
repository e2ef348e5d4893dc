//go:build !amd64

package thunk

// HashReadThunk returns 0: there is no such function on this host.
func HashReadThunk() uintptr { return 0 }

// HashDerefThunk returns 0: there is no such function on this host.
func HashDerefThunk() uintptr { return 0 }
