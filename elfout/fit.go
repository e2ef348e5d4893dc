package elfout

import (
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// Fit says how a table becomes the code of a file, and what size the file is fitted to.
type Fit struct {
	Dispatch plan.Dispatch
	NoDeref  bool  // see asmgen.Options
	Speed    bool  // pages of half the text, and any size
	Tables   int64 // bytes of the object's unwind sections; not used for Speed
}

// What a file takes beside text, data, sites and its name, about: it depends on notes.
const (
	bareSize    = 1430
	headersSize = 2900
)

// small is the size of tables up to which it counts what is the same in every file.
const small = 15 << 10

// Bare reports whether the file is one of those that have no section headers.
func (f Fit) Bare() bool { return f.Tables <= small }

// Limit is what the file may take beside its sites: a quarter more than the tables, or 3.5 KB more.
func (f Fit) Limit() int64 {
	if f.Bare() {
		return f.Tables + 3584
	}
	return f.Tables + f.Tables/4
}

// Compile makes the code. The file that it becomes keeps to the limit where that can be done.
func (f Fit) Compile(t *dwarfcfa.Table) (*asmgen.Code, error) {
	how, limit := plan.Options{Dispatch: f.Dispatch}, 0
	switch {
	case f.Speed:
		how.PageBits = plan.PageBits - 1
	case f.Bare():
		limit = int(f.Limit()) - bareSize
	default:
		limit = int(f.Limit()) - headersSize
	}
	return asmgen.Fit(t, how, asmgen.Options{NoDeref: f.NoDeref}, limit)
}
