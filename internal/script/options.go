package script

import (
	"fmt"
	"slices"

	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// Format is the form of the output.
type Format int

// The formats.
const (
	Perf   Format = iota // as perf script writes it
	Folded               // a line per distinct stack, outermost frame first, and its count
	JSON                 // an object per sample
	Pprof                // a profile for go tool pprof
	SVG                  // a flame graph
)

var formatNames = []string{Perf: "perf", Folded: "folded", JSON: "json", Pprof: "pprof", SVG: "svg"}

func (f Format) String() string { return formatNames[f] }

// ParseFormat is the inverse of String.
func ParseFormat(s string) (Format, error) {
	if i := slices.Index(formatNames, s); i >= 0 {
		return Format(i), nil
	}
	return 0, fmt.Errorf("unknown format %q: want one of %q", s, formatNames)
}

// Options are the settings of Run.
type Options struct {
	Format   Format
	Workers  int
	MaxStack int // frames of a stack's user part
	// FramePointers is where frame pointers are followed for want of unwind information.
	FramePointers unwind.FramePointers
	Filter        Filter
	Mangled       bool // leave names as they are
	Inline        bool // functions that are inlined are frames, too
	Lines         bool // frames have their source's file and line
	// FullSourcePath writes the whole path in the format Perf; others always do.
	FullSourcePath bool
	Kallsyms       string   // path; empty: kernel frames get no names
	HostKernel     bool     // Kallsyms is of this machine's kernel: perf's copy, below Objects.DebugDirs, goes before it
	MapDirs        []string // folders of perf-PID.map files, the first to be asked first
	Objects        unwind.Options
	// Progress is told where in the file the reader is and how many samples it has
	// met; from the reading goroutine, now and then. It may be nil.
	Progress func(offset int64, samples uint64)
}

// DefaultMaxStack is PERF_MAX_STACK_DEPTH, perf's own bound.
const DefaultMaxStack = 127

func (o *Options) fill() {
	if o.Workers < 1 {
		o.Workers = 1
	}
	if o.MaxStack < 1 {
		o.MaxStack = DefaultMaxStack
	}
}

// Summary counts what Run has met.
type Summary struct {
	Samples      uint64            `json:"samples"`
	KernelFrames uint64            `json:"kernel_frames"`
	UserFrames   uint64            `json:"user_frames"`
	Unwound      uint64            `json:"stacks_unwound"` // samples with registers and stack
	Guessed      uint64            `json:"user_frames_by_frame_pointer"`
	GuessedIn    uint64            `json:"stacks_by_frame_pointer"` // with at least one such frame
	UnwindNS     int64             `json:"unwind_ns"`               // in all workers, beside compiling
	Ends         map[string]uint64 `json:"stacks_by_end"`
	Compat       uint64            `json:"samples_of_32_bit_code"`
	Lost         uint64            `json:"lost"`
	BadRecords   uint64            `json:"bad_records"`
	OutOfOrder   uint64            `json:"out_of_order"`
	Objects      []ObjectSummary   `json:"objects"`
	Warnings     []string          `json:"warnings,omitempty"`
	Events       []string          `json:"events"`
}

// ObjectSummary is what concerns one object.
type ObjectSummary struct {
	Name    string            `json:"name"`
	Path    string            `json:"path,omitempty"`
	Frames  uint64            `json:"frames"`
	Symbols int               `json:"symbols"`
	Ends    map[string]uint64 `json:"stacks_ended,omitempty"`
	Error   string            `json:"error,omitempty"`
}

func (s *Summary) addReader(r *perfdata.Reader) {
	st := r.Stats()
	s.BadRecords, s.OutOfOrder = st.BadRecords, st.OutOfOrder
	for _, w := range r.Info().Warnings {
		s.Warnings = append(s.Warnings, w.Error())
	}
	if st.FirstBad != nil {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%d records left out; the first: %v", st.BadRecords, st.FirstBad))
	}
	if st.Forced > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%d times too many records to put in order: the order may be wrong there", st.Forced))
	}
	for _, e := range r.Events() {
		s.Events = append(s.Events, eventName(e))
	}
}
