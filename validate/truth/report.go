//go:build linux && amd64

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"
)

// report is the result of a run.
type report struct {
	Command []string       `json:"command"`
	Steps   int            `json:"steps"`  // instructions executed
	Judged  int            `json:"judged"` // with a known frame, in the objects compared
	PCs     int            `json:"pcs"`    // distinct ones among them
	Seconds float64        `json:"seconds"`
	Ended   string         `json:"ended,omitempty"` // how the program ended, if it did
	Forced  *forcedReport  `json:"forced,omitempty"`
	Objects []objectReport `json:"objects"`
	Drawn   []drawnReport  `json:"drawn,omitempty"` // with --draw
}

// forcedReport holds what --force adds.
type forcedReport struct {
	Functions int `json:"functions"` // at whose entries runs began
	Runs      int `json:"runs"`
	Returned  int `json:"returned"` // with the registers and the stack that a caller expects
	Odd       int `json:"odd"`      // with other registers
	Open      int `json:"open"`     // wrong rows that nothing confirms
}

// objectReport holds the results for one file.
type objectReport struct {
	Path   string        `json:"path"`
	Steps  int           `json:"steps"` // compared in it
	PCs    int           `json:"pcs"`   // distinct link-time addresses
	Tables []tableReport `json:"tables"`
	// Findings are those of check in what ran, with --force.
	Findings []findingReport `json:"findings,omitempty"`
}

// tableReport holds the results of one table on the file.
type tableReport struct {
	Table string         `json:"table"`
	Steps map[string]int `json:"steps"` // by verdict
	Lost  int            `json:"lost"`  // steps whose row makes a callee-saved register undefined
	Wrong []wrongReport  `json:"wrong,omitempty"`
	NoRow []wrongReport  `json:"no_row,omitempty"`
}

// wrongReport is an instruction with a wrong answer, or with none.
type wrongReport struct {
	PC      uint64 `json:"pc"` // link-time
	Place   string `json:"place"`
	Verdict string `json:"verdict"`
	Steps   int    `json:"steps"`
	Text    string `json:"text"`
	Finding string `json:"finding,omitempty"` // of check that names it, with --force: severity and class
}

// newReport returns the results of a tracer.
func newReport(command []string, t *tracer) *report {
	r := &report{Command: command, Steps: t.steps, Judged: t.judged, Seconds: time.Since(t.began).Seconds(),
		Ended: t.ended}
	r.add(t.space)
	return r
}

// add adds the results for objects, those with many steps first.
func (r *report) add(s *space) {
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		o := s.objects[path]
		if o.steps == 0 {
			continue
		}
		r.PCs += len(o.pcs)
		or := objectReport{Path: o.path, Steps: o.steps, PCs: len(o.pcs)}
		for i, name := range s.source.names {
			sum := &o.sums[i]
			tr := tableReport{Table: name, Steps: map[string]int{}, Lost: sum.lost}
			for v, n := range sum.steps {
				if n > 0 {
					tr.Steps[verdict(v).String()] = n
				}
			}
			for _, pc := range slices.Sorted(maps.Keys(sum.wrong)) {
				w := sum.wrong[pc]
				tr.Wrong = append(tr.Wrong, wrongReport{pc, o.place(pc), w.verdict.String(), w.steps, w.text, ""})
			}
			for _, pc := range slices.Sorted(maps.Keys(sum.unknown)) {
				tr.NoRow = append(tr.NoRow, wrongReport{PC: pc, Place: o.place(pc), Verdict: noRow.String(),
					Steps: sum.unknown[pc]})
			}
			or.Tables = append(or.Tables, tr)
		}
		r.Objects = append(r.Objects, or)
	}
	slices.SortStableFunc(r.Objects, func(a, b objectReport) int { return cmp.Compare(b.Steps, a.Steps) })
}

// json writes the report with all instructions.
func (r *report) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// text writes a line per object and table, and the first wrong instructions of each.
func (r *report) text(w io.Writer, listed int) error {
	fmt.Fprintf(w, "%d instructions executed, %d compared at %d addresses, %.0f a second\n",
		r.Steps, r.Judged, r.PCs, float64(r.Steps)/r.Seconds)
	if x := r.Forced; x != nil {
		fmt.Fprintf(w, "%d functions, %d runs, %d returned, %d of them with other registers; %d wrong rows unconfirmed\n",
			x.Functions, x.Runs, x.Returned, x.Odd, x.Open)
	}
	drawnText(w, r.Drawn)
	if r.Ended != "" {
		fmt.Fprintf(w, "the program ended: %s\n", r.Ended)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(tw, "object\ttable\tsteps\taddresses")
	for v := range verdicts {
		fmt.Fprintf(tw, "\t%v", v)
	}
	fmt.Fprintln(tw, "\tlost")
	for _, o := range r.Objects {
		for _, t := range o.Tables {
			fmt.Fprintf(tw, "%s\t%s\t%d\t%d", filepath.Base(o.Path), t.Table, o.Steps, o.PCs)
			for v := range verdicts {
				fmt.Fprintf(tw, "\t%d", t.Steps[v.String()])
			}
			fmt.Fprintf(tw, "\t%d\n", t.Lost)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, o := range r.Objects {
		for _, t := range o.Tables {
			for i, x := range t.Wrong {
				if i == listed {
					fmt.Fprintf(w, "%s: %d more in %s\n", t.Table, len(t.Wrong)-listed, filepath.Base(o.Path))
					break
				}
				fmt.Fprintf(w, "%s: %s: %s, %d steps: %s\n", t.Table, x.Place, x.Verdict, x.Steps, x.Text)
			}
		}
	}
	return nil
}
