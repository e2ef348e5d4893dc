package main

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/ehasm/ehasm/abi"
)

// stepResults are ns per frame by pattern, contender and round.
type stepResults struct {
	Rounds   int
	Stacks   int                             // real ones
	Cache    int64                           // bytes of the last-level cache
	Flush    int64                           // bytes written before each cold walk
	Frames   []int                           // of each real stack
	Run      float64                         // frames in one object before the stack goes to another, mean
	Samples  map[string]map[string][]float64 // by pattern, contender: of each round
	Failures []failure
	Absent   map[string]string // contenders that did not run, and why
}

// failure is a contender that did not find what the reference finds.
type failure struct {
	Contender, Set string
	Bad, Of        int // stacks
	First          string
}

// stepConfig says how much to measure.
type stepConfig struct {
	Rounds     int
	SlowRounds int // of slow contenders on 2,000 stacks
	Cold       int // rounds with cold memory
}

// checkAll has every contender walk every set once and compares with the reference.
func (s *session) checkAll(r *stepResults, off *offline) error {
	seen := map[string]bool{}
	for _, p := range stepPatterns() {
		for _, c := range contenders() {
			if !c.eligible(p) || r.Absent[c.Name] != "" || seen[c.Name+p.Set] {
				continue
			}
			var got [][]uint64
			var err error
			if c.Name == goName {
				got = off.pcs(s.sets[p.Set])
			} else {
				got, err = s.pcs(c.Name, p.Set)
			}
			if errors.Is(err, errRefused) {
				r.Absent[c.Name] = err.Error()
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			// Contenders must agree with the reference before their time means anything.
			f := failure{Contender: c.Name, Set: p.Set, Of: len(got)}
			for i := range got {
				if err := agree(got[i], s.want[p.Set][i]); err != nil {
					if f.Bad == 0 {
						f.First = fmt.Sprintf("stack %d: %v", i, err)
					}
					f.Bad++
				}
			}
			if f.Bad > 0 {
				r.Failures = append(r.Failures, f)
			}
			seen[c.Name+p.Set] = true
		}
	}
	return nil
}

// runSteps measures: in each round all contenders of a pattern in random order.
func (s *session) runSteps(r *stepResults, off *offline, cfg stepConfig, progress func(string)) error {
	r.Rounds = cfg.Rounds
	r.Stacks = len(s.Stacks)
	for _, f := range s.frames {
		r.Frames = append(r.Frames, len(f))
	}
	r.Run = s.meanRun()
	r.Samples = map[string]map[string][]float64{}
	rng := rand.New(rand.NewPCG(7, 7))
	for round := range cfg.Rounds {
		for _, p := range stepPatterns() {
			if p.Mode == "cold" && round >= cfg.Cold {
				continue
			}
			if r.Samples[p.Key] == nil {
				r.Samples[p.Key] = map[string][]float64{}
			}
			list := contenders()
			// so no contender always runs after the same one
			rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			for _, c := range list {
				if !c.eligible(p) || r.Absent[c.Name] != "" || c.Slow && p.isSynthetic() && round >= cfg.SlowRounds {
					continue
				}
				var m measurement
				var err error
				if c.Name == goName {
					m = off.measure(s.sets[p.Set], p.Mode)
				} else {
					m, err = s.measure("run %s %s %s", c.Name, p.Set, p.Mode)
				}
				if err != nil {
					return err
				}
				r.Samples[p.Key][c.Name] = append(r.Samples[p.Key][c.Name], m.perFrame())
			}
		}
		progress(fmt.Sprintf("step: round %d of %d", round+1, cfg.Rounds))
	}
	return nil
}

// meanRun returns the mean number of frames that follow each other in one object.
func (s *session) meanRun() float64 {
	frames, runs := 0, 0
	for i, stack := range s.frames {
		last := -1
		pc := s.snapshots[i].Regs.Reg[abi.RIP]
		for _, f := range stack {
			if m, _ := s.tables.find(pc - 1); m != last { // return addresses: the byte before is in the caller
				runs++
				last = m
			}
			pc = f.PC
		}
		frames += len(stack)
	}
	return float64(frames) / float64(runs)
}
