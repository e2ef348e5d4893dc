// Package srcline finds the function, inlined functions, file and line of a
// link-time address from the DWARF of an ELF object: DWARF 2 to 5, in the
// object, its separate debug file, the supplementary file that dwz makes, and
// .dwo files.
//
// Opening an object reads the headers of its units and the addresses that each
// unit covers. The functions and the lines of a unit are read when one of its
// addresses is first looked up, and kept as sorted arrays.
//
// Section and attribute names are those of the DWARF standard, version 5;
// sections of it are cited as "DWARF 5, 7.5".
package srcline
