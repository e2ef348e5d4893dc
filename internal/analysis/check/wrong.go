package check

import (
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
)

// WrongRows returns the instructions at which rows are proven wrong, as synth.Options wants them. It leaves out changes
// of context, where the row is right for the context that the code has left, and what depends on another row of the
// same table, which may be the wrong one. progress may be nil.
func WrongRows(d *codeflow.Described, workers int, progress func(more int)) (wrong []dwarfcfa.Range) {
	s := &Subject{d}
	rep := s.Run(Options{Workers: workers, Progress: progress})
	for i := range rep.Findings {
		f := &rep.Findings[i]
		switch f.Kind {
		case KindCFA, KindSaved, KindClobbered, KindReturn:
		default:
			continue // there is no row to replace
		}
		if f.Class != ClassContext && !f.Assumed && f.End > f.PC {
			wrong = append(wrong, dwarfcfa.Range{Start: dwarfcfa.Addr(f.PC), End: dwarfcfa.Addr(f.End)})
		}
	}
	return wrong
}
