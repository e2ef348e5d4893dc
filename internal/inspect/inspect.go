// Package inspect shows stages of compiling, eh_elfs, proofs, rows made from code, and caches:
// as text for people, and as JSON for programs.
package inspect
