// Package ctf reads the prototypes of functions from .ctf sections, which gcc -gctf and
// GNU ld make: CTF version 3, as include/ctf.h of binutils describes it.
//
// Linked objects say which symbols their functions are by the order of the dynamic symbols,
// so that a program has the functions that it exports; what is not linked yet has them all,
// by name.
package ctf
