// Command agree compares the user frames that ehasm script and perf script find
// for the samples of recordings:
//
//	agree -ehasm PATH [-builds DIR] [-show N] perf.data...
//
// With the perfs that perf-build.sh makes in DIR it says of each sample in which
// the installed perf differs which repair of perf makes it agree, and how many
// samples agree with perf's other unwinder, libdw.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// repair is a thing that goes wrong in perf with libunwind: a word that
// perf-build.sh explains.
type repair struct{ word, what string }

var repairs = []repair{
	{"word", "last word of the stack copy"},
	{"exec", "stale mappings after exec"},
	{"popped", "popped registers"},
	{"guess", "stack pointer after a guess"},
	{"jit", "code of no file"},
}

// result is the counts of one recording.
type result struct {
	name                     string
	samples, same            int
	sameGaps                 int // samples that agree with --frame-pointers=gaps
	deeper, shallower, other int
	frames, lines            int   // frames of the samples that agree; those whose line is the same
	fixed                    []int // samples that agree with the repairs up to this one, and not before
	left                     int   // samples that still differ with all repairs
	sameLibdw                int   // samples that agree with perf's libdw
	perfOutermost            int   // stacks that end in an outermost frame
	ourOutermost, onlyPerf   int
}

func main() {
	ehasm := flag.String("ehasm", "ehasm", "path of ehasm")
	builds := flag.String("builds", "", "folder of perf-build.sh")
	show := flag.Int("show", 0, "print this many samples that no repair explains")
	flag.Parse()
	var all []*result
	for _, path := range flag.Args() {
		c := comparison{data: path, ehasm: *ehasm, builds: *builds, show: *show}
		r, err := c.run()
		if err != nil {
			fmt.Fprintf(os.Stderr, "agree: %s: %v\n", path, err)
			os.Exit(1)
		}
		r.name = strings.TrimSuffix(filepath.Base(path), ".data")
		all = append(all, r)
	}
	report(all, *builds != "")
}

func percent(n, of int) string {
	if of == 0 {
		return "-"
	}
	if n == of {
		return "100 %"
	}
	return fmt.Sprintf("%.2f %%", float64(100*n)/float64(of))
}

func report(all []*result, builds bool) {
	fmt.Println("| recording | samples | same frames | ehasm deeper | shallower | other | lines of these that are the same | same with --frame-pointers=gaps |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, r := range all {
		fmt.Printf("| %s | %d | %s | %d | %d | %d | %s | %s |\n", r.name, r.samples, percent(r.same, r.samples), r.deeper, r.shallower, r.other,
			percent(r.lines, r.frames), percent(r.sameGaps, r.samples))
	}
	fmt.Print("\nStacks that end in an outermost frame:\n\n")
	fmt.Println("| recording | perf | ehasm | in perf alone |")
	fmt.Println("| --- | --- | --- | --- |")
	for _, r := range all {
		fmt.Printf("| %s | %d | %d | %d |\n", r.name, r.perfOutermost, r.ourOutermost, r.onlyPerf)
	}
	if !builds {
		return
	}
	fmt.Print("\nSamples that differ, by the repair of perf that makes them agree:\n\n| recording | differ |")
	for _, f := range repairs {
		fmt.Printf(" %s |", f.what)
	}
	fmt.Print(" left | same, repaired | same, perf with libdw |\n| --- | --- |" + strings.Repeat(" --- |", len(repairs)) + " --- | --- | --- |\n")
	for _, r := range all {
		fmt.Printf("| %s | %d |", r.name, r.samples-r.same)
		for _, n := range r.fixed {
			fmt.Printf(" %d |", n)
		}
		fmt.Printf(" %d | %s | %s |\n", r.left, percent(r.samples-r.left, r.samples), percent(r.sameLibdw, r.samples))
	}
}
