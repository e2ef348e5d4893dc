// Package codeflow interprets x86-64 functions abstractly: where the canonical frame address (CFA) and the caller's
// callee-saved registers are at each instruction.
//
// A register or a stack slot holds an entry value of the function, the CFA plus a constant, another base plus a
// constant, or an unknown value. Values that differ at a join become unknown. The stack pointer gets a new base if it
// moves by an unknown amount (and, alloca).
//
// The package knows nothing of unwind tables. If a function begins in the middle of a frame, as a cold part does, the
// caller may give the state there (Options.Begin). Such states and all that follow from them are marked Assumed, and
// Guessed if the analysis had to choose between contradicting paths.
//
// NewImage -> New(functions) -> Run: each function's Result
//
// What the code cannot show is settled by what compilers and hand-written code are seen to do: a store through a
// pointer into an array does not hit saved registers, a callee keeps the psABI's registers unless its code says
// otherwise. The assumptions stand at the functions that make them. validate/truth compares the states with single
// steps of running programs.
package codeflow
