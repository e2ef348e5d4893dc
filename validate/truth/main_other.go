//go:build !linux || !amd64

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "truth: only on Linux on x86-64: it needs ptrace and the registers of that processor")
	os.Exit(1)
}
