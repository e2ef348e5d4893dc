// Package sframe reads and writes SFrame sections, versions 1 to 3, of x86-64 objects: for
// each function, rows that say where the canonical frame address, the return address and
// the caller's rbp are ("The SFrame Format", binutils' libsframe/doc/sframe-spec, and
// include/sframe.h).
//
// Where the specification leaves a choice:
//
//   - version 1 does not store the size of repeated blocks: on x86-64 it is 16 bytes, as in the procedure linkage
//     table;
//   - a row without data words ends the stack in versions 2 and 3, and is malformed in
//     version 1, whose readers require a CFA in each;
//   - bits that x86-64 does not use must be zero; otherwise the function is unsupported;
//   - bytes after the rows are ignored; linkers leave some.
package sframe
