package synth

import (
	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// pltRows makes the rows of a procedure linkage table (x86-64 psABI §5.2). Entries are entered by calls, or through the
// word in the GOT that an entry jumps through, and go on to the first one, the header, which finds on the stack what
// they pushed. Each jump ends an entry. ld makes FDEs for its PLTs, lld none. The rows end at the first instruction
// that PLTs do not have.
func pltRows(img *codeflow.Image, g span) []Function {
	code := img.Code(g.lo)
	code = code[:min(uint64(len(code)), g.hi-g.lo)]
	var list []Function
	var in x86.Inst
	row, first, begins := Entry, true, true
	for off := 0; off < len(code); {
		if x86.Decode(code[off:], &in) != nil {
			return list // not a PLT
		}
		pc := dwarfcfa.Addr(g.lo + uint64(off))
		off += int(in.Len)
		if first && in.Op == x86.OpPUSH {
			if in.Args[0].Kind == x86.KMem { // the header: its entries have pushed their number
				row.CFA.Offset += 8
			}
			first = false
		}
		switch in.Op {
		case x86.OpPUSH, x86.OpJMP, x86.OpENDBR64, x86.OpNOP, x86.OpMOV, x86.OpLEA, x86.OpINT3:
		default:
			return list
		}
		list = Add(list, "", begins, pc, pc+dwarfcfa.Addr(in.Len), row)
		begins = false
		switch in.Op {
		case x86.OpPUSH:
			row.CFA.Offset += 8
		case x86.OpJMP:
			row, first = Entry, false
		case x86.OpMOV, x86.OpLEA:
			if in.Args[0].Kind == x86.KGPR && abi.CalleeSaved&(1<<dwarfOf[in.Args[0].Reg]) != 0 {
				return list
			}
		}
	}
	return list
}

// dwarfOf maps the processor's register numbers to DWARF's (x86-64 psABI figure
// 3.36).
var dwarfOf = [16]uint8{
	abi.RAX, abi.RCX, abi.RDX, abi.RBX, abi.RSP, abi.RBP, abi.RSI, abi.RDI,
	abi.R8, abi.R9, abi.R10, abi.R11, abi.R12, abi.R13, abi.R14, abi.R15,
}
