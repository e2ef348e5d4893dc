//go:build linux && amd64

package recorder

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ehasm/ehasm/internal/files/host"
	"github.com/ehasm/ehasm/internal/files/output"
)

// writeSignals handles the signals that end a recorder. While it records they are passed to run.wait. While a profile
// is written, the recorder's second signal ends it and leaves no partial file; a first one only says so: an hour's
// profile should not be lost to one ^C. stop must be called.
type writeSignals struct {
	c         Console
	arrived   chan os.Signal
	recording chan os.Signal // those that arrive while no profile is written

	mu     sync.Mutex
	writes bool      // a profile is being written
	seen   int       // signals so far, also while samples were read
	last   os.Signal // the last that counted, and when
	when   time.Time
	open   []*output.File // they are removed when a signal gives up
}

// catchWriteSignals begins to handle SIGINT, SIGTERM and SIGHUP, on a goroutine that ends with stop. SIGINT counts
// even if it was ignored, as a shell without job control has it for what it starts with &: scripts end a recording by
// kill -INT.
func catchWriteSignals(c Console) *writeSignals {
	s := &writeSignals{c: c, arrived: make(chan os.Signal, 8), recording: make(chan os.Signal, 8)}
	signal.Notify(s.arrived, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as by nohup(1), which the command should inherit, too
		signal.Notify(s.arrived, syscall.SIGHUP)
	}
	go func() {
		for got := range s.arrived {
			s.take(got, time.Now())
		}
	}()
	return s
}

// stop gives the signals back their default actions. No signal is handled after it.
func (s *writeSignals) stop() {
	signal.Stop(s.arrived)
	close(s.arrived)
}

// writing says whether a profile is written from now on. A second signal that the recording had no time for counts.
func (s *writeSignals) writing(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = on
	if on && len(s.recording) > 0 && s.seen > 1 {
		s.giveUp(<-s.recording)
	}
}

// take handles a signal that came at a time. A repeated one is the same: see host.Repeated.
func (s *writeSignals) take(got os.Signal, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if got == s.last && now.Sub(s.when) < host.Repeated {
		return
	}
	s.last, s.when = got, now
	s.seen++
	switch {
	case !s.writes:
		select {
		case s.recording <- got:
		default:
		}
	case s.seen == 1:
		// the reader of messages may hang
		go s.c.Note("interrupted", errors.New("the profile is being written; once more to give up"))
	default:
		s.giveUp(got)
	}
}

// giveUp removes what is being written, if that is possible soon, and ends the process. The caller holds mu.
func (s *writeSignals) giveUp(got os.Signal) {
	soon(func() {
		abort(s.open)
		s.c.Note("interrupted again", errors.New("the profile is not written"))
	})
	n, _ := got.(syscall.Signal)
	os.Exit(host.BySignal + int(n))
}

// abandon removes the files that are still being written, by goroutines that hang. Their writes fail afterwards.
func (s *writeSignals) abandon() {
	s.mu.Lock()
	open := slices.Clone(s.open)
	s.mu.Unlock()
	soon(func() { abort(open) })
}

func abort(list []*output.File) {
	for _, f := range list {
		f.Abort()
	}
}

// soon calls f, and does not wait long for it: a file system may hang, or the reader of messages.
func soon(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	const patience = 2 * time.Second // after the ^C that should end everything
	select {
	case <-done:
	case <-time.After(patience):
	}
}

// guard removes f if a signal gives up, until the returned function is called.
func (s *writeSignals) guard(f *output.File) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, f)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open = slices.DeleteFunc(s.open, func(o *output.File) bool { return o == f })
	}
}
