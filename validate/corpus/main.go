// Command corpus compiles all ELF files below some folders with both layouts and
// proves that the files mean their tables. With --run it also runs the code against
// the table. It compares the rows with readelf's. It prints a line per failure, a
// table of sums, and the ten files of each layout that are largest for their tables,
// and exits with 1 if anything failed.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/prove"
	"github.com/ehasm/ehasm/validate/readelfcmp"
	"github.com/ehasm/ehasm/validate/verify"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit status: 1 if a file failed or none was compiled.
func run(args []string, stdout, stderr io.Writer) int {
	fs := pflag.NewFlagSet("corpus", pflag.ContinueOnError)
	fs.SetOutput(stderr)
	jobs := fs.IntP("jobs", "j", 2, "files at a time")
	readelf := fs.Bool("readelf", true, "compare with readelf")
	execute := fs.Bool("run", true, "run the code, too, at samples of states")
	vdso := fs.Bool("vdso", true, "add the running kernel's vDSO")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return 0
		}
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	begin := time.Now()
	found := find.Find(ctx, fs.Args(), find.Options{VDSO: *vdso})
	s := sweep{readelf: *readelf, run: *execute, out: stdout, skipped: map[string]int{}}
	for _, f := range found.Skipped {
		s.skipped[f.Reason]++
	}
	for _, p := range found.Problems {
		s.wrong("%q: %v", p.Path, p.Err)
	}
	var group sync.WaitGroup
	work := make(chan *find.Input)
	for range *jobs {
		group.Go(func() {
			for in := range work {
				s.file(in)
			}
		})
	}
	// large files first, so that no worker ends alone with one
	slices.SortStableFunc(found.Inputs, func(a, b *find.Input) int { return cmp.Compare(b.Weight, a.Weight) })
	for _, in := range found.Inputs {
		if ctx.Err() != nil {
			break
		}
		work <- in
	}
	close(work)
	group.Wait()
	s.table(time.Since(begin))
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "corpus: interrupted")
		return 1
	case s.failures > 0 || s.built == 0:
		return 1
	}
	return 0
}

// sweep sums up the results of the files.
type sweep struct {
	readelf bool      // compare with readelf
	run     bool      // run the code, too
	out     io.Writer // failures and sums

	mu       sync.Mutex
	failures int
	skipped  map[string]int // by reason
	built    int
	sums     dwarfcfa.Report // of all tables
	ranges   int             // of all tables
	layouts  [2]layoutSums
	compared readelfcmp.Result
	readers  int // files compared with readelf
}

// layoutSums holds the sums of one layout over all files.
type layoutSums struct {
	text, data, steps, pcs, walks       int // bytes of code and data; what was run
	pages, borders, heads, instructions int // what the proofs went through
	proving                             time.Duration
	files                               []sized
}

// sized holds the sizes of one object's files.
type sized struct {
	name         string
	tables, file int64 // bytes
}

// worst is how many files of each kind the sweep lists.
const worst = 10

// sizes prints the files that take the most beside their tables: the large ones, of
// which a fifth more is allowed, by ratio, and the others, of which 8 KB more are.
func (l *layoutSums) sizes(out io.Writer, layout plan.Dispatch) {
	var large, others []sized
	missed := 0
	for _, f := range l.files {
		opt := compile.Layout{Tables: f.tables}
		if f.file > opt.Limit() {
			missed++
		}
		if opt.Bare() {
			others = append(others, f)
		} else {
			large = append(large, f)
		}
	}
	fmt.Fprintf(out, "%s: %d of %d files exceed both a fifth more than the tables and 8 KB more (%d have more than 15 KB of tables)\n", layout, missed, len(l.files), len(large))
	slices.SortFunc(large, func(a, b sized) int { return cmp.Compare(b.ratio(), a.ratio()) })
	slices.SortFunc(others, func(a, b sized) int { return cmp.Compare(b.file-b.tables, a.file-a.tables) })
	for _, f := range large[:min(worst, len(large))] {
		fmt.Fprintf(out, "  %.3f of %d bytes: %s\n", f.ratio(), f.tables, f.name)
	}
	for _, f := range others[:min(worst, len(others))] {
		fmt.Fprintf(out, "  %d bytes and %d: %s\n", f.tables, f.file-f.tables, f.name)
	}
}

// ratio is the file's size over its tables' size.
func (f sized) ratio() float64 { return float64(f.file) / float64(f.tables) }

// wrong counts and prints a failure.
func (s *sweep) wrong(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures++
	fmt.Fprintf(s.out, "WRONG: "+format+"\n", args...)
}

// skip counts a file that is not compiled.
func (s *sweep) skip(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skipped[reason]++
}

// file compiles, proves and compares one object.
func (s *sweep) file(in *find.Input) {
	name := in.Names[0].Path
	r, size, closer, err := in.Open()
	if err != nil {
		s.wrong("%q: %v", name, err)
		return
	}
	defer closer()
	object, err := dwarfcfa.NewFile(name, r, size)
	if err == nil {
		var table *dwarfcfa.Table
		var report *dwarfcfa.Report
		if table, report, err = dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{}); err == nil {
			s.compile(name, object, table, report)
			if s.readelf && in.Data == nil {
				s.compare(in.Path)
			}
			return
		}
	}
	// Files of other kinds are no failures: folders hold all sorts.
	for _, reason := range []error{dwarfcfa.ErrNotELF, dwarfcfa.ErrNotX86_64, dwarfcfa.ErrNotLoadable,
		dwarfcfa.ErrNoUnwindInfo} {
		if errors.Is(err, reason) {
			s.skip(reason.Error())
			return
		}
	}
	s.wrong("%v", err)
}

