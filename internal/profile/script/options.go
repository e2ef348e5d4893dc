package script

import (
	"fmt"
	"io"
	"math"

	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/internal/profile/labels"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/internal/rows/jit"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// Options are the settings of Run. The zero value unwinds with one worker and writes nothing.
type Options struct {
	Format   stackfmt.Format // a new one; nil: stacks are unwound and counted, nothing is written
	Workers  int             // goroutines that unwind and name
	MaxStack int             // frames of a stack's user part
	MaxChain int             // frames taken from a call chain, as of perf script --max-stack; 0: all
	NoChains bool            // samples have only the frame of their own pc, as in perf script -G
	// FramePointers says where to use frame pointers for lack of unwind information.
	FramePointers unwind.FramePointers
	Filter        Filter
	Labels        labels.Set        // of samples, for formats that have them
	Names         symbolize.Options // DebugDirs is taken from Objects
	Objects       unwind.Options
	// Progress is called from time to time, on the reading goroutine, with the
	// offset in the file and the number of samples so far. May be nil.
	Progress func(offset int64, samples uint64)
}

// DefaultMaxStack is enough except for endless recursion. perf's own bound,
// PERF_MAX_STACK_DEPTH, is 127, which cuts one in seven of node's stacks.
const DefaultMaxStack = 1024

// fill replaces zero values by defaults.
func (o *Options) fill() {
	if o.Workers < 1 {
		o.Workers = 1
	}
	if o.MaxStack < 1 {
		o.MaxStack = DefaultMaxStack
	}
	if o.Format == nil {
		o.Format = nothing{}
	}
	if o.MaxChain < 1 {
		o.MaxChain = math.MaxInt
	}
	// debug files are where executables are looked for, too
	o.Names.DebugDirs = o.Objects.DebugDirs
	if o.Names.Places == nil {
		o.Names.Places = jit.NewPlaces(false)
	}
}

// nothing is the format of runs that only count.
type nothing struct{}

// Worker returns a worker that drops samples.
func (nothing) Worker() stackfmt.Worker { return nothing{} }

// Render has nothing to do.
func (nothing) Render(*frame.Frame) {}

// Add drops the sample.
func (nothing) Add(b []byte, _ *stackfmt.Sample) []byte { return b }

// Finish has nothing to write.
func (nothing) Finish(io.Writer, *stackfmt.Recording) error { return nil }

// Summary holds the counts of Run. Its JSON is the file of --stats, which scripts read: fields are added, not renamed.
type Summary struct {
	Read uint64 `json:"samples_read"` // samples of the file, before the filter
	// Counts of frames are of chosen samples.
	Samples      uint64 `json:"samples"` // that the filter chose
	KernelFrames uint64 `json:"kernel_frames"`
	UserFrames   uint64 `json:"user_frames"`
	Unwound      uint64 `json:"stacks_unwound"` // samples with registers and stack
	Guessed      uint64 `json:"user_frames_by_frame_pointer"`
	GuessedIn    uint64 `json:"stacks_by_frame_pointer"` // with at least one such frame
	UnwindNS     int64  `json:"unwind_ns"`               // in all workers, without compiling
	// Stacks by the reason why they end: names of unwind.Cause.
	Ends       map[string]uint64 `json:"stacks_by_end"`
	Compat     uint64            `json:"samples_of_32_bit_code"`                // a 32-bit stack, which is not unwound
	Elsewhere  uint64            `json:"stacks_that_go_on_elsewhere,omitempty"` // in memory that no copy reaches
	Lost       uint64            `json:"lost"`                                  // records that the kernel dropped
	BadRecords uint64            `json:"bad_records"`                           // records that could not be decoded
	// samples older than those before them, which are put in order
	OutOfOrder uint64          `json:"out_of_order"`
	Objects    []ObjectSummary `json:"objects"`
	Warnings   []string        `json:"warnings,omitempty"`
	Hints      []string        `json:"hints,omitempty"` // what would make the result better
	Events     []string        `json:"events"`          // names of the recording's events
}

// ObjectSummary holds the counts of one object.
type ObjectSummary struct {
	Name    string            `json:"name"`
	Path    string            `json:"path,omitempty"`
	Frames  uint64            `json:"frames"`  // frames that lie in the object
	Symbols int               `json:"symbols"` // known in the object
	Unnamed uint64            `json:"frames_without_name"`
	BuildID string            `json:"build_id,omitempty"` // hexadecimal
	Ends    map[string]uint64 `json:"stacks_ended,omitempty"`
	Error   string            `json:"error,omitempty"`
}

// addReader takes over what reading the file has counted.
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
		s.Warnings = append(s.Warnings, fmt.Sprintf("%d times too many records to put in order: the order may be wrong there",
			st.Forced))
	}
	for _, e := range r.Events() {
		s.Events = append(s.Events, eventName(e))
	}
}
