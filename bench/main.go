// Command bench measures eh_elfs beside other unwinders. README.md tells how to
// run it and what it measures.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

// synthetic stacks lie at these addresses of the driver.
const (
	rowsBase  = 0x1000_0000_0000
	bytesBase = 0x1100_0000_0000
)

type config struct {
	dir   string
	quick bool
	only  string
}

func main() {
	var cfg config
	flag.StringVar(&cfg.dir, "out", "out", "folder for everything that is written")
	flag.BoolVar(&cfg.quick, "quick", false, "fewer rounds and objects")
	flag.StringVar(&cfg.only, "only", "", "one part: step, count, random, size, build, growth or original")
	flag.Parse()
	if err := run(cfg); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(cfg config) error {
	begin := time.Now()
	progress := func(s string) { fmt.Fprintf(os.Stderr, "%6.1fs %s\n", time.Since(begin).Seconds(), s) }
	s, err := openSession(cfg.dir, nil)
	if err != nil {
		return err
	}
	defer s.close()
	progress(fmt.Sprintf("%d stacks, %d objects", len(s.Stacks), len(s.Modules)))
	for _, n := range s.notes {
		progress("note: " + n)
	}
	if err := s.addSynthetic("rows2000", s.fast, synthOptions{Stacks: 2000, Frames: 30, Base: rowsBase, Seed: 1}); err != nil {
		return err
	}
	if err := s.addSynthetic("bytes2000", s.fast, synthOptions{Stacks: 2000, Frames: 30, Base: bytesBase, ByByte: true, Seed: 2}); err != nil {
		return err
	}
	off, err := newOffline(s, "tree")
	if err != nil {
		return err
	}
	r := &stepResults{Absent: map[string]string{}}
	if err := s.checkAll(r, off); err != nil {
		return err
	}
	for _, f := range r.Failures {
		progress(fmt.Sprintf("FAIL %+v", f))
	}
	for c, why := range r.Absent {
		progress("absent: " + c + ": " + why)
	}
	sc := stepConfig{Rounds: 12, SlowRounds: 3, Cold: 10}
	if cfg.quick {
		sc = stepConfig{Rounds: 5, SlowRounds: 1, Cold: 2}
	}
	if err := s.runSteps(r, off, sc, progress); err != nil {
		return err
	}
	printSteps(os.Stdout, r)
	return nil
}
