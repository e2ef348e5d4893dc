package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/ehasm/ehasm/asmgen/plan"
)

// unwinderNames are in the order of the report; the first is what targets are
// about, and whose frames the others are compared with. From the third on they
// are programs of perf/.
var unwinderNames = []string{"ehasm", "ehasm-tree", "libunwind", "libunwind-nosig", "libdw", "libdw-per-sample"}

// slowUnwinder takes part in the first pass only: it would take most of the time.
const slowUnwinder = "libdw-per-sample"

// Where the stacks lie when they are unwound: in a batch that has just been
// copied from the file, as ehasm script has them, or in the file, as perf has
// them.
const (
	inBatch = "batch"
	inFile  = "file"
)

// unwindResult is what unwinding the samples of a recording took.
type unwindResult struct {
	Name, What string
	Samples    int
	Frames     int64 // by the first unwinder
	StackBytes int64
	Unwinders  map[string]*unwinderResult
}

// unwinderResult is what one unwinder took for a recording.
type unwinderResult struct {
	Cold      float64              // ns per frame of the first pass, less compiling
	Compile   float64              // seconds that went into compiling
	PerFrame  map[string][]float64 // by where the stacks lie: ns, of each round
	Frames    int64
	Agreement agreement
}

// startUnwinders starts all unwinders on a recording.
func startUnwinders(cfg config, rec recording) (map[string]unwinder, *ours, error) {
	path := filepath.Join(cfg.dir, "perf", rec.Name+".flat")
	packed, err := newOurs(plan.DispatchPacked, rec.path, path)
	if err != nil {
		return nil, nil, err
	}
	tree, err := newOurs(plan.DispatchTree, rec.path, path+".tree")
	if err != nil {
		return nil, nil, err
	}
	all := map[string]unwinder{unwinderNames[0]: packed, unwinderNames[1]: tree}
	for _, n := range unwinderNames[2:] {
		if all[n], err = startRival(filepath.Join(cfg.dir, "perf", n), path); err != nil {
			return nil, nil, err
		}
	}
	return all, packed, nil
}

// measureUnwind has all unwinders unwind the samples of a recording, in random
// order within a round.
func measureUnwind(cfg config, rec recording, rounds int) (*unwindResult, error) {
	all, first, err := startUnwinders(cfg, rec)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, u := range all {
			u.close()
		}
	}()
	res := &unwindResult{Name: rec.Name, What: rec.What, Samples: len(first.flat.samples),
		Unwinders: map[string]*unwinderResult{}}
	for _, s := range first.flat.samples {
		res.StackBytes += int64(len(s.memory))
	}
	var want [][]uint64
	for _, n := range unwinderNames {
		u, got, err := firstPass(all[n])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n, err)
		}
		if want == nil {
			want, res.Frames = got, u.Frames
		}
		u.Agreement = compareFrames(want, got)
		res.Unwinders[n] = u
	}
	for range rounds {
		for _, i := range rand.Perm(len(unwinderNames)) {
			n := unwinderNames[i]
			if n == slowUnwinder {
				continue
			}
			for _, mode := range []string{inFile, inBatch} {
				t, err := all[n].pass(mode)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", n, err)
				}
				u := res.Unwinders[n]
				u.PerFrame[mode] = append(u.PerFrame[mode], t.perFrame())
			}
		}
	}
	cfg.progress("%s: %d rounds of unwinding", rec.Name, rounds)
	return res, nil
}

// firstPass times a pass with nothing cached, then asks for the frames.
func firstPass(u unwinder) (*unwinderResult, [][]uint64, error) {
	t, err := u.pass(inFile)
	if err != nil {
		return nil, nil, err
	}
	res := &unwinderResult{PerFrame: map[string][]float64{}, Frames: t.Frames}
	if o, ok := u.(*ours); ok { // compiling is not unwinding: it is reported beside it
		res.Compile = float64(o.compile) / 1e9
		t.NS -= o.compile
	}
	res.Cold = t.perFrame()
	got, err := u.answers()
	return res, got, err
}

// perfResults is what concerns recordings of perf.
type perfResults struct {
	Rounds  int
	Unwind  []*unwindResult
	Command []*commandResult
}

// measurePerf makes recordings, unwinds their samples and prints them.
func measurePerf(cfg config) (*perfResults, error) {
	r := &perfResults{Rounds: cfg.rounds}
	list, err := record(cfg, filepath.Join(cfg.dir, "perf"))
	if err != nil {
		return nil, err
	}
	for _, rec := range list {
		u, err := measureUnwind(cfg, rec, cfg.rounds)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rec.Name, err)
		}
		r.Unwind = append(r.Unwind, u)
	}
	for _, rec := range list {
		c, err := measureCommand(cfg, rec, cfg.rounds)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rec.Name, err)
		}
		r.Command = append(r.Command, c)
	}
	flats, _ := filepath.Glob(filepath.Join(cfg.dir, "perf", "*.flat*"))
	for _, f := range flats {
		os.Remove(f)
	}
	return r, nil
}
