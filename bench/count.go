package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// countResults are instructions per frame by pattern and contender.
type countResults struct {
	Skipped string                        `json:",omitempty"` // why nothing was counted
	PerStep map[string]map[string]float64 // by set, then contender
}

// countSets are the sets that are counted; slow contenders only on real stacks.
var countSets = []string{"all", "rows2000", "bytes2000"}

// measureCounts runs the driver under callgrind. The harness' own instructions,
// counted with the contender that does nothing, are subtracted.
func measureCounts(dir string) (r countResults, err error) {
	out := filepath.Join(dir, "callgrind")
	if err := os.RemoveAll(out); err != nil {
		return r, err
	}
	if err := os.MkdirAll(out, 0o777); err != nil {
		return r, err
	}
	file := filepath.Join(out, "cg")
	// counts only between the driver's client requests
	s, err := openSession(dir, []string{"valgrind", "-q", "--tool=callgrind", "--collect-atstart=no",
		"--callgrind-out-file=" + file,
		"--max-stackframe=1000000000"})
	if err != nil {
		return r, err
	}
	// The same stacks as in the step benchmark, by their seeds.
	if err := s.setUp(); err != nil {
		return r, err
	}
	frames := map[string]uint64{}
	for _, set := range countSets { // by label NAME/SET: frames of one pass
		// The contender that does nothing counts the harness alone.
		names := []string{"nothing"}
		for _, c := range contenders() {
			if c.Name == goName || !c.eligible(pattern{Set: set}) || c.Slow && set != "all" {
				continue
			}
			names = append(names, c.Name)
		}
		for _, name := range names {
			label := name + "/" + set
			m, err := s.measure("count %s %s %s", name, set, label)
			// The driver refuses contenders that it does not have.
			if errors.Is(err, errRefused) {
				continue
			}
			if err != nil {
				return r, err
			}
			frames[label] = m.Frames
		}
	}
	if err := s.close(); err != nil {
		return r, err
	}
	totals, err := readCallgrind(file)
	if err != nil {
		return r, err
	}
	r.PerStep = map[string]map[string]float64{}
	for label, n := range frames {
		name, set, _ := strings.Cut(label, "/")
		if name == "nothing" {
			continue
		}
		if r.PerStep[set] == nil {
			r.PerStep[set] = map[string]float64{}
		}
		total, ok := totals[label]
		if !ok {
			return r, fmt.Errorf("callgrind: no dump for %s", label)
		}
		// Instructions of the pass less the harness's, for each frame.
		r.PerStep[set][name] = float64(total-totals["nothing/"+set]) / float64(n)
	}
	return r, nil
}

// split tells instructions for a call from those for a step. A synthetic stack of
// 30 frames takes two calls, libc and the driver's outermost frame, or with max 1
// one for each frame. One call more than steps share a stack of 30 frames; two equations give call
// and step.
func (r *countResults) split(variant string) (call, step float64, ok bool) {
	// Equations: whole = step + share*call; single = step + call.
	counts := r.PerStep["bytes2000"]
	whole, ok1 := counts["walk"+variant]
	single, ok2 := counts["walk1"+variant]
	const share = 2.0 / 30
	call = (single - whole) / (1 - share)
	return call, whole - share*call, ok1 && ok2
}

// readCallgrind returns the instructions of each dump by its label.
func readCallgrind(file string) (map[string]int64, error) {
	// A dump each: file.1, file.2, ...
	paths, err := filepath.Glob(file + ".*")
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	totals := map[string]int64{}
	for _, p := range paths {
		label, n, err := readCallgrindDump(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		totals[label] = n
	}
	return totals, nil
}

// readCallgrindDump returns the label and the instructions of one dump; callgrind writes the label
// as "desc:".
func readCallgrindDump(path string) (label string, total int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line := sc.Text()
		// The label as the client request gave it.
		if v, ok := strings.CutPrefix(line, "desc: Trigger: Client Request: "); ok {
			label = v
		}
		// One of the two lines has the count.
		if v, ok := strings.CutPrefix(line, "summary: "); ok && total == 0 {
			total, err = strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			if err != nil {
				return "", 0, err
			}
		}
		if v, ok := strings.CutPrefix(line, "totals: "); ok && total == 0 {
			total, _ = strconv.ParseInt(strings.Fields(v)[0], 10, 64)
		}
	}
	return label, total, sc.Err()
}
