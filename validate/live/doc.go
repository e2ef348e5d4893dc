// Package live holds only tests: stacks of running programs, taken with eh_elfs
// and compared frame by frame with what libunwind, libgcc and gdb say and with
// what is known of the calls.
//
// The programs under testdata take stacks of themselves: in deep chains of frames
// of every shape, below callbacks of the C library, in threads, constructors and
// signal handlers, and, single-stepped, at every instruction of some hundred
// thousand. TestPtrace does the same from outside with package ehelf.
package live
