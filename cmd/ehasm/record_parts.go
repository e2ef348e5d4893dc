//go:build linux && amd64

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ehasm/ehasm/internal/files/atomicfile"
	"github.com/ehasm/ehasm/internal/profile/push"
	"github.com/ehasm/ehasm/internal/profile/record"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/symbolize"

	"golang.org/x/sys/unix"
)

// recordParts is a recording in parts: each is written, with --every, or the last ones are
// kept, with --flight.
type recordParts struct {
	r      *recordRun
	length time.Duration
	asked  chan os.Signal
	todo   chan *record.Profile // closed at the end
	pusher *push.Pusher         // nil: the parts are written
	done   sync.WaitGroup

	// Of the goroutine that records.
	begun   time.Time
	kept    []*record.Profile
	samples uint64 // of all parts
	lost    uint64
}

// flightParts is the number of parts in which --flight drops old samples.
const flightParts = 20

// flightSize is the size of a part, see record.Session.Size, from which on it is packed at once.
const flightSize = 50000

func newParts(r *recordRun, pusher *push.Pusher) *recordParts {
	s := &recordParts{r: r, length: r.opt.every, asked: make(chan os.Signal, 1), todo: make(chan *record.Profile, 4), pusher: pusher, begun: time.Now()}
	if r.opt.flight > 0 {
		s.length = r.opt.flight / flightParts
	}
	s.done.Go(func() { s.writeAll(s.write, max(leastPatience, 2*s.length)) })
	return s
}

// A profile that is not written after leastPatience or two parts no longer holds up the next. While mostStuck are being
// written, others are dropped.
const (
	leastPatience = time.Minute
	mostStuck     = 4
)

// writeAll writes one profile after the other.
func (s *recordParts) writeAll(write func(*record.Profile), patience time.Duration) {
	running := make(chan struct{}, mostStuck)
	for p := range s.todo {
		select {
		case running <- struct{}{}:
		default:
			s.r.c.fail(s.r.opt.output, fmt.Errorf("a profile is dropped: %d before it are still not written", mostStuck))
			continue
		}
		written := make(chan struct{})
		go func() {
			write(p)
			<-running
			close(written)
		}()
		select {
		case <-written:
		case <-time.After(patience):
			s.r.c.fail(s.r.opt.output, fmt.Errorf("the profile of %s is not written after %v: going on with the next", p.Start.UTC().Format(time.RFC3339), patience))
		}
	}
}

// listen handles SIGUSR2 with --flight, until the returned function is called.
func (s *recordParts) listen() func() {
	if s.r.opt.flight == 0 {
		return func() {}
	}
	signal.Notify(s.asked, syscall.SIGUSR2)
	return func() { signal.Stop(s.asked) }
}

// each returns the function that the recording calls after each round, or nil if it
// is not in parts.
func (s *recordParts) each() func() {
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
		if time.Since(s.begun) < s.length && (s.r.opt.flight == 0 || s.r.session.Size() < flightSize) {
			return
		}
		s.cut()
		if s.r.opt.every > 0 {
			s.send(s.kept[0])
			s.kept = nil
		}
	}
}

// take ends a part.
func (s *recordParts) take() *record.Profile {
	p := s.r.session.Take()
	p.Command = s.r.title()
	s.samples += p.Counts.Samples
	s.lost += p.Counts.Lost
	return p
}

// cut ends a part, and keeps it and those before as long as they are wanted.
func (s *recordParts) cut() {
	p := s.take()
	if s.r.opt.flight > 0 {
		p.Pack()
	}
	s.kept, s.begun = append(s.kept, p), time.Now()
	kept := time.Duration(0)
	for i := len(s.kept) - 1; i >= 0; i-- {
		if kept += s.kept[i].Duration; kept > s.r.opt.flight && i > 0 {
			s.kept = append([]*record.Profile(nil), s.kept[i:]...)
			return
		}
	}
}

// send writes a profile while the recording goes on; if writing cannot keep up, the
// profile is reported and dropped.
func (s *recordParts) send(p *record.Profile) {
	select {
	case s.todo <- p:
	default:
		s.r.c.fail(s.r.opt.output, errors.New("a profile is dropped: writing takes longer than recording"))
	}
}

// write writes a profile under a name with its time.
func (s *recordParts) write(p *record.Profile) {
	opt := s.r.nameOptions()
	opt.Symbols = s.r.names
	names := symbolize.New(opt) // code compiled at run time has other names by now
	if s.pusher != nil {
		s.push(p, names)
		return
	}
	path := s.path(p.Start)
	err := s.r.writeNamed(p, path, names)
	names.Close()
	if err != nil {
		s.r.c.fail(path, err)
	} else if !s.r.opt.quiet {
		s.r.c.note(path, fmt.Errorf("%d samples of %.1f s", p.Counts.Samples, p.Duration.Seconds()))
	}
}

