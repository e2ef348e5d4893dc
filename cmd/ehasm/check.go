package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sort"
	"strings"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/check"
	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/internal/files/atomicfile"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/outfile"
	"github.com/ehasm/ehasm/internal/files/shown"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"
)

const checkHelp = `Compare the unwind tables of ELF files with their code.

Usage:
  ehasm check [flags] FILE...

A FILE is an executable, a shared object or a relocatable file (.o). Each function is interpreted; at each instruction
the row of .eh_frame or .debug_frame is compared with the places of the CFA, the return address and the caller's
registers. A finding covers consecutive instructions that are wrong for the same reason:

  cfa        the CFA is elsewhere: stacks end or go on wrongly (error)
  return     the return address is not where the row says (error)
  ret        at a ret the stack pointer is not at the return address (error)
  saved      the slot does not hold the register (warning)
  clobbered  the row says that the register is unchanged, but it is changed (warning)
  border     a row begins inside an instruction (note)
  no-row     code that is called or jumped to has no row (note)

A row off by one instruction is also a note, and so are intended rows of a change of context, such as longjmp's.
Instructions that cannot be judged are counted by reason. Exit status: 0 nothing found, 1 findings or failures, 2 wrong
usage.
`

const checkMore = `Examples:
  ehasm check /lib/x86_64-linux-gnu/libc.so.6
  ehasm check -v foo.o                        with the instructions, the computed and the stated row
  ehasm check --sarif *.o > check.sarif       for services that show findings of analyses
  ehasm check --write-baseline known libfoo.so && ehasm check --baseline known libfoo.so
`

type checkOptions struct {
	verbose, json, sarif, notes bool
	workers                     int
	failOn                      check.Severity
	source                      dwarfcfa.Source
	baseline                    map[string]bool
}

func checkVerb() verb {
	v := verb{name: "check", brief: "compare unwind tables with the code", help: checkHelp, more: checkMore}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		var opt checkOptions
		fs.BoolVarP(&opt.verbose, "verbose", "v", false, "show the instructions around each finding, with the computed and the stated row")
		fs.BoolVar(&opt.json, "json", false, "print JSON, an array with an object for each file")
		fs.BoolVar(&opt.sarif, "sarif", false, "print SARIF 2.1.0")
		fs.BoolVar(&opt.notes, "notes", false, "show notes too")
		declareJobs(fs, &opt.workers, "analyse `N` functions at a time")
		failOn := fs.String("fail-on", "warning", "exit with status 1 from `SEVERITY` on: error, warning or note")
		source := fs.String("source", "auto", "judge `SECTION`: eh_frame, debug_frame, sframe, or auto: the first two")
		baseline := fs.String("baseline", "", "leave out the findings listed in `FILE`")
		write := fs.String("write-baseline", "", "list the findings in `FILE`, with those that --baseline accepts, for a later --baseline")
		return func(ctx context.Context, paths []string, c *console) int {
			if len(paths) == 0 {
				return v.misuse(c, errors.New("no file given"))
			}
			if opt.json && opt.sarif {
				return v.misuse(c, errors.New("--json and --sarif exclude each other"))
			}
			err := checkJobs(opt.workers)
			if err != nil {
				return v.misuse(c, err)
			}
			if err = outfile.Distinct(paths, *write); err != nil {
				return v.misuse(c, fmt.Errorf("--write-baseline: %w", err))
			}
			if opt.source, err = dwarfcfa.ParseSource(*source); err != nil {
				return v.misuse(c, fmt.Errorf("--source: %w", err))
			}
			opt.failOn = check.Severity(*failOn)
			if !slices.Contains([]check.Severity{check.SeverityError, check.SeverityWarning, check.SeverityNote}, opt.failOn) {
				return v.misuse(c, fmt.Errorf("--fail-on: unknown severity %q: want error, warning or note", *failOn))
			}
			if *baseline != "" {
				known, err := readBaseline(*baseline)
				if err != nil {
					c.fail(*baseline, err)
					return exitFailed
				}
				opt.baseline = known
			}
			return runCheck(paths, opt, *write, c)
		}
	}
	return v
}

