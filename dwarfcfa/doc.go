// Package dwarfcfa reads the unwind tables of ELF objects: DWARF call frame
// information in .eh_frame and .debug_frame (DWARF 5 §6.4, LSB 5.0 "DWARF
// extensions", x86-64 psABI §3.7).
//
// Data flows one way, a type per stage:
//
//	File -> Section (CIEs and FDEs) -> rows per FDE -> Table
//
// A Table maps any pc of the object to a row; Table.Step, the reference
// evaluator, defines what one step does to registers.
//
// BuildTable runs these passes: collect (entries), dropEmpty, clipToCode,
// resolveOverlaps, interpret (rows, each normalised, popped registers
// included), fillPadding, mergeEqual, and numbers rows and expressions by
// first use. Table.Verify checks the outcome.
//
// Choices where the standards leave room:
//
//   - of several FDEs with one start, the first in the section counts;
//   - rows past the end of an FDE are cut off; a location that goes back or
//     wraps around is an error of the FDE, and so is one that moves in the
//     initial instructions of a CIE;
//   - if section headers give the size of .eh_frame, entries after a terminator count;
//   - the return address column is never taken for a popped register;
//   - a rule of the CIE, or one that DW_CFA_restore brings back, is not "set in
//     the FDE", so its register is never taken for popped either;
//   - def_cfa_register after an expression takes up the offset there was
//     before it, as in libgcc and readelf.
//
// Unless documented otherwise, types are plain values: several goroutines may
// read one at once if none changes it.
package dwarfcfa
