// Package host fits the process to its host: limits (ulimit) under which the Go run-time fails, and signals, which end
// work without partial files.
package host
