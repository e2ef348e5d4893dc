package compile

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ehasm/ehasm/dwarfcfa"
)

// Stats are the figures of an eh_elf. The JSON names are those of ehasm's --json output.
type Stats struct {
	Section    string    `json:"section,omitempty"` // that the tables were read from
	FDEs       int       `json:"fdes"`
	Rows       int       `json:"rows"`                 // ranges of pcs with a row
	Distinct   int       `json:"distinct_rows"`        // rows that differ from one another
	TableBytes int64     `json:"table_bytes"`          // .eh_frame and .eh_frame_hdr, or .debug_frame
	CodeBytes  int64     `json:"code_bytes"`           // code and its data
	Layout     string    `json:"layout,omitempty"`     // tree or packed; of a sum: how many are packed
	MadeRows   int       `json:"made_rows,omitempty"`  // of Rows: made from code
	MadeBytes  int64     `json:"made_bytes,omitempty"` // of code that these hold for
	Verified   bool      `json:"verified"`             // proven
	LeftOut    []LeftOut `json:"left_out"`
}

// LeftOut counts entries that an eh_elf does not cover, by reason.
type LeftOut struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"`
}

// Reasons of LeftOut that are losses begin with lossPrefix or are rowsNotCompiled: see Losses.
const (
	lossPrefix      = "FDEs "
	rowsNotCompiled = "rows not compiled"
)

// Ratio returns the bytes of code and data for each byte of the tables; 0 without tables.
func (s Stats) Ratio() float64 {
	if s.TableBytes == 0 {
		return 0
	}
	return float64(s.CodeBytes) / float64(s.TableBytes)
}

// newStats collects the figures of the stages before the code.
func newStats(found *dwarfcfa.Report, table *dwarfcfa.Table) Stats {
	s := Stats{
		Section: found.Source, FDEs: found.Entries.FDEs, Rows: len(table.Ranges), Distinct: len(table.Rows),
		TableBytes: found.SectionSize + found.HdrSize,
		MadeRows:   found.Rows.Made, MadeBytes: found.Rows.MadeBytes,
		LeftOut: []LeftOut{},
	}
	add := func(reason string, n int) {
		if n > 0 {
			s.LeftOut = append(s.LeftOut, LeftOut{reason, n})
		}
	}
	listed := 0 // FDEs that the loop below has counted
	for _, kind := range []error{dwarfcfa.ErrTruncated, dwarfcfa.ErrBadEncoding, dwarfcfa.ErrUnsupported} {
		n := 0
		for _, err := range found.LostFDEs {
			if errors.Is(err, kind) {
				n++
			}
		}
		listed += n
		add(lossPrefix+kind.Error(), n)
	}
	add(lossPrefix+"bad", found.Entries.Lost-listed) // beyond what the report lists
	add(rowsNotCompiled, found.Rows.NotCompiled)
	add("outside the code", found.Entries.OutsideCode)
	add("shadowed", found.Entries.Shadowed)
	add("empty", found.Entries.Empty)
	return s
}

// Losses returns what Target.Strict treats as failures.
func (s Stats) Losses() []LeftOut {
	var lost []LeftOut
	for _, l := range s.LeftOut {
		if strings.HasPrefix(l.Reason, lossPrefix) || l.Reason == rowsNotCompiled {
			lost = append(lost, l)
		}
	}
	return lost
}

// details lists what Losses counts. One error for each loss, as far as the report lists them: it is bounded, the counts
// are not.
func details(found *dwarfcfa.Report) []error {
	var all []error
	for _, err := range found.LostFDEs {
		e := *err
		e.File = "" // the line begins with it
		all = append(all, &e)
	}
	for _, n := range found.NotCompiled {
		all = append(all, fmt.Errorf("%s%v", found.Source, n))
	}
	return all
}

// layoutName names the layout of code.
func layoutName(packed bool) string {
	if packed {
		return Packed.String()
	}
	return Tree.String()
}
