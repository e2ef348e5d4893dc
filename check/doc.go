// Package check holds an object's unwind tables against its code.
//
// Each function is interpreted abstractly (package codeflow), and at each instruction the row of the table is compared
// with what the code did: the CFA, the places of the caller's registers, the return address. Wrong instructions that
// follow one another for the same reason are one Finding. What cannot be judged is counted with its reason.
//
//	Open -> Subject -> Run -> Report
package check
