package dwarfcfa

import "bytes"

// ArgsSize says that from Start on, Size bytes of arguments are on the stack,
// which an unwinder pops before it enters a landing pad of the frame.
type ArgsSize struct {
	Start Addr
	Size  uint64
}

// ArgsSizes returns the places, ascending, where DW_CFA_GNU_args_size changes
// that number; none if it is 0 throughout. Remembering and restoring rows do
// not affect it (libgcc's execute_cfa_program). Compilers write it in functions
// with landing pads that pass arguments on the stack.
func (f *FDE) ArgsSizes() ([]ArgsSize, error) {
	if bytes.IndexByte(f.Instructions, byte(CFAGNUArgsSize)) < 0 {
		return nil, nil
	}
	var sizes []ArgsSize
	c := f.CIE.section.cursor(f.instPos, f.instPos+len(f.Instructions))
	loc := f.Start
	for !c.done() {
		var i Inst
		i.read(&c, f.CIE, f.Start)
		if c.err != nil {
			return nil, c.err
		}
		switch i.Op {
		case CFASetLoc:
			loc = i.Loc
		case CFAGNUArgsSize:
			sizes = append(sizes, ArgsSize{loc, i.Size})
		default:
			loc += Addr(i.Delta)
		}
	}
	return sizes, nil
}
