package script

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/unwind"
)

// summary adds up what the workers have counted. They must have ended. Its order depends on the recording alone, not
// on which worker had which batch.
func (run *runner) summary(workers []*worker, warnings []error) *Summary {
	s := &Summary{Read: run.seen.samples, Lost: run.lost, Ends: make(map[string]uint64)}
	s.addReader(run.reader)
	frames := make(map[*unwind.Object]symbolize.Hits)
	ends := make(map[*unwind.Object]map[string]uint64)
	for _, w := range workers {
		s.Samples += w.samples
		s.KernelFrames += w.kernelFrames
		s.UserFrames += w.userFrames
		s.Unwound += w.unwound
		s.Compat += w.compat
		s.Elsewhere += w.elsewhere
		s.Guessed += w.walker.Guessed
		s.GuessedIn += w.walker.GuessedStacks
		s.UnwindNS += w.unwindTime.Nanoseconds()
		for c, n := range w.ends {
			if n > 0 {
				s.Ends[unwind.Cause(c).String()] += n
			}
		}
		w.names.Hits(frames)
		w.chainHits(frames)
		for o, counts := range w.endsIn {
			for c, n := range counts {
				if n == 0 {
					continue
				}
				if ends[o] == nil {
					ends[o] = make(map[string]uint64)
				}
				ends[o][unwind.Cause(c).String()] += n
			}
		}
	}
	for _, o := range run.objects.All() {
		hits := frames[o]
		if hits.All == 0 {
			continue
		}
		os := ObjectSummary{Name: o.Name, Path: o.Path(), Frames: hits.All, Unnamed: hits.Unnamed,
			Symbols: run.names.Symbols(o),
			BuildID: hex.EncodeToString(o.BuildID()), Ends: ends[o]}
		if err := o.Err(); err != nil {
			os.Error = err.Error()
		}
		s.Objects = append(s.Objects, os)
	}
	slices.SortStableFunc(s.Objects, func(a, b ObjectSummary) int {
		return cmp.Or(cmp.Compare(b.Frames, a.Frames), strings.Compare(a.Name, b.Name))
	})
	for _, err := range warnings {
		s.Warnings = append(s.Warnings, err.Error())
	}
	slices.Sort(s.Warnings[len(run.reader.Info().Warnings):]) // those of the header stay first, in their order
	s.Hints = run.hints(s, symbolize.Nameless(frames))
	return s
}

// Text writes the summary for people: a line on the whole, one per end of
// stacks, and one per object that could not be used.
func (s *Summary) Text(w io.Writer) {
	fmt.Fprintf(w, "%d samples, %d user and %d kernel frames", s.Samples, s.UserFrames, s.KernelFrames)
	if s.Lost > 0 {
		fmt.Fprintf(w, ", %d lost by the kernel", s.Lost)
	}
	fmt.Fprintf(w, "; %d stacks unwound\n", s.Unwound)
	for c := range unwind.NumCauses {
		stackfmt.SummaryLine(w, c.String(), s.Ends[c.String()], s.Unwound, "")
	}
	stackfmt.SummaryLine(w, "with guessed callers", s.GuessedIn, s.Unwound, fmt.Sprintf("  (%d frames)", s.Guessed))
	for _, h := range s.Hints {
		fmt.Fprintf(w, "  hint: %s\n", output.Text(h))
	}
	if s.Compat > 0 {
		fmt.Fprintf(w, "  %-32s %9d\n", "32-bit code", s.Compat)
	}
	const most = 20 // objects named; --stats has all
	n := 0
	for _, o := range s.Objects {
		if o.Error == "" {
			continue
		}
		if n++; n > most {
			continue
		}
		var ended uint64
		for cause, n := range o.Ends {
			if cause != unwind.Outermost.String() {
				ended += n
			}
		}
		fmt.Fprintf(w, "  no eh_elf: %s (%d frames, in which %d stacks end)\n", output.Text(o.Error), o.Frames, ended)
	}
	if n > most {
		fmt.Fprintf(w, "  and %d more objects without an eh_elf\n", n-most)
	}
}
