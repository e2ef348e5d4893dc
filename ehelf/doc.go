// Package ehelf loads an eh_elf into the process and walks with it, without
// cgo. It imports none of the compiler's packages, so that a profiler which
// uses it links no compiler.
//
// The whole file is checked before it is mapped: ELF headers, segments, the
// identity note and the exported functions. The machine code itself is trusted,
// as dlopen does. OpenFor also checks that the file was made from the object
// whose frames it will unwind; OpenUnchecked and FromBytes do not.
//
// Walks are over stacks of other processes, or over copies. A walk over the
// calling goroutine's own stack is not possible: every call may move that stack,
// Walk's too, and registers and window then point into freed memory. The Go
// runtime does not correct addresses that are stored as integers, nor does -race
// or checkptr see it. Use runtime.Callers there.
//
// There are three ways to call the code. Walk and Step take Go memory and Go
// functions. WalkRaw passes the structures of the binary interface unchanged,
// with host addresses and a C callback. StepContext is the interface of the
// original eh_elfs.
//
// # Foreign code on a goroutine stack
//
// The code runs on the goroutine's own stack, inside the frame of the assembly
// function that calls it. That frame has StackSize bytes and is reserved before
// the call, so that the stack does not grow or move while machine code runs. It
// may move before that.
// The code never calls into Go. Signals are handled on the signal stack. A pc
// that the Go runtime does not know is not a safe point, so a goroutine is not
// preempted there, and a profile attributes it to external code. A stop of the
// world thus waits until a walk is done.
package ehelf
