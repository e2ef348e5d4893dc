// Package check compares an object's unwind tables with its code.
//
// Each function is interpreted abstractly (package codeflow), and at each instruction the row of the table is compared
// with what the code did: the CFA, the places of the caller's registers, the return address. Consecutive instructions
// that are wrong for the same reason are one Finding. Instructions that cannot be judged are counted by reason.
//
// Open -> Subject -> Run -> Report
//
// A finding must be true in the running program, since people mend tables by it. So wherever the analysis is not sure,
// the instruction is not judged, or the finding becomes a note whose Class names the assumption. Registers have the
// processor's numbers, as in package codeflow; hardware maps DWARF's to them.
package check
