//go:build linux && amd64

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
)

// total is the sum of several runs for one object and table.
type total struct {
	object, table string
	steps         map[string]int
	lost          int
	wrong         map[uint64]wrongReport
}

// sum reads reports and writes a line per object and table, and a line for all objects;
// then the wrong instructions by function, if they are asked for.
func sum(w io.Writer, paths []string, listed int) error {
	type key struct{ object, table string }
	totals := map[key]*total{}
	programs, executed := 0, 0
	var drawn []drawnReport
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var r report
		if err := json.Unmarshal(data, &r); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		programs++
		executed += r.Steps
		drawn = append(drawn, r.Drawn...)
		for _, o := range r.Objects {
			for _, t := range o.Tables {
				for _, k := range []key{{o.Path, t.Table}, {"all objects", t.Table}} {
					s := totals[k]
					if s == nil {
						s = &total{object: k.object, table: k.table, steps: map[string]int{},
							wrong: map[uint64]wrongReport{}}
						totals[k] = s
					}
					s.add(&t, k.object == o.Path)
				}
			}
		}
	}
	list := slices.SortedFunc(maps.Values(totals), func(a, b *total) int {
		return cmp.Or(cmp.Compare(b.all(), a.all()), cmp.Compare(a.object, b.object), cmp.Compare(a.table, b.table))
	})
	fmt.Fprintf(w, "%d programs, %d instructions executed\n", programs, executed)
	drawnText(w, drawn)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(tw, "object\ttable\tsteps")
	for v := range verdicts {
		fmt.Fprintf(tw, "\t%v", v)
	}
	fmt.Fprintln(tw, "\tlost\twrong addresses")
	for _, t := range list {
		fmt.Fprintf(tw, "%s\t%s\t%d", filepath.Base(t.object), t.table, t.all())
		for v := range verdicts {
			fmt.Fprintf(tw, "\t%d", t.steps[v.String()])
		}
		fmt.Fprintf(tw, "\t%d\t%d\n", t.lost, len(t.wrong))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, t := range list {
		for i, pc := range slices.Sorted(maps.Keys(t.wrong)) {
			if i == listed {
				fmt.Fprintf(w, "%s: %d more in %s\n", t.table, len(t.wrong)-listed, filepath.Base(t.object))
				break
			}
			x := t.wrong[pc]
			fmt.Fprintf(w, "%s: %s: %s, %d steps: %s\n", t.table, x.Place, x.Verdict, x.Steps, x.Text)
		}
	}
	return nil
}

// add adds a run; addresses says that they are of one file, so that equal ones are one place.
func (s *total) add(t *tableReport, addresses bool) {
	for v, n := range t.Steps {
		s.steps[v] += n
	}
	s.lost += t.Lost
	if !addresses {
		return
	}
	for _, x := range t.Wrong {
		if old, ok := s.wrong[x.PC]; ok {
			x.Steps += old.Steps
		}
		s.wrong[x.PC] = x
	}
}

// all returns the number of steps.
func (s *total) all() (n int) {
	for _, steps := range s.steps {
		n += steps
	}
	return n
}
