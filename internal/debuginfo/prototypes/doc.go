// Package prototypes finds the parameters of functions by their names in BTF, which compilers write
// besides or instead of DWARF: the .BTF sections of files, and the BTF of the running kernel.
package prototypes
