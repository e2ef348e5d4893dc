package prove

// state is what is known of the machine at one place of one path.
type state struct {
	pc    uint64     // address of the next instruction, in the file
	reg   [16]term   // by number in instructions
	xmm   [6][2]term // low half, high half
	fl    flags
	stack []cell  // relative to rsp at the entry of the exported function
	regs  []cell  // what was written to eh_elf_regs_t
	conds []lit   // what was taken for granted and what branches have decided
	event []event // in the order of execution
	frame callFrame
	outer []callFrame // callers of a subroutine that runs, the outermost first
}

// cell is a place of an object that was written, or read for the first time.
type cell struct {
	off  int64 // from the object's beginning, in bytes
	size uint8 // 1, 2, 4 or 8
	v    term
}

// lit says that a boolean term holds, or with neg, that it does not.
type lit struct {
	t   term
	neg bool
}

// event is a store that is in no object, or a read of the target's memory.
type event struct {
	kind eventKind
	addr term // address
	size uint8
	v    term
}

// eventKind says which access to memory an event is.
type eventKind uint8

const (
	evPC     eventKind = iota // a pc goes to the caller's array
	evResult                  // to the result of _eh_elf
	evWord                    // to where a read callback leaves its word
	evNew                     // to slotNew, indexed
	evReg                     // to eh_elf_regs_t, indexed
	evRead                    // the target's memory is read
)

// callFrame is the function that runs: where its return address lies, and what the
// registers held at its entry that it has to keep.
type callFrame struct {
	ret  int64    // from rsp at the entry of the exported function
	keep [16]term // by number in instructions
}

// calleeSaved are the registers a function has to keep (psABI figure 3.4), rsp aside.
var calleeSaved = [...]uint8{rBX, rBP, r12, r13, r14, r15}

// assume adds a condition to a path: t holds, or with neg, it does not.
func (s *state) assume(t term, neg bool) { s.conds = append(s.conds, lit{t, neg}) }

// flags are the status flags as the last instruction left them, not yet computed.
type flags struct {
	kind flagKind
	w    uint8 // bytes of the operands
	a, b term  // operands, or in a the result
	cf   term  // carry; noTerm: not known
}

// flagKind says what the flags were made from.
type flagKind uint8

const (
	flNone  flagKind = iota // nothing is known
	flCmp                   // of a - b
	flValue                 // zero and sign of a; carry cf
	flCarry                 // carry cf alone
)

// noTerm is an unknown term.
const noTerm term = -1