// path returns the name of a profile that begins at a time.
func (s *recordParts) path(start time.Time) string {
	const layout = "20060102-150405.000"
	at := start.UTC().Format(layout)
	if s.r.opt.every > 0 {
		return filepath.Join(s.r.opt.output, "ehasm-"+at+s.r.opt.suffix())
	}
	suffix := s.r.opt.suffix()
	return strings.TrimSuffix(s.r.opt.output, suffix) + "-" + at + suffix
}

// suffix returns the suffix of the output's format.
func (opt *recordOptions) suffix() string {
	for _, suffix := range opt.format.Suffixes {
		if strings.HasSuffix(opt.output, suffix) {
			return suffix
		}
	}
	if len(opt.format.Suffixes) > 0 {
		return opt.format.Suffixes[0]
	}
	return ""
}

// last adds the kept parts to the last one.
func (s *recordParts) last(p *record.Profile) *record.Profile {
	close(s.todo)
	s.done.Wait()
	p.Pack()
	return record.Join(append(s.kept, p))
}

// finish writes the last part of --every.
func (s *recordParts) finish() {
	p := s.take()
	if p.Counts.Samples > 0 {
		s.todo <- p
	}
	close(s.todo)
	s.done.Wait()
	s.r.signals.abandon()
	if s.pusher == nil {
		return
	}
	const patience = 20 * time.Second
	counts := s.pusher.Close(patience)
	if counts.Failed > 0 || !s.r.opt.quiet {
		s.r.c.note("--push", fmt.Errorf("%d profiles sent, %d not, %d tries again", counts.Sent, counts.Failed, counts.Retries))
	}
}

// push gives a profile to the Pusher.
func (s *recordParts) push(p *record.Profile, names *symbolize.Namer) {
	var b bytes.Buffer
	err := p.Write(&b, s.r.opt.format.New(stackfmt.Options{Inline: s.r.opt.names.Inline, Lines: s.r.opt.names.Lines}), false, names)
	names.Close()
	if err != nil {
		s.r.c.fail("--push", err)
		return
	}
	kind := p.Event.Kind
	if kind == "" {
		kind = p.Event.Name
	}
	s.pusher.Push(&push.Profile{Pprof: b.Bytes(), Start: p.Start, End: p.Start.Add(p.Duration), Name: s.r.serviceName(), Labels: s.r.labels, Kind: kind})
}

// newPusher returns the Pusher, or nil if profiles are not sent.
func (r *recordRun) newPusher() (*push.Pusher, error) {
	o := &r.opt.push
	if o.url == "" {
		return nil, nil
	}
	protocol, err := push.ProtocolByName(o.protocol)
	if err != nil {
		return nil, err
	}
	header, err := readHeaders(o.headers)
	if err != nil {
		return nil, err
	}
	r.labels = make(map[string]string)
	for _, l := range o.labels {
		name, value, ok := strings.Cut(l, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("label %q: want NAME=VALUE", l)
		}
		r.labels[name] = value
	}
	return push.New(push.Options{URL: o.url, Protocol: protocol, Header: header, Failed: r.notSent})
}

// serviceName returns the name under which profiles are sent.
func (r *recordRun) serviceName() string {
	switch {
	case r.opt.push.name != "":
		return r.opt.push.name
	case len(r.command) > 0:
		return filepath.Base(r.command[0])
	}
	return "ehasm"
}

// notSent keeps a profile that could not be sent, if there is a folder for it.
func (r *recordRun) notSent(p *push.Profile, err error) {
	if !r.opt.outputSet {
		r.c.fail("--push", fmt.Errorf("a profile is not sent: %w", err))
		return
	}
	path := r.parts.path(p.Start)
	if writeErr := atomicfile.WriteOutput(path, p.Pprof, atomicfile.PermText); writeErr != nil {
		r.c.fail(path, writeErr)
		return
	}
	r.c.fail(path, fmt.Errorf("kept here, not sent: %w", err))
}

// dumpFlight makes another recording write what it keeps. It checks the process first:
// the signal ends one that does not expect it.
func dumpFlight(pid int, c *console) int {
	name := fmt.Sprintf("process %d", pid)
	fd, err := unix.PidfdOpen(pid, 0) // so that the process checked is the one that gets the signal
	if err != nil {
		c.fail(name, err)
		return exitFailed
	}
	defer unix.Close(fd)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		c.fail(name, err)
		return exitFailed
	}
	caught := uint64(0)
	ours := false
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "SigCgt:"); ok {
			caught, _ = strconv.ParseUint(strings.TrimSpace(v), 16, 64)
		}
		if v, ok := strings.CutPrefix(line, "Name:"); ok {
			ours = strings.HasPrefix(strings.TrimSpace(v), "ehasm")
		}
	}
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if !ours || caught>>(syscall.SIGUSR2-1)&1 == 0 || !strings.Contains(string(args), "--flight") {
		c.fail(name, errors.New("not a recording with --flight"))
		return exitFailed
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGUSR2, nil, 0); err != nil {
		c.fail(name, err)
		return exitFailed
	}
	return exitDone
}
