// Package inspect shows what verbs look into: stages of compiling, eh_elfs, proofs, rows made
// from code, as text for people and as JSON for programs.
package inspect
