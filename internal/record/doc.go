// Package record profiles programs while they run. The kernel puts samples, with the
// registers and a copy of the stack's top, into rings (package perfevent); they are
// unwound where they lie (package unwind) and counted in a Table of distinct stacks, so that
// nothing but the profile itself is ever written.
//
//	rings --Session--> walks --refill--> Table --Profile--> a format of package stackfmt
//
// A Session opens the events, follows what processes map and counts. A Profile is
// what it has counted, from which names are found and output is written. The package works
// on Linux on x86-64 and is empty elsewhere.
package record
