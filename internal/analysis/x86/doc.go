// Package x86 decodes x86-64 machine code of user programs: the legacy maps, VEX, EVEX and XOP.
//
// [Decode] gives an instruction's length, mnemonic, operands, the general registers it reads and writes, its memory
// access and its effect on rsp. It knows nothing of unwind tables. Registers have the processor's numbers (rax 0, rcx
// 1, ... r15 15), not DWARF's.
//
// The tables are made by internal/analysis/x86/gen: legacy.txt is written by hand after the opcode maps (Intel SDM Vol.
// 2 appendix A, AMD APM Vol. 3), vector.txt holds objdump's output for every encoding in the vector maps. If the tables
// have no entry, the length follows the encoding's rule and Op is [OpUnknown].
//
// Two things keep it right: validate/objdumpcmp compares text and length with binutils over whole files, and the tests
// hold the short cut (quick) against the general steps.
package x86

//go:generate go -C gen run .
