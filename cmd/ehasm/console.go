package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/files/output"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// This file is the way from verbs to the terminal: results, failures, notes and progress bars. All
// lines of stderr pass through one lock, so that workers do not mix them.

// console takes the output of a verb: results go to out, everything else goes
// to stderr as lines, above the progress bar if there is one. Its methods are
// safe for concurrent use; out may be used by one goroutine.
type console struct {
	out    *flushed
	stderr io.Writer

	mu sync.Mutex
	// As written, without "ehasm: "; --json repeats them.
	failures []string // lines written by fail
	// Later messages are dropped.
	closed bool                     // the verb has returned
	bar    *progressbar.ProgressBar // nil while no bar is shown

	files, done int // of the bar of build
}

// flushed is standard output; it remembers that writing failed.
type flushed struct {
	*bufio.Writer
	err error     // the first error of Flush, which decides the exit status
	w   io.Writer // the file below the buffer, to ask whether it is a terminal
}

// Flush writes the buffer out and keeps its error.
func (o *flushed) Flush() error {
	if err := o.Writer.Flush(); err != nil {
		o.err = err
	}
	return o.err
}

// newConsole returns a console without a bar. stdout is buffered until Flush.
func newConsole(stdout, stderr io.Writer) *console {
	return &console{out: &flushed{Writer: bufio.NewWriter(stdout), w: stdout}, stderr: stderr}
}

// fail reports a failure in one line that names file, place and cause, and makes the exit status at least exitFailed.
func (c *console) fail(path string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.failures = append(c.failures, c.line(path, err))
	}
}

// note reports something that is not a failure.
func (c *console) note(path string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.line(path, err)
	}
}

// close ends the console for workers that an interruption left behind, and reports whether there was a failure. What
// they say later would come after the prompt of the shell.
func (c *console) close() (failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return len(c.failures) > 0
}

// line writes a message above the bar and returns its text. The caller holds mu.
func (c *console) line(path string, err error) string {
	text := output.Name(path) + ": " + output.ErrorText(path, err)
	if c.bar != nil {
		c.bar.Clear()
	}
	fmt.Fprintf(c.stderr, "ehasm: %s\n", text)
	if c.bar != nil {
		c.bar.RenderBlank()
	}
	return text
}

// isTerminal reports whether w is a file that is a terminal. Tests pass buffers, which are none.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// startBuilding shows a progress bar for n files if stderr is a terminal. work is
// the sum of the arguments of advance.
func (c *console) startBuilding(n int, work int64) {
	c.files, c.done = n, 0
	c.newBar(work, c.building())
}

// building returns the text beside the bar of build. The caller holds mu, or is the only goroutine.
func (c *console) building() string { return fmt.Sprintf("compiling, %d/%d files", c.done, c.files) }

// startReading shows a progress bar for a file of size bytes; -1: not known.
func (c *console) startReading(size int64) {
	c.newBar(size, reading(0), progressbar.OptionShowCount(), progressbar.OptionShowBytes(true),
		progressbar.OptionUseIECUnits(true))
}

// reading returns the text beside the bar of script.
func reading(samples uint64) string { return fmt.Sprintf("reading, %d samples", samples) }

// newBar shows a bar with n steps; n < 0: a spinner, for work of unknown length. Without a terminal the console stays
// without a bar, and all calls that move it do nothing, so verbs need not ask.
func (c *console) newBar(n int64, what string, more ...progressbar.Option) {
	if !isTerminal(c.stderr) || os.Getenv("TERM") == "dumb" { // which cannot go back in a line
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bar = progressbar.NewOptions64(n, append(more,
		progressbar.OptionSetWriter(c.stderr),
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(50*time.Millisecond), // workers report thousands of steps a second
		progressbar.OptionFullWidth(),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetRenderBlankState(true),
	)...)
}

// hasRead moves the bar to the reader's offset in the file.
func (c *console) hasRead(offset int64, samples uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar != nil {
		c.bar.Describe(reading(samples))
		c.bar.Set64(offset)
	}
}

// advance moves the bar by one file; work is the file's part of startBuilding's sum.
func (c *console) advance(work int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar != nil {
		c.done++
		c.bar.Describe(c.building())
		c.bar.Add64(work)
	}
}

// advanceBy moves the bar by n.
func (c *console) advanceBy(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar != nil {
		c.bar.Add(n)
	}
}

// stopBar removes the bar from the screen.
func (c *console) stopBar() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar != nil {
		c.bar.Clear()
		c.bar.Exit()
		c.bar = nil
	}
}

// reporter is the console as the packages have it that do the work of verbs: they report failures, but leave exit
// statuses to the verb.
type reporter struct {
	c    *console
	verb string // for messages without a name
}

// Fail reports a failure.
func (r reporter) Fail(name string, err error) { r.c.fail(cmp.Or(name, r.verb), err) }

// Note reports something that is no failure.
func (r reporter) Note(name string, err error) { r.c.note(cmp.Or(name, r.verb), err) }

// Stdout is buffered; the verb's end flushes it.
func (r reporter) Stdout() io.Writer { return r.c.out }

// Stderr is written without the console's lock: for summaries, after the bar and the workers have ended.
func (r reporter) Stderr() io.Writer { return r.c.stderr }

// Filling returns the progress of a build for the cache.
func (r reporter) Filling(quiet bool) builder.Progress { return filling(r.c, quiet) }
