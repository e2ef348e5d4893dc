package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/shown"
)

// ratio returns the bytes of code and data for each byte of the tables.
func ratio(s compile.Stats) float64 {
	if s.TableBytes == 0 {
		return 0
	}
	return float64(s.CodeBytes) / float64(s.TableBytes)
}

// leftOutText returns the cell of a report that says what is left out.
func leftOutText(s compile.Stats) string {
	all := countsText(s.LeftOut)
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

// countsText returns text such as "empty (3), shadowed (1)".
func countsText(counts []compile.LeftOut) string {
	parts := make([]string, len(counts))
	for i, l := range counts {
		parts[i] = fmt.Sprintf("%s (%d)", l.Reason, l.Count)
	}
	return strings.Join(parts, ", ")
}

// report is the result of a build.
type report struct {
	done    []*builder.Outcome // built or up to date, in order of the inputs
	failed  []*builder.Outcome
	skipped []find.Skip
	elapsed time.Duration // of the whole build
}

func newReport(outcomes []*builder.Outcome, skipped []find.Skip, elapsed time.Duration) *report {
	r := &report{skipped: skipped, elapsed: elapsed}
	for _, o := range outcomes {
		switch o.Status {
		case builder.Failed:
			r.failed = append(r.failed, o)
		case builder.Skipped:
			r.skipped = append(r.skipped, find.Skip{Path: o.Name, Reason: o.Reason})
		default:
			r.done = append(r.done, o)
		}
	}
	return r
}

// details names everything that the table only counts.
func (r *report) details(c *console) {
	for _, s := range r.skipped {
		c.note(s.Path, fmt.Errorf("skipped: %s", s.Reason))
	}
	for _, o := range r.done {
		for _, err := range o.Details {
			c.note(o.Name, fmt.Errorf("left out: %w", err))
		}
	}
}

// reasons counts the skipped files, the most frequent reason first.
func (r *report) reasons() []compile.LeftOut {
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
func (r *report) total() (sum compile.Stats) {
	sum.Verified, sum.LeftOut = true, []compile.LeftOut{}
	counts := make(map[string]int)
	packed := 0
	for _, o := range r.done {
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

// table prints the result for people.
func (r *report) table(w io.Writer) {
	if len(r.done) > 0 {
		rows := [][]string{{"file", "FDEs", "rows", "distinct", "eh_frame+hdr", "code+data", "ratio", "layout", "time", "left out"}}
		for _, o := range r.done {
			rows = append(rows, tableRow(shown.Name(o.Name), o.Stats, timeText(o)))
		}
		if len(r.done) > 1 {
			rows = append(rows, tableRow(fmt.Sprintf("total (%d files)", len(r.done)), r.total(), seconds(r.elapsed)))
		}
		writeAligned(w, rows)
	}
	if len(r.skipped) > 0 {
		fmt.Fprintf(w, "skipped: %s\n", countsText(r.reasons()))
	}
}

func tableRow(name string, s compile.Stats, time string) []string {
	return []string{name, fmt.Sprint(s.FDEs), fmt.Sprint(s.Rows), fmt.Sprint(s.Distinct), fmt.Sprint(s.TableBytes),
		fmt.Sprint(s.CodeBytes), fmt.Sprintf("%.2f", ratio(s)), s.Layout, time, leftOutText(s)}
}

func timeText(o *builder.Outcome) string {
	if o.Status == builder.Current {
		return string(builder.Current)
	}
	return seconds(o.Time)
}

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
		File   string         `json:"file"`
		Status builder.Status `json:"status"`
		Output string         `json:"output,omitempty"`
		Links  []string       `json:"links,omitempty"`
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

// json prints the result for programs.
func (r *report) json(c *console) {
	doc := reportJSON{Files: []fileJSON{}, Skipped: make(map[string]int), Errors: append([]string{}, c.failures...)}
	for _, o := range r.done {
		doc.Files = append(doc.Files, fileJSON{File: o.Name, Status: o.Status, Output: o.Target, Links: o.Links, rawNames: rawNamesOf(o.Name, o.Target, o.Links),
			Stats: &o.Stats, Ratio: ratio(o.Stats), Seconds: o.Time.Seconds()})
	}
	for _, o := range r.failed {
		doc.Files = append(doc.Files, fileJSON{File: o.Name, Status: o.Status, rawNames: rawNamesOf(o.Name, "", nil), Seconds: o.Time.Seconds(),
			Error: shown.Error(o.Name, o.Err)})
	}
	for _, s := range r.reasons() {
		doc.Skipped[s.Reason] = s.Count
	}
	sum := r.total()
	doc.Total = &totalJSON{Files: len(r.done), Stats: sum, Ratio: ratio(sum), Seconds: r.elapsed.Seconds()}
	writeJSON(c.out, doc)
}

func writeJSON(w io.Writer, v any) {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	enc.Encode(v) // the writer remembers its errors
}
