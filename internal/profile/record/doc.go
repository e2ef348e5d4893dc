// Package record profiles programs while they run. The kernel puts samples, with the
// registers and a copy of the stack's top, into rings (package perfevent). The samples are
// unwound in place (package unwind) and counted in a Table of distinct stacks, so that only
// the profile itself is written.
//
//	rings --Session--> walks --refill--> Table --Profile--> a format of package stackfmt
//
// A Session opens the events, tracks what processes map, and counts. A Profile holds its
// counts; it finds names and writes the output. The package works on Linux on x86-64 and
// is empty elsewhere.
package record
