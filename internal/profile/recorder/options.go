// Package recorder records a command, processes or the system, and writes the profiles: what ehasm record does once its
// flags are read.
package recorder

import (
	"io"
	"time"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/profile/labels"
	"github.com/ehasm/ehasm/internal/profile/record"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
)

// Options are the settings of a recording. They are checked for what needs no system before Run gets them.
type Options struct {
	Target   Target
	Sampling Sampling
	Inside   Inside
	Run      Running
	Output   Output
	Push     Push
}

// Target says what is recorded; the zero value is a command.
type Target struct {
	PIDs      []int     // processes, with their children
	Selection Selection // the same, by what they are
	All       bool      // the whole system
	Cgroup    string    // with All: only this control group, a folder of /sys/fs/cgroup; "": every one
}

// Sampling says when samples are taken, and how their stacks are unwound.
type Sampling struct {
	record.Settings
	Events     Events // none: the default
	Period     uint64 // events between two samples, instead of Frequency; 0: not
	Source     dwarfcfa.Source
	TablesOnly bool // no rows are made from the code of files
}

// Inside has a library in the command sample its allocations, if Alloc is set.
type Inside struct {
	Alloc  string   // HeapLive or HeapTotal; "": not
	Period uint64   // bytes of allocations from one sample to the next, on average
	With   []string // eh_elfs are built for these files, too
}

// What Inside.Alloc counts in formats that have one value a stack.
const (
	HeapLive  = "live"
	HeapTotal = "total"
)

// Running says how long a recording goes on, in which parts it is written, and what goes with it.
type Running struct {
	Limit  time.Duration // 0: to the end of what is recorded, or a signal
	Every  time.Duration // a profile is written, or sent, each time; 0: one at the end
	Flight time.Duration // the last time is kept in memory, and written on request; 0: all is kept
	Top    bool          // functions and stacks are shown on the terminal
	Cache  bool          // new eh_elfs are kept in the user's cache
	Quiet  bool          // nothing but failures is told
}

// inParts reports whether a recording has more than one profile.
func (d *Running) inParts() bool { return d.Every+d.Flight > 0 }

// Output says where profiles go.
type Output struct {
	Path   string // "-": standard output; with Every a folder
	Named  bool   // the user has named it
	Format *stackfmt.Spec
	Names  symbolize.Options
	Labels labels.Set // of samples, in formats that have them
	Raw    string     // a perf.data file of the samples; "": none
	Stats  string     // a file of the summary as JSON; "-": standard error; "": none
}

// chains reports whether the output is a recording with call chains. It is written while samples come; other formats
// begin at the end.
func (o *Output) chains() bool { return o.Format.New == nil }

// recording returns the perf.data file to write; "": none.
func (o *Output) recording() string {
	if o.chains() {
		return o.Path
	}
	return o.Raw
}

// Push says where profiles are sent; the zero value: nowhere.
type Push struct {
	URL, Protocol, Name string
	Headers, Labels     []string
}

// Console takes what a recording tells. Its methods are safe for concurrent use.
type Console interface {
	Fail(name string, err error) // something has failed; name "": the verb
	Note(name string, err error) // something that is no failure
	Stdout() io.Writer
	Stderr() io.Writer
	// Filling returns the progress of a build of eh_elfs, whose failures are not failures of the recording.
	Filling(quiet bool) builder.Progress
}

// Error says why a command or another named thing could not be used.
type Error struct {
	Name string
	Err  error
	// NotRun says that the command could not be run: the exit status is then 126 or 127, as of env(1).
	NotRun bool
}

// Error returns the name and the cause.
func (e *Error) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap returns the cause, such as find.ErrCommandNotFound.
func (e *Error) Unwrap() error { return e.Err }

// UsageError is an error in the options that shows only when they are used: an event that this kernel does not have, a
// URL of an unknown form. Verbs report it as they do wrong flags.
type UsageError struct{ Err error }

// Error returns the error in the options.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *UsageError) Unwrap() error { return e.Err }

// failed is the exit status of a recording that failed, if the command gives no worse one.
const failed = 1