// compile compiles and proves one table with both layouts.
func (s *sweep) compile(name string, object *dwarfcfa.File, table *dwarfcfa.Table, report *dwarfcfa.Report) {
	for _, e := range report.LostFDEs {
		s.wrong("%v", e)
	}
	for _, n := range report.NotCompiled {
		s.wrong("%q: not compiled: %s", name, n)
	}
	calls := object.Calls() // one for both layouts
	var sums [2]layoutSums
	var files [2]sized
	for i, dispatch := range []plan.Dispatch{plan.DispatchTree, plan.DispatchPacked} {
		l := &sums[i]
		opt := compile.Layout{Dispatch: dispatch, Tables: report.SectionSize + report.HdrSize, Calls: calls}
		src := elfout.Source{Name: filepath.Base(name), BuildID: object.BuildID(), FileSize: object.FileSize()}
		image, code, err := opt.Build(table, src)
		if err != nil {
			s.wrong("%q: %v", name, err)
			return
		}
		files[i] = sized{name, opt.Tables, int64(len(image.Bytes()))}
		begin := time.Now()
		proof, err := prove.Image(image.Bytes(), table)
		if err != nil {
			s.wrong("%q: %s: %v", name, dispatch, err)
			return
		}
		*l = layoutSums{
			text: len(code.Text), data: len(code.Data), proving: time.Since(begin),
			pages: proof.Pages, borders: proof.Borders, heads: proof.Rows, instructions: proof.Instructions,
		}
		if s.run {
			result, err := verify.Image(image.Bytes(), table)
			if err != nil {
				s.wrong("%q: %s: %v", name, dispatch, err)
				return
			}
			l.steps, l.pcs, l.walks = result.Steps, result.PCs, result.Walks
		}
	}
	// Sums are added only once both layouts are proven.
	s.mu.Lock()
	defer s.mu.Unlock()
	s.built++
	s.ranges += len(table.Ranges)
	s.sums.Add(report)
	for i, l := range sums {
		t := &s.layouts[i]
		t.files = append(t.files, files[i])
		t.text += l.text
		t.data += l.data
		t.steps += l.steps
		t.pcs += l.pcs
		t.walks += l.walks
		t.pages += l.pages
		t.borders += l.borders
		t.heads += l.heads
		t.instructions += l.instructions
		t.proving += l.proving
	}
}

// compare compares the entries and rows of one file with readelf's.
func (s *sweep) compare(path string) {
	r, err := readelfcmp.Compare(path)
	if err != nil {
		s.wrong("%q: readelf: %v", path, err)
		return
	}
	for _, d := range r.Differences {
		s.wrong("%q: readelf has it differently: %s", path, d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers++
	s.compared.Entries += r.Entries
	s.compared.Rows += r.Rows
	s.compared.Different += r.Different
}

// table prints the sums.
func (s *sweep) table(took time.Duration) {
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	line := func(what string, n any) { fmt.Fprintf(w, "%s\t%v\n", what, n) }
	line("files compiled and proven", s.built)
	for _, reason := range slices.Sorted(maps.Keys(s.skipped)) {
		line("files skipped: "+reason, s.skipped[reason])
	}
	line("bytes of unwind section and header", s.sums.SectionSize+s.sums.HdrSize)
	line("FDEs", s.sums.Entries.FDEs)
	line("  lost", s.sums.Entries.Lost)
	line("  empty", s.sums.Entries.Empty)
	line("  outside code", s.sums.Entries.OutsideCode)
	line("  starting where another starts", s.sums.Entries.Shadowed)
	line("  running past the code", s.sums.Entries.Clipped)
	line("rows", s.sums.Rows.Ranges)
	line("  not compiled", s.sums.Rows.NotCompiled)
	line("row ranges", s.ranges)
	line("stretches of padding filled", s.sums.Rows.FilledGaps)
	line("distinct rows with a popped register", s.sums.Rows.PoppedRules)
	for i, d := range []plan.Dispatch{plan.DispatchTree, plan.DispatchPacked} {
		l := s.layouts[i]
		line(d.String()+": bytes of code and data", l.text+l.data)
		line("  ratio", fmt.Sprintf("%.3f", float64(l.text+l.data)/float64(max(1, s.sums.SectionSize+s.sums.HdrSize))))
		line("  pages proven", l.pages)
		line("  borders", l.borders)
		line("  heads of rows", l.heads)
		line("  instructions run on terms", l.instructions)
		line("  time of the proofs", l.proving.Round(time.Millisecond))
		if s.run {
			line("  pcs run", l.pcs)
			line("  steps compared", l.steps)
			line("  walks compared", l.walks)
		}
	}
	if s.readelf {
		line("files compared with readelf", s.readers)
		line("  entries", s.compared.Entries)
		line("  rows", s.compared.Rows)
		line("  entries that differ", s.compared.Different)
	}
	line("wrong", s.failures)
	line("time", took.Round(time.Second))
	w.Flush()
	for i, d := range []plan.Dispatch{plan.DispatchTree, plan.DispatchPacked} {
		s.layouts[i].sizes(s.out, d)
	}
}
