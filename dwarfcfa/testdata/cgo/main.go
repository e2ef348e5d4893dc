// Command cgo is a Go program with a C part.
package main

// static int twice(int x) { return 2 * x; }
import "C"

func main() { println(C.twice(21)) }
