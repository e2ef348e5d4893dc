package prove

// state is what is known of the machine at one place of one path.
type state struct {
	pc    uint64
	reg   [16]term
	xmm   [6][2]term
	fl    flags
	stack []cell // relative to rsp at the entry of the exported function
	regs  []cell // eh_elf_regs_t
	conds []lit  // what was taken for granted and what branches have decided
	event []event
	frame callFrame
	outer []callFrame
}

// cell is a place of an object that was written, or read for the first time.
type cell struct {
	off  int64
	size uint8
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
	ret  int64
	keep [16]term
}

// calleeSaved are the registers a function has to keep (psABI figure 3.4), rsp aside.
var calleeSaved = [...]uint8{rBX, rBP, r12, r13, r14, r15}

func (s *state) assume(t term, neg bool) { s.conds = append(s.conds, lit{t, neg}) }

// flags are the status flags as the last instruction left them, not yet computed.
type flags struct {
	kind flagKind
	w    uint8
	a, b term // operands, or in a the result
	cf   term
}

type flagKind uint8

const (
	flNone  flagKind = iota // nothing is known
	flCmp                   // of a - b
	flValue                 // zero and sign of a; carry cf
	flCarry                 // carry cf alone
)

// noTerm is an unknown term.
const noTerm term = -1
