package stackfmt

import (
	"bufio"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/internal/profile/tally"
)

// folded writes a line per distinct stack, outermost frame first, with its count,
// as stackcollapse-perf.pl --all does.
type folded struct {
	names   numbers[string, string] // of frames, inlined ones among them, and of threads
	workers []*foldedWorker
}

// foldedSpec describes the format folded.
func foldedSpec() *Spec {
	return &Spec{Name: "folded", Suffixes: []string{".folded"}, New: func(Options) Format { return new(folded) }}
}

// Worker returns a worker with its own counts.
func (f *folded) Worker() Worker {
	w := &foldedWorker{folded: f}
	f.workers = append(f.workers, w)
	return w
}

// foldedWorker counts stacks as sequences of numbers of names.
type foldedWorker struct {
	folded *folded
	counts tally.Tally // samples, by numbers of names, outermost first
	buf    []byte      // of Add, reused
}

// foldedName returns the name in a folded stack: if there is none, the name of the
// object in brackets, as stackcollapse-perf.pl writes it.
func foldedName(f *frame.Frame) string {
	if f.Name != "" {
		return f.Shown()
	}
	return "[" + strings.Trim(filepath.Base(f.DSO), "[]") + "]"
}

// clean replaces the characters of a name that have a meaning in folded stacks.
func clean(name string) string { return strings.ReplaceAll(output.Text(name), ";", ":") }

// annotation returns the suffix by which flamegraph.pl --color java and the like recognises kernel code and code
// compiled at run time; inlined functions have _[i], from Render.
func annotation(f *frame.Frame) string {
	switch {
	case f.Kernel:
		return "_[k]"
	case f.JIT:
		return "_[j]"
	}
	return ""
}

// append adds the number of a name to a stack. Goroutines share the numbers.
func (f *folded) append(b []byte, name string) []byte {
	return tally.AppendNumber(b, f.names.number(name, func() string { return name }))
}

// Render makes the numbers of a frame and of the functions inlined into it, outermost first.
func (w *foldedWorker) Render(f *frame.Frame) {
	f.Text = w.folded.append(f.Text, clean(foldedName(f))+annotation(f))
	for _, in := range slices.Backward(f.Inlined) {
		f.Text = w.folded.append(f.Text, clean(in.Shown())+"_[i]")
	}
}

// Add counts the stack. One that ends before the outermost frame says so.
func (w *foldedWorker) Add(b []byte, s *Sample) []byte {
	// As stackcollapse-perf.pl: a blank would end the stack, for readers that do not look for the last one.
	k := w.folded.append(w.buf[:0], strings.ReplaceAll(clean(s.Comm), " ", "_"))
	if s.Cut() {
		k = w.folded.append(k, "[truncated]")
	}
	for _, f := range slices.Backward(s.Frames) {
		k = append(k, f.Text...)
	}
	w.buf = k
	w.counts.Add(k, tally.Sum{s.weight()})
	return b
}

// Finish writes the counts of all workers, sorted.
func (f *folded) Finish(w io.Writer, _ *Recording) error {
	words := newWords(f.names.list)
	var all []*tally.Tally
	for _, wk := range f.workers {
		all = append(all, &wk.counts)
	}
	out := bufio.NewWriter(w)
	// Keys by place in the sorted words: the tally yields lines in the order of their text.
	for key, n := range tally.All(reordered(all, words.append)) {
		for word := range tally.Numbers(key) {
			out.WriteString(words.sorted[word])
		}
		fmt.Fprintf(out, " %d\n", n[0])
	}
	return out.Flush()
}

// words are the parts of lines: each name, and with a semicolon, which it has before other names. Lines are in the
// order of their text if they are in the order of their words' places among the sorted words, as only the end of a word
// is a semicolon.
type words struct {
	sorted       []string // names without and with a semicolon, sorted together
	last, before []uint32 // by name: the place as the last one, and before others
}

// newWords sorts the words of names.
func newWords(names []string) *words {
	w := &words{last: make([]uint32, len(names)), before: make([]uint32, len(names))}
	for _, name := range names {
		w.sorted = append(w.sorted, name, name+";")
	}
	slices.Sort(w.sorted)
	for i, name := range names {
		rank, _ := slices.BinarySearch(w.sorted, name)
		w.last[i] = uint32(rank)
		rank, _ = slices.BinarySearch(w.sorted, name+";")
		w.before[i] = uint32(rank)
	}
	return w
}

// append appends the key of a line with these names.
func (w *words) append(to, key []byte) []byte {
	for name := range tally.Numbers(key) {
		start := w.before
		// The last name of a line has no semicolon.
		if key = key[tally.NumberSize:]; len(key) == 0 {
			start = w.last
		}
		to = tally.AppendNumber(to, start[name])
	}
	return to
}
