// Package limits deals with the limits on a process (ulimit) that the Go run-time does not stand.
package limits
