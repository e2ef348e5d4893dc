//go:build linux && amd64

package recorder

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ehasm/ehasm/internal/profile/record"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
)

// This file divides a long recording into profiles. One goroutine records and ends parts, between two rounds of
// reading; another names and writes them, so that a slow disk or server does not make the kernel lose samples. What
// waits between the two is bounded, and what is dropped is told.

// parts is a recording in parts: each is written, with --every, or the last ones are
// kept, with --flight.
type parts struct {
	r      *run
	length time.Duration        // of a part, unless it gets too large before
	asked  chan os.Signal       // SIGUSR2, with --flight; one waits at most
	todo   chan *record.Profile // closed at the end
	sender *sender              // nil: the parts are written
	done   sync.WaitGroup
	usage  *usage
	size   atomic.Int64 // of the profiles that wait, or are being written
	took   atomic.Int64 // ns, to write or send profiles

	// Of the goroutine that records.
	begun time.Time
	kept  []*record.Profile
	all   record.Stats // of all parts
}

// flightParts is the number of parts in which --flight drops old samples: it keeps up to a twentieth more than was
// asked for, and never less once it has run that long.
const flightParts = 20

// flightSize is the size of a part, see record.Session.Size, from which on it is packed at once: about 5 MB. So the
// memory of --flight is for packed profiles and one part.
const flightSize = 50000

// Bounds on the memory of --every, in the unit of record.Session.Size, which takes about 100 bytes. A part that is
// larger ends early; one is dropped if more would wait to be written.
const (
	largestPart = 1 << 19
	mostWaiting = 1 << 20
)

// newParts begins the first part, and the goroutine that writes. to is nil if profiles are files. last or finish must
// be called.
func newParts(r *run, to *sender) *parts {
	s := &parts{r: r, length: r.opt.Run.Every, asked: make(chan os.Signal, 1), todo: make(chan *record.Profile, 4),
		sender: to, begun: time.Now(), usage: newUsage()}
	if r.opt.Run.Flight > 0 {
		s.length = r.opt.Run.Flight / flightParts
	}
	// Two parts' time, as each is written while the next is recorded: a writer that needs longer will never catch up.
	s.done.Go(func() { s.writeAll(s.write, max(leastPatience, 2*s.length)) })
	return s
}

// A profile that is not written after leastPatience or two parts no longer holds up the next. While mostStuck are being
// written, others are dropped.
const (
	leastPatience = time.Minute
	mostStuck     = 4
)

// writeAll writes one profile after the other, until todo is closed, in a goroutine each: writes to a file system that
// hangs never return. It does not wait for those that it has given up.
func (s *parts) writeAll(write func(*record.Profile), patience time.Duration) {
	running := make(chan struct{}, mostStuck)
	for p := range s.todo {
		select {
		case running <- struct{}{}:
		default:
			s.size.Add(-int64(p.Size()))
			s.r.c.Fail(s.r.opt.Output.Path, fmt.Errorf("a profile is dropped: %d before it are still not written", mostStuck))
			continue
		}
		written := make(chan struct{})
		go func() {
			write(p)
			s.size.Add(-int64(p.Size()))
			<-running
			close(written)
		}()
		select {
		case <-written:
		case <-time.After(patience):
			s.r.c.Fail(s.r.opt.Output.Path, fmt.Errorf("the profile of %s is not written after %v: going on with the next",
				p.Start.UTC().Format(time.RFC3339), patience))
		}
	}
}

// listen handles SIGUSR2 with --flight, until the returned function is called.
func (s *parts) listen() func() {
	if s.r.opt.Run.Flight == 0 {
		return func() {}
	}
	signal.Notify(s.asked, syscall.SIGUSR2)
	return func() { signal.Stop(s.asked) }
}

// each returns the function that the recording calls after each round, or nil if it is not in parts. It is called on
// the goroutine that records, which owns the session, so parts can be taken without a lock.
func (s *parts) each() func() {
	if s == nil {
		return nil
	}
	return func() {
		select {
		case <-s.asked:
			s.cut()
			s.send(record.Join(s.kept))
		default:
		}
		largest := largestPart
		if s.r.opt.Run.Flight > 0 {
			largest = flightSize
		}
		if time.Since(s.begun) < s.length && s.r.session.Size() < largest {
			return
		}
		s.cut()
		if s.r.opt.Run.Every > 0 {
			s.send(s.kept[0])
			s.kept = nil
		}
	}
}

// take ends a part. Call it on the goroutine that records, or after that has ended.
func (s *parts) take() *record.Profile {
	p := s.r.session.Take()
	p.Command = s.r.title()
	s.all.Add(p.Stats(0))
	return p
}

