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

// folded writes a line per distinct stack, outermost frame first, with its count,
// as stackcollapse-perf.pl --all does.
type folded struct{ workers []*foldedWorker }

func foldedSpec() *Spec {
	return &Spec{Name: "folded", Suffixes: []string{".folded"}, New: func(Options) Format { return new(folded) }}
}

func (f *folded) Worker() Worker {
	w := &foldedWorker{counts: make(map[string]uint64)}
	f.workers = append(f.workers, w)
	return w
}

type foldedWorker struct {
	counts map[string]uint64
	buf    []byte
}

// foldedName returns the name in a folded stack: if there is none, that of the
// object in brackets, as stackcollapse-perf.pl writes it.
func foldedName(f *Frame) string {
	if f.Name != "" {
		return f.Shown()
	}
	return "[" + strings.Trim(filepath.Base(f.DSO), "[]") + "]"
}

// clean replaces the characters of a name that have a meaning in folded stacks.
func clean(name string) string { return strings.ReplaceAll(Escape(name), ";", ":") }

// annotation returns the suffix by which flamegraph.pl recognises kernel code, code
// compiled at run time and inlined functions.
func annotation(f *Frame) string {
	switch {
	case f.Kernel:
		return "_[k]"
	case f.JIT:
		return "_[j]"
	}
	return ""
}

func (w *foldedWorker) Render(f *Frame) {
	f.Text = append([]byte(clean(foldedName(f))), annotation(f)...)
	for _, in := range slices.Backward(f.Inlined) {
		f.Text = append(append(append(f.Text, ';'), clean(in.Shown())...), "_[i]"...)
	}
}

// Add counts the stack. One that ends before the outermost frame says so.
func (w *foldedWorker) Add(b []byte, s *Sample) []byte {
	k := append(w.buf[:0], strings.ReplaceAll(clean(s.Comm), " ", "_")...)
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