// checked is the result of check for a file.
type checked struct {
	File string `json:"file"`
	*check.Report
	Accepted int `json:"accepted,omitempty"` // findings of the baseline
	accepted []string
	lines    map[uint64][]check.Line
}

func runCheck(paths []string, opt checkOptions, write string, c *console) int {
	// The memory of a check, mostly decoded code, hardly grows after the start: the default of 100 % would allow as
	// much garbage again for no gain.
	defer debug.SetGCPercent(debug.SetGCPercent(8))
	var all []checked
	code := exitDone
	for _, path := range paths {
		r, err := checkFile(path, opt, c)
		if err != nil {
			c.fail(path, err)
			continue
		}
		for i := range r.Findings {
			if rank(r.Findings[i].Severity) >= rank(opt.failOn) {
				code = exitFailed
			}
		}
		if !opt.json && !opt.sarif {
			r.print(c, opt)
			r.Report, r.lines = &check.Report{Findings: r.Findings}, nil
		}
		all = append(all, r)
	}
	if write != "" {
		if err := writeBaseline(write, all); err != nil {
			c.fail(write, err)
		} else {
			code = exitDone // they are accepted
		}
	}
	switch {
	case opt.json:
		if all == nil {
			all = []checked{}
		}
		writeJSON(c.out, all)
	case opt.sarif:
		files := make([]check.File, len(all))
		for i := range all {
			files[i] = check.File{Name: all[i].File, Findings: all[i].Findings}
		}
		writeJSON(c.out, check.SARIF(compile.Release, files, findingID))
	}
	return code
}

func rank(s check.Severity) int {
	switch s {
	case check.SeverityError:
		return 2
	case check.SeverityWarning:
		return 1
	}
	return 0
}

func checkFile(path string, opt checkOptions, c *console) (checked, error) {
	r, size, done, err := find.OpenFile(path)
	if err != nil {
		return checked{}, err
	}
	defer done()
	s, err := check.OpenSource(path, r, size, opt.source)
	if err != nil {
		return checked{}, err
	}
	res := checked{File: path, lines: map[uint64][]check.Line{}}
	run := check.Options{Workers: opt.workers, Progress: func(int, int) { c.advanceBy(16) }}
	if opt.verbose {
		run.Listing = func(_ int, lines []check.Line) {
			if len(lines) > 0 {
				res.lines[lines[0].PC] = lines
			}
		}
	}
	c.newBar(int64(2*len(s.Functions)), "checking "+filepath.Base(path), progressbar.OptionSetItsString("functions"))
	res.Report = s.Run(run)
	c.stopBar()
	nameFindings(res.Findings, path, r)
	res.Findings = slices.DeleteFunc(res.Findings, func(f check.Finding) bool {
		if id := findingID(path, &f); opt.baseline[id] {
			res.Accepted++
			res.accepted = append(res.accepted, id)
			return true
		}
		return false
	})
	if res.Findings == nil {
		res.Findings = []check.Finding{}
	}
	return res, nil
}

// nameFindings names, from the debug file, the findings that the file's own
// symbols do not name.
func nameFindings(fs []check.Finding, path string, r io.ReaderAt) {
	if !slices.ContainsFunc(fs, func(f check.Finding) bool { return f.Function == "" }) {
		return
	}
	table, err := symbols.FromELF(r, filepath.Dir(path), nil, []string{"/usr/lib/debug"})
	if err != nil {
		return // without symbols findings have addresses
	}
	for i := range fs {
		if s := table.Find(fs[i].PC); s != nil && fs[i].Function == "" {
			fs[i].Function = s.Name
		}
	}
}

