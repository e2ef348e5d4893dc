// Package stackfmt writes stacks whose frames have names: as perf script does,
// folded, as JSON, as a profile for pprof, as a flame graph. The samples may come
// from a recording that is read or one that is being made.
//
// A format is one type in one file, behind the interface Format; Specs lists them.
// A caller makes a Format, takes a Worker of it for each goroutine, renders every
// Frame once for the worker it is used with, adds samples and calls Finish:
//
//	f := spec.New(stackfmt.Options{})
//	w := f.Worker()
//	w.Render(frame)             // once per frame
//	out = w.Add(out[:0], sample) // to be written in the order of samples
//	f.Finish(file, &recording)  // after the last sample
package stackfmt

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/unwind"
)

// Event is the event at which samples were taken. It says which fields they
// have.
type Event struct {
	Name                              string
	TID, CPU, Time, Period, Callchain bool // which of these fields samples have

	// Kind and Unit say what periods count, in pprof's terms: "cpu" and
	// "nanoseconds" for clocks; otherwise "", which means the name without modifiers
	// and "count".
	Kind, Unit string
	Every      uint64 // the requested period; 0: it varies
	// Samples is what the number of samples counts, as pprof has it: of an event of a heap, objects. The
	// events of a recording that have it are values of the same samples. "": samples.
	Samples string
	// Weight is the unit of weights. "": samples.
	Weight string
}

// kind returns what periods count, in pprof's terms.
func (e *Event) kind() string {
	if e.Kind != "" {
		return e.Kind
	}
	// Modifiers follow a colon, as in cycles:u.
	name, _, _ := strings.Cut(e.Name, ":")
	return name
}

// unit returns the unit of periods.
func (e *Event) unit() string { return cmp.Or(e.Unit, "count") }

// Sample is a stack, or several that are equal.
type Sample struct {
	Comm     string
	PID, TID int32
	CPU      uint32
	Time     uint64 // ns
	Period   uint64 // in the event's unit, of all Count samples
	Count    uint64 // how many samples this is; 0: one
	Weight   uint64 // for formats with one number for a stack: in units of Event.Weight; 0: Count
	Event    *Event
	Width    int            // of the longest event name
	Frames   []*frame.Frame // innermost first
	Guessed  []int          // which of Frames were found by the frame pointer, ascending
	Leaf     *frame.Frame   // of PC, for an event without call chain; else nil
	PC       uint64         // run-time
	Labels   []Label        // more labels, for the format pprof
	// End says why the user part of the stack ends; NoUserStack means that there
	// was nothing to unwind.
	End unwind.Cause
}

// Label is a name with a value.
type Label struct{ Key, Value string }

// NoUserStack is the End of samples that have no user stack to unwind.
const NoUserStack = unwind.NumCauses

// Cut reports whether the stack's outermost frames are not known.
func (s *Sample) Cut() bool {
	return s.End != NoUserStack && s.End != unwind.Outermost && s.End != unwind.OutermostGuessed
}

// count returns how many samples this is.
func (s *Sample) count() uint64 { return max(s.Count, 1) }

// weight returns the number of a stack in formats that have one.
func (s *Sample) weight() uint64 { return cmp.Or(s.Weight, s.count()) }

// Recording describes all samples for Finish.
type Recording struct {
	Command  []string         // that was recorded; may be nil
	Events   []*Event         // in the order of the recording
	Objects  []*unwind.Object // in the order in which they were mapped
	Start    time.Time        // zero: unknown
	Duration time.Duration    // 0: unknown
	Comments []string         // for the format pprof
	// Process returns the name of a process's main thread; "": not known. May be nil.
	Process func(pid int32) string
}

// Worker takes samples on one goroutine.
type Worker interface {
	// Render sets f.Text. It is called once for each frame of this worker's samples,
	// before the first Add with it.
	Render(f *frame.Frame)
	// Add takes a sample and appends to b the text to write for it, which is empty
	// for formats that add up samples.
	Add(b []byte, s *Sample) []byte
}

// Format is an output in one format.
type Format interface {
	// Worker returns a worker. It may be called only before the first Add.
	Worker() Worker
	// Finish writes what follows the text of all samples. No worker may still be
	// in use.
	Finish(w io.Writer, r *Recording) error
}

// Options are the settings of formats.
type Options struct {
	Inline bool // frames may have inlined functions
	Lines  bool // frames may have files and lines
	// FullSourcePath writes the whole path in the format perf; others always do.
	FullSourcePath bool
	NoComm         bool         // samples have no label comm in the format pprof
	Graph          GraphOptions // for the format svg
}

// GraphOptions are the settings of flame graphs.
type GraphOptions struct {
	Title    string // "": the recorded command and the events
	Width    int    // in CSS pixels; 0: the window's width
	MaxBytes int    // approximate limit on the file's size; 0: flamegraph.DefaultBytes
	Inverted bool   // boxes hang below their callers
	Reversed bool   // stacks begin with the innermost frame
	// Before is a Format svg with the samples to compare with. May be nil.
	Before Format
}

// Spec describes a format.
type Spec struct {
	Name     string   // as --format names it
	Suffixes []string // of files that hold it
	Binary   bool     // not for a terminal
	Samples  bool     // has every sample, not only counts
	Values   bool     // has several values a stack: those of all events of a heap
	View     string   // how to look at FILE; "": there is nothing to say
	// Settings lists the flags that have an effect in this format, of those that do not
	// have one in all.
	Settings []string
	New      func(Options) Format // nil: the caller writes the format
}

// HowToLook returns text that says how to view a file in the format; path is shown as it is.
func (s *Spec) HowToLook(path string) string {
	if s.View == "" {
		return "written"
	}
	return strings.ReplaceAll(s.View, "FILE", path)
}

// SummaryLine writes a line of a recording's summary: name, how many of all stacks or samples it counts, and more. It
// writes nothing for none.
func SummaryLine(w io.Writer, name string, n, of uint64, more string) {
	if n > 0 {
		name = strings.Replace(name, "outermost frame", "complete", 1) // what its reader asks
		fmt.Fprintf(w, "  %-32s %9d  %5.1f %%%s\n", name, n, 100*float64(n)/float64(max(of, 1)), more)
	}
}

// Number returns a number with what it counts, such as a process, or two processes.
func Number(n uint64, what string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(what, "s"):
		what += "es"
	default:
		what += "s"
	}
	return fmt.Sprint(n, " ", what)
}

// Specs returns all formats. The first is the default.
func Specs() []*Spec {
	return []*Spec{perfSpec(), foldedSpec(), jsonSpec(), pprofSpec(), svgSpec()}
}

// ByName returns the format of this name, of Specs or of more.
func ByName(name string, more ...*Spec) (*Spec, error) {
	var names []string
	for _, s := range append(Specs(), more...) {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("unknown format %q: want one of %s", name, strings.Join(names, ", "))
}

// ByPath returns the format, of Specs or of more, that a file's name chooses by its longest known suffix, or nil if it
// chooses none.
func ByPath(path string, more ...*Spec) (spec *Spec) {
	// The longest suffix wins: .perf.txt is not .txt.
	base, longest := filepath.Base(path), 0
	for _, s := range append(Specs(), more...) {
		for _, suffix := range s.Suffixes {
			if strings.HasSuffix(base, suffix) && len(suffix) > longest {
				spec, longest = s, len(suffix)
			}
		}
	}
	return spec
}
