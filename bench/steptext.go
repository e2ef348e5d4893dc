package main

import (
	"fmt"
	"io"
	"slices"
)

// printSteps writes ns per frame by contender and pattern as Markdown.
func printSteps(w io.Writer, r *stepResults) {
	fmt.Fprint(w, "| ns per frame: median (min-max) |")
	for _, p := range stepPatterns() {
		fmt.Fprintf(w, " %s |", p.Key)
	}
	fmt.Fprint(w, "\n| --- |")
	for range stepPatterns() {
		fmt.Fprint(w, " --- |")
	}
	fmt.Fprintln(w)
	for _, c := range contenders() {
		if r.Absent[c.Name] != "" {
			continue
		}
		failed := slices.ContainsFunc(r.Failures, func(f failure) bool { return f.Contender == c.Name })
		mark := ""
		if failed {
			mark = " **fails**"
		}
		fmt.Fprintf(w, "| %s%s |", c.What, mark)
		for _, p := range stepPatterns() {
			fmt.Fprintf(w, " %v |", newSpread(r.Samples[p.Key][c.Name]))
		}
		fmt.Fprintln(w)
	}
}
