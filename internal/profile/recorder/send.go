//go:build linux && amd64

package recorder

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/profile/push"
	"github.com/ehasm/ehasm/internal/profile/record"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
)

// This file sends parts to a server. Package push has queues, retries and protocols; here profiles are written as pprof
// and get the names and labels of the service.

// push gives a profile to the Pusher, which sends it later. It ends with names. One that cannot be written is
// reported and dropped: it would fail in the same way again.
func (s *parts) push(p *record.Profile, names *symbolize.Namer) {
	status := s.status(p)
	p.Notes = append(p.Notes, status)
	var b bytes.Buffer
	err := p.Write(&b, s.r.newFormat(), false, names)
	names.Close()
	if err != nil {
		s.r.c.Fail("--push", err)
		return
	}
	kind := p.Event.Kind
	if kind == "" {
		kind = p.Event.Name
	}
	s.sender.pusher.Push(&push.Profile{Pprof: b.Bytes(), Start: p.Start, End: p.Start.Add(p.Duration),
		Name: s.r.serviceName(), Labels: s.sender.labels, Kind: kind})
	if !s.r.opt.Run.Quiet && s.sender.due() {
		waiting := s.sender.pusher.Waiting()
		counts := s.sender.pusher.Counts()
		s.r.c.Note("--push", fmt.Errorf("%s; %d profiles sent, %d not, %d waiting (%d KB)", status, counts.Sent,
			counts.Failed, waiting.Profiles, waiting.Bytes>>10))
	}
}

// sender sends profiles.
type sender struct {
	pusher *push.Pusher
	labels map[string]string

	mu   sync.Mutex
	told time.Time // when the last status was told
}

// statusEvery is how often a recording that sends profiles tells how it goes.
const statusEvery = time.Minute

// due reports whether it is time for the next status, which is then told.
func (s *sender) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.told) < statusEvery {
		return false
	}
	s.told = time.Now()
	return true
}

// newSender returns nil if profiles are not sent. Errors are about the options: it makes no connection, since the
// server may start after the recorder.
func (r *run) newSender() (*sender, error) {
	o := &r.opt.Push
	if o.URL == "" {
		return nil, nil
	}
	protocol, err := push.ProtocolByName(o.Protocol)
	if err != nil {
		return nil, err
	}
	header, err := readHeaders(o.Headers)
	if err != nil {
		return nil, err
	}
	labels := make(map[string]string)
	for _, l := range o.Labels {
		name, value, ok := strings.Cut(l, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("label %q: want NAME=VALUE", l)
		}
		labels[output.Text(name)] = output.Text(value)
	}
	pusher, err := push.New(push.Options{URL: o.URL, Protocol: protocol, Header: header, Failed: r.notSent})
	if err != nil {
		return nil, err
	}
	return &sender{pusher: pusher, labels: labels}, nil
}

// serviceName returns the name under which profiles are sent. The protocols' strings are UTF-8, names of files need not
// be.
func (r *run) serviceName() string { return output.Text(r.service()) }

// service returns the name as it is: --push-name's, else the command's, else ehasm's, for the whole system.
func (r *run) service() string {
	switch {
	case r.opt.Push.Name != "":
		return r.opt.Push.Name
	case len(r.command) > 0:
		return filepath.Base(r.command[0])
	}
	return "ehasm"
}

// notSent keeps a profile that could not be sent, if there is a folder for it. The Pusher calls it, after its last
// try.
func (r *run) notSent(p *push.Profile, err error) {
	if !r.opt.Output.Named {
		r.c.Fail("--push", fmt.Errorf("a profile is not sent: %w", err))
		return
	}
	path := r.opt.partPath(p.Start)
	if writeErr := output.WriteOutput(path, p.Pprof, output.PermText); writeErr != nil {
		r.c.Fail(path, writeErr)
		return
	}
	r.c.Fail(path, fmt.Errorf("kept here, not sent: %w", err))
}
