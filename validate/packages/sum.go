//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// class is the files with at most its bytes of tables, and more than the class before.
type class struct {
	name  string
	most  int64 // bytes of tables
	files []*built
}

// built is what is known of a file in all its forms, by the name of the step.
type built map[string]record

// totals sums up a sweep.
type totals struct {
	packages map[string]bool // unpacked
	files    map[string]*built
	other    map[string]int    // files of other kinds, by reason
	failures map[string]string // what did not succeed: by file and step, the reason
	steps    map[string]int    // that succeeded
}

// otherKind recognises the reasons of build for files that have nothing to compile.
var otherKind = regexp.MustCompile(
	`no unwind tables|not an x86-64|not an ELF file|neither an executable nor a shared object|relocatable|core file`)

// printSums prints the sums of records.
func printSums(paths []string, out io.Writer) error {
	t := totals{packages: map[string]bool{}, files: map[string]*built{}, other: map[string]int{},
		failures: map[string]string{}, steps: map[string]int{}}
	for _, p := range paths {
		if err := t.read(p); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d packages, %d files built\n", len(t.packages), len(t.files))
	for _, counts := range []map[string]int{t.steps, t.other} {
		for _, key := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(out, "  %6d %s\n", counts[key], key)
		}
	}
	t.table(out)
	for _, key := range slices.Sorted(maps.Keys(t.failures)) {
		fmt.Fprintf(out, "FAILED: %s: %s\n", key, t.failures[key])
	}
	return nil
}

// read adds the records of a file. A package that is there twice counts once.
func (t *totals) read(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	repeated := ""
	for d := json.NewDecoder(f); ; {
		var r record
		switch err := d.Decode(&r); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // a sweep may be under way
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		}
		if r.File == "" {
			if t.packages[r.Package] {
				repeated = r.Package
			}
			t.packages[r.Package] = true
		}
		if r.Package != repeated {
			t.add(r)
		}
	}
}

// add adds a record.
func (t *totals) add(r record) {
	key := path.Join(r.Package, r.File)
	switch {
	case r.Failure != "" && r.Step == forms[0].name && otherKind.MatchString(r.Failure):
		reason, _, _ := strings.Cut(r.Failure, ":")
		t.other[reason]++
	case r.Failure != "":
		t.failures[key+" "+r.Step] = r.Failure
	case r.File != "":
		if t.files[key] == nil {
			t.files[key] = &built{}
		}
		(*t.files[key])[r.Step] = r
		t.steps[r.Step]++
	}
}

// table prints a line for each class of files. Times and memory are those of the default form.
func (t *totals) table(out io.Writer) {
	const kb = 1 << 10
	classes := []*class{{name: "to 15 KB", most: 15 * kb}, {name: "to 100 KB", most: 100 * kb},
		{name: "to 1 MB", most: kb * kb},
		{name: "above", most: 1 << 60}, {name: "all", most: 1 << 60}}
	all := classes[len(classes)-1]
	for _, key := range slices.Sorted(maps.Keys(t.files)) {
		f := t.files[key]
		i := slices.IndexFunc(classes, func(c *class) bool { return (*f)[forms[0].name].Tables <= c.most })
		classes[i].files = append(classes[i].files, f)
		all.files = append(all.files, f)
	}
	fmt.Fprintln(out, "| tables | files | MB | tree, packed / tables | CPU: median, most, s a MB | proof: s a MB | peak MB: median, most |")
	fmt.Fprintln(out, "| --- | --- | --- | --- | --- | --- | --- |")
	for _, c := range classes {
		c.print(out)
	}
	worst := slices.Clone(all.files)
	slices.SortFunc(worst, func(a, b *built) int { return int((*b)[forms[0].name].Peak - (*a)[forms[0].name].Peak) })
	for _, f := range worst[:min(5, len(worst))] {
		r := (*f)[forms[0].name]
		fmt.Fprintf(out, "%.1f MB peak: %s, %d bytes, %d of tables\n", float64(r.Peak)/mb, path.Join(r.Package, r.File),
			r.Object, r.Tables)
	}
}

const mb = 1e6

// print prints the line of a class.
func (c *class) print(out io.Writer) {
	if len(c.files) == 0 {
		return
	}
	var tables, tree, packed float64
	var cpu, proof time.Duration
	var times, peaks []float64
	for _, f := range c.files {
		r := (*f)[forms[0].name]
		tables += float64(r.Tables)
		tree += float64(r.EhElf)
		packed += float64((*f)[forms[1].name].EhElf)
		cpu += r.CPU
		proof += (*f)[stepProve].CPU
		times = append(times, r.CPU.Seconds())
		peaks = append(peaks, float64(r.Peak)/mb)
	}
	slices.Sort(times)
	slices.Sort(peaks)
	middle, last := len(c.files)/2, len(c.files)-1
	fmt.Fprintf(out, "| %s | %d | %.1f | %.2f, %.2f | %.3f, %.2f, %.2f | %.2f | %.0f, %.0f |\n", c.name, len(c.files),
		tables/mb, tree/tables, packed/tables,
		times[middle], times[last], cpu.Seconds()/tables*mb, proof.Seconds()/tables*mb, peaks[middle], peaks[last])
}
