// Package prototypes finds the parameters of functions by their names, in what compilers write
// besides or instead of DWARF: the .ctf and .BTF sections of files, and the BTF of the running
// kernel.
package prototypes
