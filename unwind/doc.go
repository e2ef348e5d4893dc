// Package unwind walks whole stacks over the several objects of a process with
// eh_elfs. It knows what a process has mapped where (Processes, Maps), finds the
// files of the objects and their load biases (Objects, Object), and walks from
// object to object (Walker.Walk). It does not know where registers and memory
// come from, nor how an eh_elf is made: Options.Compile makes it, and
// Options.Prepare supplies what takes the steps until it is ready.
//
// Addresses of the target are run-time addresses unless a comment says
// link-time; the difference is the load bias.
//
// Unless documented otherwise, types are plain values: several goroutines may
// read one at once if none changes it.
package unwind
