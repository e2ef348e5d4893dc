// Package dwarfcfa reads the unwind tables of ELF objects: DWARF call frame
// information in .eh_frame and .debug_frame (DWARF 5 §6.4, LSB 5.0 "DWARF
// extensions", x86-64 psABI §3.7).
//
// Data flows one way, a type per stage:
//
//	Object -> Section (CIEs and FDEs) -> rows per FDE -> Table
//
// A Table answers any pc of the object; Table.Step, the reference evaluator,
// says what one step means on registers and memory.
package dwarfcfa
