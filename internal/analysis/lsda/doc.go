// Package lsda reads language-specific data areas: what .gcc_except_table holds
// for each function that has landing pads (Itanium C++ ABI, Exception Handling,
// level II; the layout follows GCC's except.cc and LLVM's EHStreamer).
//
//	r := lsda.NewReader(object)
//	table, err := r.Table(fde) // call sites: ranges, each with its landing pad
//
// All reads are bounded by the bytes of the file; bad bytes give an error and
// never a panic.
package lsda
