// Command agree compares the user frames that ehasm script and perf script find
// for the samples of recordings:
//
//	agree -ehasm PATH [-show N] perf.data...
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// result is the counts of one recording.
type result struct {
	name                     string
	samples, same            int
	sameGaps                 int // samples that agree with --frame-pointers=gaps
	deeper, shallower, other int // how ehasm's stack relates to perf's, where they differ
	frames, lines            int // frames of the samples that agree; those whose line is the same
	perfOutermost            int // stacks that end in an outermost frame
	ourOutermost, onlyPerf   int // in ehasm's; in perf's alone
}

// main compares the recordings named on the command line and prints the tables.
func main() {
	ehasm := flag.String("ehasm", "ehasm", "path of ehasm")
	show := flag.Int("show", 0, "print this many samples of each recording that differ")
	flag.Parse()
	// Results are printed at the end, in one table.
	var all []*result
	for _, path := range flag.Args() {
		c := comparison{data: path, ehasm: *ehasm, show: *show}
		r, err := c.run()
		if err != nil {
			fmt.Fprintf(os.Stderr, "agree: %s: %v\n", path, err)
			os.Exit(1)
		}
		r.name = strings.TrimSuffix(filepath.Base(path), ".data")
		all = append(all, r)
	}
	report(all)
}

// percent writes n of of with two digits; only a full count is "100 %".
func percent(n, of int) string {
	if of == 0 {
		return "-"
	}
	if n == of {
		return "100 %"
	}
	return fmt.Sprintf("%.2f %%", float64(100*n)/float64(of))
}

// report writes both tables in Markdown.
func report(all []*result) {
	fmt.Println("| recording | samples | same frames | ehasm deeper | shallower | other | lines of these that are the same | same with --frame-pointers=gaps |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, r := range all {
		fmt.Printf("| %s | %d | %s | %d | %d | %d | %s | %s |\n", r.name, r.samples, percent(r.same, r.samples), r.deeper,
			r.shallower, r.other,
			percent(r.lines, r.frames), percent(r.sameGaps, r.samples))
	}
	fmt.Print("\nStacks that end in an outermost frame:\n\n")
	fmt.Println("| recording | perf | ehasm | in perf alone |")
	fmt.Println("| --- | --- | --- | --- |")
	for _, r := range all {
		fmt.Printf("| %s | %d | %d | %d |\n", r.name, r.perfOutermost, r.ourOutermost, r.onlyPerf)
	}
}
