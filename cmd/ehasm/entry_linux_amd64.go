package main

// entry is in entry_linux_amd64.s; no Go code calls it.
func entry()

var _ = entry

// outputClosed reports whether the process began without a standard output. Only entry sets it.
var outputClosed bool
