package codeflow

import "github.com/ehasm/ehasm/internal/analysis/x86"

// class is what an instruction does to the flow of control, and to a state beyond the registers and the memory that it
// writes. The numbers are dense, so that a switch over them is one jump.
type class uint8

const (
	classOther class = iota // control goes on; what it writes is all that counts
	classMov
	classAdd // add, sub
	classLea
	classPush
	classPop
	classRare // what exec does in rare
	// From here on, control may go elsewhere.
	classCall
	classBranch // conditional jumps
	classXBegin
	classSyscall
	classJump
	// From here on, control does not go on, and where it goes is not known.
	classRet
	classEnd
)

var classes = classTable()

// classTable makes the table at start. The order of the constants is what ends and block rely on.
func classTable() (t [x86.NumOps]class) {
	for s, ops := range map[class][]x86.Op{
		classMov:  {x86.OpMOV},
		classAdd:  {x86.OpADD, x86.OpSUB},
		classLea:  {x86.OpLEA},
		classPush: {x86.OpPUSH},
		classPop:  {x86.OpPOP},
		classRare: {x86.OpPUSHF, x86.OpPOPF, x86.OpLEAVE, x86.OpENTER, x86.OpINC, x86.OpDEC, x86.OpAND, x86.OpXCHG,
			x86.OpPUSH2, x86.OpPOP2},
		classCall:    {x86.OpCALL},
		classBranch:  {x86.OpJCC, x86.OpLOOP, x86.OpLOOPE, x86.OpLOOPNE, x86.OpJRCXZ},
		classXBegin:  {x86.OpXBEGIN},
		classSyscall: {x86.OpSYSCALL},
		classJump:    {x86.OpJMP},
		classRet:     {x86.OpRET},
		classEnd: {x86.OpRETF, x86.OpIRET, x86.OpUD2, x86.OpUD1, x86.OpUD0, x86.OpHLT, x86.OpINT3, x86.OpSYSRET,
			x86.OpSYSEXIT,
			x86.OpJMPF, x86.OpUIRET},
	} {
		for _, op := range ops {
			t[op] = s
		}
	}
	return t
}

// ends reports whether control does not go on to the next instruction, calls apart.
func ends(op x86.Op) bool { return classes[op] >= classRet }
