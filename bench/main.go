// Command bench compares eh_elfs with other unwinders. README.md says how to
// run it and what it measures.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Addresses of the driver at which synthetic stacks lie: below what valgrind
// leaves to programs.
const (
	rowsBase   = 0x0600_0000_0000
	bytesBase  = 0x0610_0000_0000
	growthBase = 0x0620_0000_0000
)

// compileLimit bounds every compiler and every build.
const compileLimit = 300 * time.Second

// largestGrowth bounds .eh_frame of the objects that growth is measured with.
const largestGrowth = 8 << 20

// config is what the command line asks for.
type config struct {
	dir, sources string    // everything is written to dir; sources has the driver's C files
	roots        []string  // folders to choose objects from
	quick        bool      // fewer rounds and objects
	only         string    // a part; "": all but perf
	rounds       int       // of the step benchmark
	begin        time.Time // start of the program, for progress
}

// wants reports whether a part should run.
func (c config) wants(part string) bool { return c.only == "" && part != partPerf || c.only == part }

// partPerf is the part about recordings, which runs only by itself.
const partPerf = "perf"

// progress prints a line with the seconds since the start to standard error.
func (c config) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs %s\n", time.Since(c.begin).Seconds(), fmt.Sprintf(format, args...))
}

// main reads the flags and runs the wanted parts. A child that measures costs is the same program.
func main() {
	// The child that runs another command and reports what it took.
	if len(os.Args) > 3 && os.Args[1] == costVerb {
		os.Exit(costMain(os.Args[2:]))
	}
	cfg := config{begin: time.Now()}
	var roots string
	flag.StringVar(&cfg.dir, "out", "out", "`folder` for everything that is written")
	flag.StringVar(&cfg.sources, "driver", "driver", "`folder` of the driver's sources")
	flag.StringVar(&roots, "roots", "/usr,/opt,/root", "`folders` to choose objects from")
	flag.BoolVar(&cfg.quick, "quick", false, "fewer rounds and objects, no counting")
	flag.StringVar(&cfg.only, "only", "", "one `part`: step, growth, formats, count, size, build or perf")
	flag.IntVar(&cfg.rounds, "rounds", 12, "rounds of the step benchmark")
	flag.Parse()
	cfg.roots = strings.Split(roots, ",")
	if cfg.quick {
		cfg.rounds = min(cfg.rounds, 5)
	}
	if err := run(cfg); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// results holds all measurements: out/results.json.
type results struct {
	Machine machine
	Quick   bool
	Seconds float64      // of the whole run
	Notes   []string     // what was left out, and why
	Step    *stepResults // nil: not measured
	Growth  []growthResult
	Count   *countResults
	Size    []sizeResult
	SFrame  *sframeResult
	Formats []formatsResult
	Build   []buildResult
	Perf    *perfResults
}

// run does the wanted parts and writes their results.
func run(cfg config) error {
	r := &results{Machine: readMachine(cfg.dir), Quick: cfg.quick}
	// Recordings have their own files of results.
	if cfg.wants(partPerf) {
		var err error
		if r.Perf, err = measurePerf(cfg); err != nil {
			return err
		}
		r.Seconds = time.Since(cfg.begin).Seconds()
		return writePerf(cfg, r)
	}
	var chosen []object
	// Finding objects takes a while: only for parts that use them.
	if cfg.wants("growth") || cfg.wants("size") || cfg.wants("build") {
		chosen = cfg.objects()
	}

	// These need the driver; the others only files.
	if cfg.wants("step") || cfg.wants("growth") || cfg.wants("formats") {
		if err := measureSpeed(cfg, r, chosen); err != nil {
			return err
		}
	}
	if cfg.wants("count") && !cfg.quick {
		c, err := measureCounts(cfg.dir)
		if err != nil {
			return fmt.Errorf("count: %w", err)
		}
		r.Count = &c
		cfg.progress("instructions counted")
	}
	if cfg.wants("size") {
		for _, o := range chosen {
			r.Size = append(r.Size, measureSize(o))
			cfg.progress("size: %s", o.Path)
		}
		sf := measureSFrame(cfg.dir, cfg.sources)
		r.SFrame = &sf
	}
	if cfg.wants("build") {
		for _, o := range chosen {
			b := measureBuild(cfg.dir, o)
			r.Build = append(r.Build, b)
			cfg.progress("build: %s %.2f s", o.Path, b.Wall)
		}
	}
	r.Seconds = time.Since(cfg.begin).Seconds()
	return writeResults(cfg, r)
}

// objects returns the files that sizes, builds and growth are measured with.
func (c config) objects() []object {
	all, n := findObjects(c.roots), 20
	if c.quick {
		// Large objects are left out.
		all = slices.DeleteFunc(all, func(o object) bool { return o.EHFrame > 4<<20 })
		n = 8
	}
	chosen := choose(all, n)
	c.progress("%d objects found, %d chosen", len(all), len(chosen))
	return chosen
}

// writeResults writes results.json, the plots and report.md, and prints the report.
func writeResults(cfg config, r *results) error {
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(cfg.dir, "results.json"), b, 0o666); err != nil {
		return err
	}
	if err := writePlots(cfg.dir, r); err != nil {
		return fmt.Errorf("plots: %w", err)
	}
	text := reportText(r)
	if err := os.WriteFile(filepath.Join(cfg.dir, "report.md"), []byte(text), 0o666); err != nil {
		return err
	}
	fmt.Print(text)
	return nil
}

