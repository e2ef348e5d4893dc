// Command stacks compares profiles that gperftools, jemalloc and heaptrack (before
// it is interpreted) write. Stacks are compared by object and offset, so that profiles of processes with different
// address spaces can be equal.
//
//	stacks list PROFILE        a line per distinct stack: its values, its frames
//	stacks equal A B           whether both have the same stacks with the same values
//	stacks shares A B...       of profiles that were sampled: how far apart they are
package main

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
)

func main() {
	err := errors.New("usage: stacks list PROFILE, or equal A B, or shares A B with more of them")
	if len(os.Args) > 2 {
		err = run(os.Args[1], os.Args[2:], os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "stacks: %v\n", err)
		os.Exit(1)
	}
}

// run returns an error, and so a status other than 0, also for profiles that are not equal.
func run(verb string, files []string, w io.Writer) error {
	n := namer{}
	var all []*stacks
	for _, file := range files {
		s, err := n.read(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, s)
	}
	switch {
	case verb == "list" && len(all) == 1:
		for _, line := range all[0].lines() {
			fmt.Fprintln(w, line)
		}
		return nil
	case verb == "equal" && len(all) == 2:
		return equal(w, all[0], all[1])
	case verb == "shares" && len(all) > 1:
		shares(w, all)
		return nil
	}
	return fmt.Errorf("%s with %d files", verb, len(all))
}

// stacks is a profile.
type stacks struct {
	exact     map[string][]int64 // values of a stack of object+offset
	functions map[string]int64   // first value of a stack of functions
	leaves    map[string]int64   // and of its innermost function
	total     int64
	complete  int64 // of total: stacks that end in the function where a thread begins
}

// beginnings are functions where stacks end.
var beginnings = []string{"_start", "__clone3", "clone3", "__clone", "clone"}

// namer names addresses.
type namer map[string]*object

type object struct {
	loads   []elf.ProgHeader
	symbols *symbols.Table
}

// read reads one profile. Without names, functions, leaves, total and complete are empty: heaptrack's.
func (n namer) read(path string) (*stacks, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	if isTraceFile(b) {
		exact, err := readTraces(b)
		return &stacks{exact: exact}, err
	}
	p, err := profile.ParseData(fromJemalloc(b))
	if err != nil {
		return nil, err
	}
	s := &stacks{exact: make(map[string][]int64), functions: make(map[string]int64), leaves: make(map[string]int64)}
	for _, sample := range p.Sample {
		places := make([]string, len(sample.Location))
		names := make([]string, len(sample.Location))
		for i, l := range sample.Location {
			places[i], names[i] = n.name(l)
		}
		stack := strings.Join(places, ";")
		if s.exact[stack] == nil {
			s.exact[stack] = make([]int64, len(sample.Value))
		}
		for i, v := range sample.Value {
			s.exact[stack][i] += v
		}
		v := sample.Value[0]
		s.total += v
		if len(names) > 0 {
			s.functions[strings.Join(names, ";")] += v
			s.leaves[names[0]] += v
			if slices.Contains(beginnings, names[len(names)-1]) {
				s.complete += v
			}
		}
	}
	return s, nil
}

// fromJemalloc turns a heap profile of jemalloc into one of gperftools: a stack
// there is followed by a line for all threads and one for each.
func fromJemalloc(b []byte) []byte {
	if !bytes.HasPrefix(b, []byte("heap_v2/")) {
		return b
	}
	var out bytes.Buffer
	stack := ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		total, isTotal := strings.CutPrefix(line, "  t*: ")
		switch {
		case strings.HasPrefix(line, "@"):
			stack = line
		case isTotal && stack == "":
			fmt.Fprintf(&out, "heap profile: %s @ heapprofile\n", total)
		case isTotal:
			fmt.Fprintf(&out, "%s %s\n", total, stack)
		case !strings.HasPrefix(line, "  t") && !strings.HasPrefix(line, "heap_v2/"):
			fmt.Fprintln(&out, line)
		}
	}
	return out.Bytes()
}

