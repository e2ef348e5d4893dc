// Package ehelf loads an eh_elf into the process and walks with it, without
// cgo. It depends on package abi alone, so that a profiler which uses it links
// no compiler.
//
// The whole file is checked before it is mapped: ELF headers, segments, the
// identity note and the exported functions. The machine code itself is trusted,
// as dlopen would. OpenFor also checks that the file was made from the object
// whose frames it is to unwind; OpenUnchecked and FromBytes do not.
//
// Three ways lead into the code. Walk and Step take Go memory and Go functions.
// WalkRaw hands the structures of the binary interface over as they are, with
// host addresses and a C callback. StepContext is the interface of the original
// eh_elfs.
//
// # Foreign code on a goroutine stack
//
// The code runs on the goroutine's own stack, inside the frame of the assembly
// function that calls it; that frame holds StackSize bytes, and is reserved
// before anything is called, so that the stack does not grow or move while
// machine code is at work. The code never calls into Go. Signals reach handlers
// on the signal stack; a pc that the runtime does not know is not a safe point,
// so a goroutine is not preempted there, and a profile accounts it to external
// code. A walk of n steps thus delays a stop of the world by its own length.
package ehelf