// writePerf writes the results about recordings, separately from other parts.
func writePerf(cfg config, r *results) error {
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(cfg.dir, "perf.json"), b, 0o666); err != nil {
		return err
	}
	text := reportText(r)
	fmt.Print(text)
	return os.WriteFile(filepath.Join(cfg.dir, "perf.md"), []byte(text), 0o666)
}

// setUp makes the synthetic stacks.
func (s *session) setUp() error {
	// Each row as often as any other.
	if err := s.addSynthetic("rows2000", s.fast, synthOptions{Stacks: 2000, Frames: 30, Base: rowsBase,
		Seed: 1}); err != nil {
		return err
	}
	// Each byte of code as often as any other.
	return s.addSynthetic("bytes2000", s.fast, synthOptions{Stacks: 2000, Frames: 30, Base: bytesBase, ByByte: true,
		Seed: 2})
}

// measureSpeed does the parts that need the driver.
func measureSpeed(cfg config, r *results, chosen []object) error {
	// The driver runs without a wrapper here.
	s, err := openSession(cfg.dir, nil)
	if err != nil {
		return err
	}
	defer s.close()
	cfg.progress("%d stacks, %d objects loaded", len(s.Stacks), len(s.Modules))
	if err := s.setUp(); err != nil {
		return err
	}
	cfg.progress("synthetic stacks made")
	if cfg.wants("step") {
		if err := measureSteps(cfg, r, s); err != nil {
			return err
		}
	}
	if cfg.wants("growth") {
		if err := measureGrowth(cfg, r, s, chosen); err != nil {
			return fmt.Errorf("growth: %w", err)
		}
		cfg.progress("growth done")
	}
	if cfg.wants("formats") {
		if r.Formats, err = s.measureFormats(min(cfg.rounds, 10)); err != nil {
			return fmt.Errorf("formats: %w", err)
		}
		cfg.progress("formats done")
	}
	r.Notes = s.notes
	return nil
}

// measureGrowth takes every second object, by size.
func measureGrowth(cfg config, r *results, s *session, chosen []object) (err error) {
	var modules []int
	for i, o := range chosen {
		// Every second one, but always the last below the bound.
		if o.EHFrame > largestGrowth || i%2 == 1 && (i+1 < len(chosen) && chosen[i+1].EHFrame <= largestGrowth) {
			continue
		}
		mi, err := s.fakeModule(o.Path)
		if err != nil {
			s.note("growth: %s left out: %v", o.Path, err)
			continue
		}
		modules = append(modules, mi)
	}
	r.Growth, err = s.measureGrowth(modules, min(cfg.rounds, 10))
	return err
}

// measureSteps does the step benchmark.
func measureSteps(cfg config, r *results, s *session) error {
	off, err := newOffline(s, "tree")
	if err != nil {
		return err
	}
	r.Step = &stepResults{Absent: map[string]string{}, Cache: s.Cache, Flush: s.Flush}
	// Wrong answers are found before anything is timed.
	if err := s.checkAll(r.Step, off); err != nil {
		return err
	}
	for _, f := range r.Step.Failures {
		cfg.progress("FAILS: %+v", f)
	}
	// Slow contenders run in fewer rounds.
	sc := stepConfig{Rounds: cfg.rounds, SlowRounds: 3, Cold: 10}
	if cfg.quick {
		sc.SlowRounds, sc.Cold = 1, 3
	}
	return s.runSteps(r.Step, off, sc, func(text string) { cfg.progress("%s", text) })
}
