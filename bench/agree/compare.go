package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// comparison is the programs that read one recording at the same time, sample by
// sample.
type comparison struct {
	data, ehasm string // paths of the recording and of ehasm
	show        int    // how many differing samples are printed

	perf, ours *tool // perf script, and ehasm with its defaults
	gaps       *tool // ours that stops at code of no file, as perf does
	ends       *ends // why each of ehasm's walks ended

	result
	outermost map[string]bool   // places in which ehasm's walks end by the table
	last      map[[2]string]int // samples by the last frames of perf's stack and ours
}

// run compares all samples. The error joins what the programs say at their end.
func (c *comparison) run() (r *result, err error) {
	// Walks of the same place end alike, so places are collected over all samples.
	c.outermost, c.last = make(map[string]bool), make(map[[2]string]int)
	err = c.start()
	for err == nil {
		err = c.step()
	}
	if err == io.EOF {
		err = nil
	}
	// A program that failed says so when it is closed.
	for _, t := range []*tool{c.perf, c.ours, c.gaps} {
		err = errors.Join(err, t.close())
	}
	err = errors.Join(err, c.ends.close())
	// Only now all places are known in which walks end by the table.
	for k, n := range c.last {
		perf, our := isOutermost(k[0], c.outermost), isOutermost(k[1], c.outermost)
		if perf {
			c.perfOutermost += n
		}
		if our {
			c.ourOutermost += n
		}
		if perf && !our {
			c.onlyPerf += n
		}
	}
	return &c.result, err
}

// start starts perf script and three runs of ehasm on the recording.
func (c *comparison) start() (err error) {
	if c.perf, err = startTool("perf", "script", "--no-inline", "-i", c.data); err != nil {
		return err
	}
	if c.ours, err = startTool(c.ehasm, "script", "-q", perfDepth, "-i", c.data); err != nil {
		return err
	}
	if c.gaps, err = startTool(c.ehasm, "script", "-q", perfDepth, "--frame-pointers=gaps", "-i", c.data); err != nil {
		return err
	}
	c.ends, err = startEnds(c.ehasm, c.data)
	return err
}

// step compares one sample; the error is io.EOF after the last.
func (c *comparison) step() error {
	// ehasm's sample leads: the others must have the same.
	our, err := c.ours.next()
	if err != nil {
		return err
	}
	perf, err := c.read(c.perf, our)
	if err != nil {
		return err
	}
	gaps, err := c.read(c.gaps, our)
	if err != nil {
		return err
	}
	// Frames are compared by address.
	if slices.Equal(perf.ips, gaps.ips) {
		c.sameGaps++
	}
	end, err := c.ends.next()
	if err != nil {
		return fmt.Errorf("sample %d: ehasm --format=json: %w", c.samples, err)
	}
	// By the table, not by a guess.
	if strings.HasPrefix(end, "outermost frame") {
		c.outermost[place(our.last())] = true
	}
	c.last[[2]string{perf.last(), our.last()}]++
	same := slices.Equal(perf.ips, our.ips)
	c.count(perf, our, same)
	c.samples++
	// Only the first few that differ are shown.
	if same || c.samples-c.same > c.show {
		return nil
	}
	fmt.Fprintf(os.Stderr, "%s\nperf:\n%s\nehasm, %s:\n%s\n\n", our.head, strings.Join(perf.lines, "\n"), end,
		strings.Join(our.lines, "\n"))
	return nil
}

// read reads the sample that ours is from another program.
func (c *comparison) read(t *tool, ours *sample) (*sample, error) {
	s, err := t.next()
	if err != nil {
		return nil, fmt.Errorf("sample %d: %s: %w", c.samples, t.cmd.Path, err)
	}
	// Each program must be at the same sample.
	if s.key() != ours.key() {
		return nil, fmt.Errorf("sample %d: %s has %q, ehasm %q", c.samples, t.cmd.Path, s.head, ours.head)
	}
	return s, nil
}

// count adds one sample: the same frames, or one stack is the beginning of the other, or neither.
func (r *result) count(perf, our *sample, same bool) {
	switch n, m := len(perf.ips), len(our.ips); {
	case same:
		r.same++
		r.frames += n
		for i := range perf.lines {
			if perf.lines[i] == our.lines[i] {
				r.lines++
			}
		}
	// perf's stack is the beginning of ehasm's.
	case n < m && slices.Equal(perf.ips, our.ips[:n]):
		r.deeper++
	// ehasm's is the beginning of perf's.
	case m < n && slices.Equal(perf.ips[:m], our.ips):
		r.shallower++
	default:
		r.other++
	}
}

// isOutermost reports whether the frame, a line of perf script, is outermost: a walk
// ended in it by the tables, or its name says so.
func isOutermost(line string, known map[string]bool) bool {
	if known[place(line)] {
		return true
	}
	f := strings.Fields(line)
	if len(f) < 2 {
		return false
	}
	name, _, _ := strings.Cut(f[1], "+")
	return slices.Contains([]string{"_start", "clone", "__clone", "clone3", "__clone3"}, name)
}

// place returns the address and the file of a line, without the name between them.
func place(line string) string {
	ip, _, _ := strings.Cut(line, " ")
	return ip + line[strings.LastIndex(line, " (")+1:]
}
