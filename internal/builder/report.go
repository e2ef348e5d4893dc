package builder

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/output"
)

// leftOutText returns the cell of a report that says what is left out.
func leftOutText(s compile.Stats) string {
	all := CountsText(s.LeftOut)
	switch {
	case s.Verified && all == "":
		return "-"
	case s.Verified:
		return all
	case all == "":
		return "not verified"
	}
	return all + ", not verified"
}

// CountsText returns text such as "empty (3), shadowed (1)".
func CountsText(counts []compile.LeftOut) string {
	parts := make([]string, len(counts))
	for i, l := range counts {
		parts[i] = fmt.Sprintf("%s (%d)", l.Reason, l.Count)
	}
	return strings.Join(parts, ", ")
}

// Report is the result of a build.
type Report struct {
	Done    []*Outcome // built or up to date, in order of the inputs
	failed  []*Outcome
	skipped []find.Skip
	elapsed time.Duration // of the whole build
}

// NewReport sorts the outcomes by their status.
func NewReport(outcomes []*Outcome, skipped []find.Skip, elapsed time.Duration) *Report {
	r := &Report{skipped: skipped, elapsed: elapsed}
	for _, o := range outcomes {
		switch o.Status {
		case Failed:
			r.failed = append(r.failed, o)
		case Skipped:
			r.skipped = append(r.skipped, find.Skip{Path: o.Name, Reason: o.Reason})
		default:
			r.Done = append(r.Done, o)
		}
	}
	return r
}

// Details names everything that the table only counts.
func (r *Report) Details(note func(name string, err error)) {
	for _, s := range r.skipped {
		note(s.Path, fmt.Errorf("skipped: %s", s.Reason))
	}
	for _, o := range r.Done {
		for _, err := range o.Details {
			note(o.Name, fmt.Errorf("left out: %w", err))
		}
	}
}

// reasons counts the skipped files, the most frequent reason first.
func (r *Report) reasons() []compile.LeftOut {
	counts := make(map[string]int)
	for _, s := range r.skipped {
		counts[s.Reason]++
	}
	var all []compile.LeftOut
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, compile.LeftOut{Reason: reason, Count: counts[reason]})
	}
	slices.SortStableFunc(all, func(a, b compile.LeftOut) int { return cmp.Compare(b.Count, a.Count) })
	return all
}

// total adds up the figures.
func (r *Report) total() (sum compile.Stats) {
	sum.Verified, sum.LeftOut = true, []compile.LeftOut{} // of all files, until one is not
	counts := make(map[string]int)
	packed := 0
	for _, o := range r.Done {
		s := o.Stats
		if s.Layout == compile.Packed.String() {
			packed++
		}
		sum.FDEs += s.FDEs
		sum.Rows += s.Rows
		sum.Distinct += s.Distinct
		sum.TableBytes += s.TableBytes
		sum.CodeBytes += s.CodeBytes
		sum.Verified = sum.Verified && s.Verified
		for _, l := range s.LeftOut {
			counts[l.Reason] += l.Count
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		sum.LeftOut = append(sum.LeftOut, compile.LeftOut{Reason: reason, Count: counts[reason]})
	}
	sum.Layout = fmt.Sprintf("%d packed", packed)
	return sum
}

// Table prints the result for people.
func (r *Report) Table(w io.Writer) {
	if len(r.Done) > 0 {
		rows := [][]string{{"file", "FDEs", "rows", "distinct", "eh_frame+hdr", "code+data", "ratio", "layout", "time",
			"left out"}}
		for _, o := range r.Done {
			rows = append(rows, tableRow(output.Name(o.Name), o.Stats, timeText(o)))
		}
		if len(r.Done) > 1 {
			rows = append(rows, tableRow(fmt.Sprintf("total (%d files)", len(r.Done)), r.total(), seconds(r.elapsed)))
		}
		writeAligned(w, rows)
	}
	if len(r.skipped) > 0 {
		fmt.Fprintf(w, "skipped: %s\n", CountsText(r.reasons()))
	}
}

// tableRow returns the cells of a file's line.
func tableRow(name string, s compile.Stats, time string) []string {
	return []string{name, fmt.Sprint(s.FDEs), fmt.Sprint(s.Rows), fmt.Sprint(s.Distinct), fmt.Sprint(s.TableBytes),
		fmt.Sprint(s.CodeBytes), fmt.Sprintf("%.2f", s.Ratio()), s.Layout, time, leftOutText(s)}
}

// timeText is how long a job took, or that nothing had to be made.
func timeText(o *Outcome) string {
	if o.Status != Built {
		return string(o.Status)
	}
	return seconds(o.Time)
}

// seconds writes a duration with two digits.
func seconds(d time.Duration) string { return fmt.Sprintf("%.2fs", d.Seconds()) }

// writeAligned prints columns: the first and the last to the left, the others
// to the right.
func writeAligned(w io.Writer, rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			switch {
			case i == 0:
				line.WriteString(cell + pad)
			case i == len(row)-1:
				line.WriteString("  " + cell)
			default:
				line.WriteString("  " + pad + cell)
			}
		}
		fmt.Fprintln(w, line.String())
	}
}

