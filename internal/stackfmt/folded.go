package stackfmt

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// folded is a line per distinct stack, outermost frame first, and its count: what
// stackcollapse-perf.pl makes.
type folded struct {
	clean   *strings.Replacer // takes out what has a meaning
	workers []*foldedWorker
}

func foldedSpec() *Spec {
	return &Spec{Name: "folded", Suffixes: []string{".folded"}, New: func(Options) Format {
		return &folded{clean: strings.NewReplacer(";", ":", "\n", " ", "\t", " ")}
	}}
}

func (f *folded) Worker() Worker {
	w := &foldedWorker{clean: f.clean, counts: make(map[string]uint64)}
	f.workers = append(f.workers, w)
	return w
}

type foldedWorker struct {
	clean  *strings.Replacer
	counts map[string]uint64
	buf    []byte
}

// foldedName is the name in a folded stack: where there is none, that of the
// object in brackets, as stackcollapse-perf.pl writes it.
func foldedName(f *Frame) string {
	if f.Name != "" {
		return f.Name
	}
	return "[" + strings.Trim(filepath.Base(f.DSO), "[]") + "]"
}

func (w *foldedWorker) Render(f *Frame) {
	f.Text = []byte(w.clean.Replace(foldedName(f)))
	for _, in := range slices.Backward(f.Inlined) {
		f.Text = append(append(f.Text, ';'), w.clean.Replace(in.Name)...)
	}
}

// Add counts the stack. One that ends before the outermost frame says so.
func (w *foldedWorker) Add(b []byte, s *Sample) []byte {
	k := append(w.buf[:0], strings.ReplaceAll(w.clean.Replace(s.Comm), " ", "_")...)
	if s.cut() {
		k = append(k, ";[truncated]"...)
	}
	for _, f := range slices.Backward(s.Frames) {
		k = append(append(k, ';'), f.Text...)
	}
	w.buf = k
	w.counts[string(k)] += s.count()
	return b
}

// Finish writes the counts of all workers, sorted.
func (f *folded) Finish(w io.Writer, _ *Recording) error {
	all := make(map[string]uint64)
	for _, wk := range f.workers {
		for k, n := range wk.counts {
			all[k] += n
		}
	}
	out := bufio.NewWriter(w)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(out, "%s %d\n", k, all[k])
	}
	return out.Flush()
}
