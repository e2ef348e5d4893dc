//go:build linux && amd64

package main

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"github.com/ehasm/ehasm/internal/atomicfile"
)

// writeSignals handles signals while a profile is written: at the first it says that the
// profile is being written, at the second it gives up and leaves no partial file. While
// recording, signals mean something else; see recordRun.wait.
type writeSignals struct {
	c       *console
	arrived chan os.Signal // nil: all are ignored

	mu   sync.Mutex
	open []*atomicfile.File // they are removed at the second signal
}

func catchWriteSignals(c *console) *writeSignals {
	s := &writeSignals{c: c}
	if catch := slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored); len(catch) > 0 {
		s.arrived = make(chan os.Signal, 8)
		signal.Notify(s.arrived, catch...)
	}
	return s
}

func (s *writeSignals) stop() {
	if s.arrived != nil {
		signal.Stop(s.arrived)
		close(s.arrived)
	}
}

// writing starts the handling. Signals that arrived before were for the recording.
func (s *writeSignals) writing() {
	for range len(s.arrived) {
		<-s.arrived
	}
	go func() {
		if _, ok := <-s.arrived; !ok {
			return
		}
		s.c.note("interrupted", errors.New("the profile is being written; once more to give up"))
		got, ok := <-s.arrived
		if !ok {
			return
		}
		s.mu.Lock()
		for _, f := range s.open {
			f.Abort()
		}
		n, _ := got.(syscall.Signal)
		os.Exit(exitBySignal + int(n))
	}()
}

// guard removes f if a signal gives up, until the returned function is called.
func (s *writeSignals) guard(f *atomicfile.File) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, f)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open = slices.DeleteFunc(s.open, func(o *atomicfile.File) bool { return o == f })
	}
}
