package check

import (
	"strconv"
	"strings"
)

// This file has the words of a report. They are part of the JSON, of baselines and of SARIF's rules, so a changed word
// breaks scripts; docs/check.md explains each.

// Kind says what is wrong with a row.
type Kind string

// Kinds of findings.
const (
	KindCFA       Kind = "cfa"       // the CFA is elsewhere
	KindSaved     Kind = "saved"     // the slot does not hold the register
	KindClobbered Kind = "clobbered" // the row says same value, the register holds another
	KindReturn    Kind = "return"    // the return address is not where the row says
	KindRet       Kind = "ret"       // at a ret the stack pointer is not at the return address
	KindBorder    Kind = "border"    // a row begins inside an instruction
	// Of the table as a whole:
	KindHidden     Kind = "hidden"     // libgcc does not find the FDE
	KindOverlap    Kind = "overlap"    // two FDEs cover the code
	KindHeader     Kind = "header"     // .eh_frame_hdr says what .eh_frame has not
	KindTerminator Kind = "terminator" // FDEs follow a terminator
	KindLoader     Kind = "loader"     // the loader writes pointers of .eh_frame
	KindLSDA       Kind = "lsda"       // the language-specific data area can't be read
	KindNoRow      Kind = "no-row"     // code that other code calls or jumps to has no row
)

// Severity says how a finding affects stacks.
type Severity string

// Severities, by what an unwinder gets.
const (
	SeverityError Severity = "error" // a wrong caller, or a wrong register of it
	// the same for a single instruction that is no call; a register that calls may change
	SeverityWarning Severity = "warning"
	SeverityNote    Severity = "note" // nothing leads there, or it rests on what the code cannot show
)

// Class says what causes a finding.
type Class string

// Classes of findings.
const (
	ClassTable   Class = "table"   // the table is wrong
	ClassPrivate Class = "private" // the function has a private calling convention and never restores the register
	ClassGo      Class = "go"      // a register of a Go function: its compiler's tables give the CFA only
	ClassContext Class = "context" // a change of context, such as longjmp's end: right by intent
	// the function returns elsewhere than to its caller, and the row describes another frame
	ClassReturn Class = "return"
	ClassCopy   Class = "copy" // the row describes another frame, with copies of the return address and the registers
	// ClassVariable is for a register that many functions change, and none of these saves: a variable of the program.
	ClassVariable    Class = "variable"
	ClassUnreachable Class = "unreachable" // nothing leads to the code
	ClassOffByOne    Class = "off-by-one"
)

// Where names the place of a finding: the symbol before it, and the line of the source, if they are known.
type Where struct {
	Function string `json:"function,omitempty"` // symbol
	Symbol   uint64 `json:"symbol,omitempty"`   // where Function begins
	Source   string `json:"source,omitempty"`   // file of the source, and its line
	Line     int    `json:"line,omitempty"`
}

// Finding is a run of instructions at which a row is wrong for the same reason.
type Finding struct {
	Kind     Kind     `json:"kind"`
	Severity Severity `json:"severity"`
	Class    Class    `json:"class"`
	Where
	Code     string `json:"code"`         // hash of the instructions, or without a symbol of the FDE's
	Start    uint64 `json:"start"`        // of the FDE
	PC       uint64 `json:"pc"`           // first wrong instruction
	End      uint64 `json:"end"`          // after the last one
	Count    int    `json:"instructions"` // how many
	Register string `json:"register,omitempty"`
	Actual   string `json:"is"`   // what the code did
	Claimed  string `json:"says"` // what the row says
	// Directive is what the assembler needs before the first wrong instruction; "" if that is not known.
	Directive string `json:"directive,omitempty"`
	// Path is how control comes from the function's start to PC by the fewest jumps: the start and the last jumps. It is
	// empty without Options.Listing, or if no jump is needed.
	Path    string `json:"-"`
	Assumed bool   `json:"assumed,omitempty"` // depends on an earlier row of the same table
	Never   bool   `json:"never,omitempty"`   // the row's CFA is true at no instruction that it covers
	stated  bool   // the row states the rule that is wrong: no convention explains it
}

// base returns the address that the finding's offset counts from.
func (f *Finding) base() uint64 {
	if f.Function != "" {
		return f.Symbol
	}
	return f.Start
}

// registers returns the registers of a finding.
func (f *Finding) registers() []string { return strings.Split(f.Register, ", ") }

// Report is the result of checking an object.
type Report struct {
	FDEs         int            `json:"fdes"`
	Instructions int            `json:"instructions"` // in FDEs, without padding
	Judged       int            `json:"judged"`
	Agree        int            `json:"agree"` // with all columns
	CFADiffer    int            `json:"cfa_differ"`
	Assumed      int            `json:"assumed"`    // of the judged: they depend on a row of the same table
	NotJudged    map[string]int `json:"not_judged"` // instructions by reason
	Notes        map[string]int `json:"notes"`      // instructions with rows that are right except for a note
	LostFDEs     int            `json:"lost_fdes"`
	OutsideFDEs  int            `json:"outside_fdes"` // begin outside the file's code, or cover more than 64 MB
	Findings     []Finding      `json:"findings"`
}

// Reasons why instructions are not judged.
const (
	ReasonUnreached  = "not reached, and the row there gives no state"
	ReasonNoRow      = "no row"
	ReasonBadRow     = "the FDE's program is not valid"
	ReasonSignal     = "signal frame"
	ReasonMany       = "one FDE for many functions, such as Dart's, whose rows say where a frame pointer leads"
	ReasonCFAUnknown = "the code's stack pointer is not known"
	ReasonExpression = "expression on values that are not known"
	ReasonGuess      = "two paths contradict each other"
	ReasonEnd        = "the row ends the stack"
	ReasonUndecoded  = "not reached, beside data or an instruction that is not known"
	ReasonLimit      = "more than 4 MB of code in one function"
)

func hex(v uint64) string { return "0x" + strconv.FormatUint(v, 16) }
