// Package codeflow interprets x86-64 functions abstractly: where the canonical frame address (CFA) and the caller's
// callee-saved registers are at each instruction.
//
// A register holds its value at the function's entry, the CFA plus a constant, another base plus a constant, or
// something unknown; a stack slot likewise. Values that meet at a join and differ are unknown. The stack pointer gets a
// new base where it moves by an unknown amount (and, alloca).
//
// The package knows nothing of unwind tables. Where a function begins in the middle of a frame, as a cold part does, the caller may
// give the state there (Options.Begin); such states and all that follow from them are marked Assumed, and Guessed where
// the analysis had to take a side.
//
//	NewImage -> New(functions) -> Run: each function's Result
package codeflow