func (r *checked) print(c *console, opt checkOptions) {
	name := shown.Name(filepath.Base(r.File))
	counts := map[check.Severity]int{}
	for i := range r.Findings {
		f := &r.Findings[i]
		counts[f.Severity]++
		if f.Severity == check.SeverityNote && !opt.notes {
			continue
		}
		fmt.Fprintf(c.out, "%s: %s: %s: %s\n", name, f.Severity, shown.Text(f.Place()), shown.Text(f.Message()))
		if opt.verbose {
			r.listing(c, f)
		}
	}
	pct := func(n, of int) float64 { return 100 * float64(n) / float64(max(of, 1)) }
	fmt.Fprintf(c.out, "%s: %d FDEs, %d instructions, %.2f %% judged (%.2f %% beginning from a row), of these %.4f %% agree; %d errors, %d warnings, %d notes",
		name, r.FDEs, r.Instructions, pct(r.Judged, r.Instructions), pct(r.Report.Assumed, r.Judged), pct(r.Agree, r.Judged), counts[check.SeverityError], counts[check.SeverityWarning], counts[check.SeverityNote])
	if r.Accepted > 0 {
		fmt.Fprintf(c.out, ", %d accepted by the baseline", r.Accepted)
	}
	fmt.Fprintln(c.out)
	reasons := make([]string, 0, len(r.NotJudged))
	for k := range r.NotJudged {
		reasons = append(reasons, k)
	}
	sort.Slice(reasons, func(i, j int) bool {
		return r.NotJudged[reasons[i]] > r.NotJudged[reasons[j]] || r.NotJudged[reasons[i]] == r.NotJudged[reasons[j]] && reasons[i] < reasons[j]
	})
	for _, k := range reasons {
		fmt.Fprintf(c.out, "  not judged: %d, %s\n", r.NotJudged[k], k)
	}
	if r.LostFDEs > 0 {
		fmt.Fprintf(c.out, "  %d FDEs can't be read\n", r.LostFDEs)
	}
	if r.OutsideFDEs > 0 {
		fmt.Fprintf(c.out, "  %d FDEs begin outside the file's code, or cover more than 64 MB: not judged\n", r.OutsideFDEs)
	}
	if r.BadLSDAs > 0 {
		fmt.Fprintf(c.out, "  %d language-specific data areas can't be read; their landing pads begin from their rows\n", r.BadLSDAs)
	}
}

// around is how many instructions are shown before and after the first wrong one.
const around = 6

func (r *checked) listing(c *console, f *check.Finding) {
	for _, lines := range r.lines {
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
			if len(text) > 40 {
				text = text[:37] + "..."
			}
			fmt.Fprintf(c.out, "  %s %8x  %-40s  %-48s | %s\n", mark, l.PC, text, l.Actual, l.Claimed)
		}
		return
	}
}

// baselineFields is the number of fields of a finding in a baseline, with tabs between them.
const baselineFields = 6

// findingID returns an identifier of a finding that stays the same if the file is built again with other addresses; a function
// without a name is known by its address.
func findingID(path string, f *check.Finding) string {
	function := f.Function
	if function == "" {
		function = fmt.Sprintf("%#x", f.Start)
	}
	fields := [baselineFields]string{filepath.Base(path), string(f.Kind), fmt.Sprintf("%s+%#x", function, f.PC-f.Start), f.Register, f.Actual, f.Claimed}
	for i, s := range fields {
		fields[i] = strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return '?'
			}
			return r
		}, s)
	}
	return strings.Join(fields[:], "\t")
}

func readBaseline(path string) (map[string]bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	known := map[string]bool{}
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	n := 0
	for ; sc.Scan(); n++ {
		t := sc.Text()
		if t == "" || t[0] == '#' {
			continue
		}
		if strings.Count(t, "\t") != baselineFields-1 {
			return nil, fmt.Errorf("line %d: no finding that --write-baseline wrote", n+1)
		}
		known[t] = true
	}
	if errors.Is(sc.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d: no finding that --write-baseline wrote", n+1)
	}
	return known, sc.Err()
}

func writeBaseline(path string, all []checked) error {
	var b strings.Builder
	b.WriteString("# findings of ehasm check that are accepted: file, kind, place, register, what the code does, what the table says\n")
	for i := range all {
		for k := range all[i].Findings {
			b.WriteString(findingID(all[i].File, &all[i].Findings[k]) + "\n")
		}
		for _, id := range all[i].accepted {
			b.WriteString(id + "\n")
		}
	}
	return atomicfile.WriteOutput(path, []byte(b.String()), atomicfile.PermText)
}
