// Package check compares an object's unwind tables with its code.
//
// Each function is interpreted abstractly (package codeflow), and at each instruction the row of the table is compared
// with what the code did: the CFA, the places of the caller's registers, the return address. Consecutive instructions
// that are wrong for the same reason are one Finding. Instructions that cannot be judged are counted by reason.
//
//	Open -> Subject -> Run -> Report
package check