// The JSON form of a report.
type (
	reportJSON struct {
		Files   []fileJSON     `json:"files"`
		Skipped map[string]int `json:"skipped"` // by reason
		Errors  []string       `json:"errors"`  // all failures, those before a file was opened included
		Total   *totalJSON     `json:"total"`
	}
	fileJSON struct {
		File   string   `json:"file"`
		Status Status   `json:"status"`
		Output string   `json:"output,omitempty"`
		Links  []string `json:"links,omitempty"`
		*rawNames
		*compile.Stats
		Ratio   float64 `json:"ratio,omitempty"`
		Seconds float64 `json:"seconds"`
		Error   string  `json:"error,omitempty"`
	}
	totalJSON struct {
		Files int `json:"files"`
		compile.Stats
		Ratio   float64 `json:"ratio"`
		Seconds float64 `json:"seconds"`
	}
)

// rawNames are the bytes of a file's names, where these are not UTF-8: JSON cannot hold them otherwise.
type rawNames struct {
	File   []byte   `json:"file_base64"`
	Output []byte   `json:"output_base64,omitempty"`
	Links  [][]byte `json:"links_base64,omitempty"`
}

// rawNamesOf returns nil if all names are UTF-8.
func rawNamesOf(file, output string, links []string) *rawNames {
	raw, all := &rawNames{File: []byte(file), Output: []byte(output)}, utf8.ValidString(file) && utf8.ValidString(output)
	for _, link := range links {
		raw.Links = append(raw.Links, []byte(link))
		all = all && utf8.ValidString(link)
	}
	if all {
		return nil
	}
	return raw
}

// JSON prints the result for programs. failures are all failures, those before a file was opened included.
func (r *Report) JSON(w io.Writer, failures []string) {
	doc := reportJSON{Files: []fileJSON{}, Skipped: make(map[string]int), Errors: append([]string{}, failures...)}
	for _, o := range r.Done {
		doc.Files = append(doc.Files, fileJSON{File: o.Name, Status: o.Status, Output: o.Target, Links: o.Links,
			rawNames: rawNamesOf(o.Name, o.Target, o.Links),
			Stats:    &o.Stats, Ratio: o.Stats.Ratio(), Seconds: o.Time.Seconds()})
	}
	for _, o := range r.failed {
		doc.Files = append(doc.Files, fileJSON{File: o.Name, Status: o.Status, rawNames: rawNamesOf(o.Name, "", nil),
			Seconds: o.Time.Seconds(),
			Error:   output.ErrorText(o.Name, o.Err)})
	}
	for _, s := range r.reasons() {
		doc.Skipped[s.Reason] = s.Count
	}
	sum := r.total()
	doc.Total = &totalJSON{Files: len(r.Done), Stats: sum, Ratio: sum.Ratio(), Seconds: r.elapsed.Seconds()}
	output.JSON(w, doc)
}
