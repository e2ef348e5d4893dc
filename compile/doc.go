// Package compile makes the eh_elf of an object: the whole way that ehasm build takes.
//
// Object reads the unwind tables of an object, makes one table of them, compiles it into machine code, writes that as a
// shared object and proves that the file means the table. The stages are packages of their own: dwarfcfa, asmgen/plan,
// asmgen, elfout and prove.
//
// The bytes of a file depend on the object, Options, Target and this package's version alone: the same input gives the
// same file on any host.
package compile
