package inspect

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sort"
	"strconv"

	"github.com/ehasm/ehasm/internal/analysis/check"
	"github.com/ehasm/ehasm/internal/files/output"
)

// CheckCounts are what the summary of many checked files says: files judged, findings, and those that a baseline
// accepts. The zero value counts nothing yet.
type CheckCounts struct {
	files, accepted int
	findings        map[check.Severity]int // findings that are not accepted
}

// Checked is the result of a check of a file.
type Checked struct {
	File string `json:"file"`
	*check.Report
	Accepted int      `json:"accepted,omitempty"` // findings that are known
	IDs      []string `json:"-"`                  // identities of the findings
	// of functions with findings, by their start; nil: not wanted
	Lines map[uint64][]check.Line `json:"-"`
}

// CheckOptions say what of a check is shown as text.
type CheckOptions struct {
	Notes   bool   // findings that are notes, too
	Listing bool   // the code around each finding
	Known   string // what accepted findings are
}

// Shows reports whether a finding is to be printed.
func (r *Checked) Shows(opt CheckOptions) bool {
	return slices.ContainsFunc(r.Findings, func(f check.Finding) bool {
		return f.Severity != check.SeverityNote ||
			opt.Notes
	})
}

// Print shows the findings of a file and its summary. Names and texts come from files, so they are made safe for a
// terminal.
func (r *Checked) Print(w io.Writer, opt CheckOptions) {
	name := output.Name(filepath.Base(r.File))
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Severity == check.SeverityNote && !opt.Notes {
			continue
		}
		fmt.Fprintf(w, "%s: %s: %s: %s\n", name, f.Severity, output.Text(f.Position()), output.Text(f.Message()))
		if opt.Listing {
			if f.Path != "" {
				fmt.Fprintf(w, "    path: %s\n", f.Path)
			}
			r.listing(w, f)
		}
	}
	r.summary(w, name, opt.Known)
}

// summary says how much was judged, and why the rest was not. what names the findings of the baseline.
func (r *Checked) summary(w io.Writer, name, what string) {
	var sum CheckCounts
	sum.Add(r)
	// Rounded down: 100 % is all. max avoids 0/0 for a file without code.
	hundredths := 10_000 * r.Judged / max(r.Instructions, 1)
	fmt.Fprintf(w, "%s: %s, %d.%02d %% checked: %s", name, number(r.Instructions, "instruction"), hundredths/100,
		hundredths%100, sum.text(what))
	reasons := make([]string, 0, len(r.NotJudged))
	for k := range r.NotJudged {
		reasons = append(reasons, k)
	}
	// The commonest reason first; equal ones by name, for stable output.
	sort.Slice(reasons, func(i, j int) bool {
		return r.NotJudged[reasons[i]] > r.NotJudged[reasons[j]] || r.NotJudged[reasons[i]] == r.NotJudged[reasons[j]] &&
			reasons[i] < reasons[j]
	})
	for _, k := range reasons {
		fmt.Fprintf(w, "  not judged: %d, %s\n", r.NotJudged[k], k)
	}
	if r.LostFDEs > 0 {
		fmt.Fprintf(w, "  %d FDEs can't be read\n", r.LostFDEs)
	}
	if r.OutsideFDEs > 0 {
		fmt.Fprintf(w, "  %d FDEs begin outside the file's code, or cover more than 64 MB: not judged\n", r.OutsideFDEs)
	}
}

// Add counts a file.
func (n *CheckCounts) Add(r *Checked) {
	if n.findings == nil {
		n.findings = map[check.Severity]int{}
	}
	for i := range r.Findings {
		n.findings[r.Findings[i].Severity]++
	}
	n.files++
	n.accepted += r.Accepted
}

// text returns the numbers of findings, as the end of a line.
func (n *CheckCounts) text(what string) string {
	text := number(n.findings[check.SeverityError], "error") + ", " + number(n.findings[check.SeverityWarning], "warning")
	if notes := n.findings[check.SeverityNote]; notes > 0 {
		text += ", " + number(notes, "note")
	}
	if n.accepted > 0 {
		text += fmt.Sprintf(", %d %s", n.accepted, what)
	}
	return text + "\n"
}

// number returns a count of things, with commas: 1 error, 321,760 instructions.
func number(n int, thing string) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if n != 1 {
		thing += "s"
	}
	return s + " " + thing
}

// Print shows the sum of many files.
func (n *CheckCounts) Print(w io.Writer, skipped int, what string) {
	text := number(n.files, "file") + " checked"
	if skipped > 0 {
		text += fmt.Sprintf(", %d without unwind tables skipped", skipped)
	}
	fmt.Fprintf(w, "%s: %s", text, n.text(what))
}

// around is how many instructions are shown before and after the first wrong one.
const around = 6

// listing prints the code around a finding: address, instruction, what the code does, what the row
// claims. The mark ! stands for wrong rows.
func (r *Checked) listing(w io.Writer, f *check.Finding) {
	for _, lines := range r.Lines {
		// Lines are grouped by function; the one that holds the finding's address is shown.
		k := slices.IndexFunc(lines, func(l check.Line) bool { return l.PC == f.PC })
		if k < 0 {
			continue
		}
		for _, l := range lines[max(0, k-around):min(len(lines), k+around)] {
			mark := " "
			if l.Wrong {
				mark = "!"
			}
			text := l.Text
			// The columns are 40 and 48 wide, with which most lines fit 120; vector instructions are longer.
			if len(text) > 40 {
				text = text[:37] + "..."
			}
			fmt.Fprintf(w, "  %s %8x  %-40s  %-48s | %s\n", mark, l.PC, text, l.Actual, l.Claimed)
		}
		return
	}
}