// cut ends a part, and keeps it and those before as long as they are wanted: with --every that is none.
func (s *parts) cut() {
	p := s.take()
	if s.r.opt.Run.Flight > 0 {
		p.Pack()
	}
	s.kept, s.begun = append(s.kept, p), time.Now()
	kept := time.Duration(0)
	for i := len(s.kept) - 1; i >= 0; i-- {
		if kept += s.kept[i].Duration; kept > s.r.opt.Run.Flight && i > 0 {
			// copied, as a part of the old array would keep those before alive
			s.kept = append([]*record.Profile(nil), s.kept[i:]...)
			return
		}
	}
}

// send writes a profile while the recording goes on; if writing cannot keep up, the profile is reported and dropped.
// It never waits. A profile that is alone is taken whatever its size, as there is nothing to wait for.
func (s *parts) send(p *record.Profile) {
	size := int64(p.Size())
	if before := s.size.Add(size) - size; before == 0 || before+size <= mostWaiting {
		select {
		case s.todo <- p:
			return
		default:
		}
	}
	s.size.Add(-size)
	s.r.c.Fail(s.r.opt.Output.Path, errors.New("a profile is dropped: writing takes longer than recording"))
}

// write writes a profile under a name with its time.
func (s *parts) write(p *record.Profile) {
	defer debug.FreeOSMemory() // what was read of files to write it, and since the last time
	begin := time.Now()
	defer func() { s.took.Add(int64(time.Since(begin))) }()
	// symbols of files are shared with other parts
	opt := s.r.nameOptions()
	opt.Symbols = s.r.names
	names := symbolize.New(opt) // code compiled at run time has other names by now
	if s.sender != nil {
		s.push(p, names)
		return
	}
	path := s.r.opt.partPath(p.Start)
	err := s.r.writeNamed(p, path, names)
	names.Close()
	if err != nil {
		s.r.c.Fail(path, err)
	} else if !s.r.opt.Run.Quiet {
		s.r.c.Note(path, errors.New(s.status(p)))
	}
}

// status says what a part holds, and what recording it took.
func (s *parts) status(p *record.Profile) string {
	return fmt.Sprintf("%s of %.1f s, %d lost; %s", stackfmt.Number(p.Counts.Samples, "sample"), p.Duration.Seconds(), p.Counts.Lost,
		s.usage.text())
}

// partPath returns the name of a profile that begins at a time.
func (opt *Options) partPath(start time.Time) string {
	// In UTC, so that names sort by time also when clocks change; with milliseconds, as SIGUSR2 may come twice a second.
	const layout = "20060102-150405.000"
	out, begun := &opt.Output, start.UTC().Format(layout)
	suffix := out.suffix()
	if opt.Run.Every > 0 {
		return filepath.Join(out.Path, "ehasm-"+begun+suffix)
	}
	return strings.TrimSuffix(out.Path, suffix) + "-" + begun + suffix
}

// suffix returns the suffix of the output's format: the path's, if it is one of the format's, else the usual
// one. "": the format has none.
func (opt *Output) suffix() string {
	for _, suffix := range opt.Format.Suffixes {
		if strings.HasSuffix(opt.Path, suffix) {
			return suffix
		}
	}
	if len(opt.Format.Suffixes) > 0 {
		return opt.Format.Suffixes[0]
	}
	return ""
}

// last adds the kept parts to the last one, p, for --flight: the recording ends with what it has kept. It waits for
// those that are being written.
func (s *parts) last(p *record.Profile) *record.Profile {
	close(s.todo)
	s.done.Wait()
	p.Pack()
	return record.Join(append(s.kept, p))
}

// finish writes the last part of --every, waits for all that are being written, and closes the sender. The recording
// has ended, so it may wait: nothing is lost meanwhile.
func (s *parts) finish() {
	p := s.take()
	if p.Counts.Samples > 0 {
		s.size.Add(int64(p.Size()))
		s.todo <- p
	}
	close(s.todo)
	s.done.Wait()
	// those that writeAll has given up would leave temporary files
	s.r.signals.abandon()
	if s.sender == nil {
		return
	}
	// for a server that is restarting; Kubernetes gives a process 30 s after SIGTERM before it kills it
	const patience = 20 * time.Second
	counts := s.sender.pusher.Close(patience)
	if counts.Failed > 0 || !s.r.opt.Run.Quiet {
		s.r.c.Note("--push", fmt.Errorf("%d profiles sent, %d not, %d tries again", counts.Sent, counts.Failed,
			counts.Retries))
	}
}
