package bpfunwind

// Outcome says why a walk ended.
type Outcome uint32

// Outcomes.
const (
	_          Outcome = iota
	EndOfStack         // the last frame is the outermost: its row says so
	// the return address is zero and lies in no region, and so is rbp, as in thread entries written by hand
	NullReturn
	NoRow        // the table has no row for the last pc
	NoRegion     // the last pc lies in no region of the process
	NoRecord     // the row of the last frame has no record: see the package's documentation
	Unreadable   // the return address, or a word that the CFA needs, is not in memory
	Incomplete   // the return address is readable, but not the word of another register
	LostRegister // the row needs a register whose value is lost
	FrameLimit   // Options.MaxFrames
	TimeLimit    // Options.MaxTime
	Remapped     // the regions of the process changed during the walk: frames may be wrong
	Foreign      // the thread runs 32-bit code
	Damaged      // the tables lead outside of their memory; a defect
	// as NullReturn, but rbp is not zero: frame pointers may lead on, as from where Go calls on another stack
	Switched
	NumOutcomes // their number
)

// String says in words why the walk ended.
func (o Outcome) String() string {
	if o == 0 || o >= NumOutcomes {
		return "no outcome"
	}
	return [NumOutcomes]string{"", "end of the stack", "null return address", "no row", "no region", "no record",
		"unreadable memory",
		"unreadable register", "lost register", "frame limit", "time limit", "remapped", "32-bit code", "damaged tables",
		"switched stack"}[o]
}

// Outcomes is a set of outcomes: bit 1<<o for an outcome o.
type Outcomes uint32

// Has reports whether an outcome is in the set.
func (s Outcomes) Has(o Outcome) bool { return s>>o&1 != 0 }

// NeedsCopy are the outcomes of walks that a walk of a copy of the stack may complete.
const NeedsCopy Outcomes = 1<<NoRow | 1<<NoRegion | 1<<NoRecord | 1<<Incomplete | 1<<LostRegister | 1<<FrameLimit | 1<<TimeLimit |
	1<<Remapped | 1<<Foreign | 1<<Damaged | 1<<Switched
