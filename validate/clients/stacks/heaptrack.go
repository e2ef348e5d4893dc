package main

import (
	"bufio"
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// This file reads heaptrack's raw traces. Its interpreter would replace addresses by names, and merge stacks that
// differ.

// traceFile reads what heaptrack's library writes: a line per event, numbers in
// hexadecimal.
//
//	m LENGTH NAME BASE (OFFSET SIZE)...   a loaded object; x for the program, whose name an x line has
//	m 1 -                                 all objects are forgotten
//	t PC PARENT                           the next trace: a return address on top of an earlier trace, 0 being none
//	+ SIZE TRACE POINTER                  an allocation
type traceFile struct {
	program string
	objects []loaded
	places  []string // of each trace, its pc
	parents []uint64
}

type loaded struct {
	name       string
	base, last uint64
}

// isTraceFile reports whether b begins like one. A version line comes first; the X line has the command.
func isTraceFile(b []byte) bool {
	return bytes.HasPrefix(b, []byte("v ")) && bytes.Contains(b[:min(len(b), 4096)], []byte("\nX "))
}

// readTraces sums up the allocations of each stack: their number and their bytes. Events that free memory are passed
// over: it is the stacks that are compared. Keys are places from the innermost outwards.
func readTraces(b []byte) (map[string][]int64, error) {
	t := &traceFile{places: []string{""}, parents: []uint64{0}}
	sums := make(map[uint64][]int64)
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		word := strings.Fields(lines.Text())
		if len(word) == 0 {
			continue
		}
		switch word[0] {
		case "x":
			t.program = word[len(word)-1]
		case "m":
			if err := t.object(word); err != nil {
				return nil, err
			}
		case "t":
			n, err := numbers(word[1:])
			if err != nil || len(n) != 2 || n[1] >= uint64(len(t.places)) {
				return nil, fmt.Errorf("line %q", lines.Text())
			}
			t.places, t.parents = append(t.places, t.place(n[0])), append(t.parents, n[1])
		case "+":
			n, err := numbers(word[1:])
			if err != nil || len(n) != 3 || n[1] >= uint64(len(t.places)) {
				return nil, fmt.Errorf("line %q", lines.Text())
			}
			if sums[n[1]] == nil {
				sums[n[1]] = make([]int64, 2)
			}
			sums[n[1]][0]++
			sums[n[1]][1] += int64(n[0])
		}
	}
	exact := make(map[string][]int64)
	for trace, sum := range sums {
		var stack []string
		for i := trace; i != 0; i = t.parents[i] {
			stack = append(stack, t.places[i])
		}
		key := strings.Join(stack, ";")
		if exact[key] == nil {
			exact[key] = make([]int64, 2)
		}
		exact[key][0] += sum[0]
		exact[key][1] += sum[1]
	}
	return exact, lines.Err()
}

// object reads an m line. An object counts from its base to the end of its last segment: gaps between have no code.
func (t *traceFile) object(word []string) error {
	if slices.Equal(word[1:], []string{"1", "-"}) {
		t.objects = nil
		return nil
	}
	const fixed = 4 // m LENGTH NAME BASE
	if len(word) < fixed {
		return fmt.Errorf("line %q", word)
	}
	n, err := numbers(word[fixed-1:])
	if err != nil {
		return err
	}
	o := loaded{name: word[2], base: n[0]}
	if o.name == "x" {
		o.name = t.program
	}
	for i := 1; i+1 < len(n); i += 2 {
		o.last = max(o.last, o.base+n[i]+n[i+1])
	}
	t.objects = append(t.objects, o)
	return nil
}

// place returns object+offset, as namer.name does, or "?" for a pc in no object, such as one of generated code.
func (t *traceFile) place(pc uint64) string {
	for _, o := range t.objects {
		if pc >= o.base && pc < o.last {
			return fmt.Sprintf("%s+%#x", filepath.Base(o.name), pc-o.base)
		}
	}
	return "?"
}

// numbers parses hexadecimal numbers without a prefix.
func numbers(words []string) ([]uint64, error) {
	var all []uint64
	for _, w := range words {
		n, err := strconv.ParseUint(w, 16, 64)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}