// name returns the place of a location, object+offset, and its function.
func (n namer) name(l *profile.Location) (place, function string) {
	if l.Mapping == nil || l.Mapping.File == "" {
		return "?", "?"
	}
	file := l.Mapping.File
	offset := l.Address - l.Mapping.Start + l.Mapping.Offset
	place = fmt.Sprintf("%s+%#x", filepath.Base(file), offset)
	o := n.object(file)
	for _, p := range o.loads {
		if offset >= p.Off && offset-p.Off < p.Filesz && o.symbols != nil {
			if sym := o.symbols.Find(p.Vaddr + offset - p.Off); sym != nil {
				return place, symbols.Demangle(sym.Name)
			}
		}
	}
	return place, filepath.Base(file)
}

// object reads an object's segments and symbols once. It has none if its file cannot be read.
func (n namer) object(path string) *object {
	if o := n[path]; o != nil {
		return o
	}
	o := &object{}
	n[path] = o
	f, err := os.Open(path)
	if err != nil {
		return o // the vDSO, or a file that is gone
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return o
	}
	var debug []string
	if d, err := dwarfcfa.NewFile(path, f, info.Size()); err == nil && len(d.BuildID()) > 1 {
		debug = []string{fmt.Sprintf("/usr/lib/debug/.build-id/%x/%x.debug", d.BuildID()[:1], d.BuildID()[1:])}
	}
	o.symbols, _ = symbols.FromELF(f, filepath.Dir(path), debug, []string{"/usr/lib/debug"})
	if e, err := elf.NewFile(f); err == nil {
		for _, p := range e.Progs {
			if p.Type == elf.PT_LOAD {
				o.loads = append(o.loads, p.ProgHeader)
			}
		}
	}
	return o
}

// lines returns a line for each distinct stack, sorted.
func (s *stacks) lines() []string {
	lines := make([]string, 0, len(s.exact))
	for stack, values := range s.exact {
		lines = append(lines, fmt.Sprintf("%v %s", values, stack))
	}
	slices.Sort(lines)
	return lines
}

// equal reports whether two profiles hold the same, and the first differences.
func equal(w io.Writer, a, b *stacks) error {
	x, y := a.lines(), b.lines()
	if slices.Equal(x, y) {
		fmt.Fprintf(w, "%d distinct stacks, equal\n", len(x))
		return nil
	}
	const shown = 5
	differ := 0
	for _, side := range []struct {
		mark        string
		mine, their []string
	}{{"<", x, y}, {">", y, x}} {
		for _, line := range side.mine {
			if _, same := slices.BinarySearch(side.their, line); !same {
				if differ++; differ <= 2*shown {
					fmt.Fprintln(w, side.mark, line)
				}
			}
		}
	}
	return fmt.Errorf("%d and %d distinct stacks, %d lines differ", len(x), len(y), differ)
}

// shares tells how far the profiles are from the first, as total variation
// distance: half the sum of the differences of the shares; 0 is equal, 1 has
// nothing in common. Profiles of one program that were sampled are apart, too.
func shares(w io.Writer, all []*stacks) {
	first := all[0]
	for i, s := range all {
		fmt.Fprintf(w, "%c: %d samples, %.2f %% complete", 'A'+rune(i), s.total,
			100*float64(s.complete)/float64(max(s.total, 1)))
		if i > 0 {
			fmt.Fprintf(w, "; from A: functions %.3f, stacks %.3f", distance(first.leaves, s.leaves),
				distance(first.functions, s.functions))
		}
		fmt.Fprintln(w)
	}
	names := slices.SortedFunc(maps.Keys(first.leaves), func(a, b string) int {
		return cmp.Or(cmp.Compare(first.leaves[b], first.leaves[a]), cmp.Compare(a, b))
	})
	for _, name := range names[:min(len(names), 10)] {
		for _, s := range all {
			fmt.Fprintf(w, "%6.2f %%", 100*float64(s.leaves[name])/float64(sum(s.leaves)))
		}
		fmt.Fprintf(w, "  %.90s\n", name)
	}
}

// sum returns at least 1: shares divides by it.
func sum(m map[string]int64) (total int64) {
	for _, v := range m {
		total += v
	}
	return max(total, 1)
}

// distance is the total variation distance of two profiles' shares, from 0 to 1. The shares of each sum to 1, so what a
// has more is what b has more.
func distance(a, b map[string]int64) float64 {
	all := maps.Clone(a)
	maps.Copy(all, b)
	ofA, ofB := float64(sum(a)), float64(sum(b))
	apart := 0.0
	for name := range all {
		apart += max(float64(a[name])/ofA-float64(b[name])/ofB, 0)
	}
	return apart
}
