package push

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// This file sends profiles from a queue in the background: retries with growing pauses, bounds on
// waiting profiles and bytes, and a last chance at the end of the recording.

// Options are the settings of a Pusher.
type Options struct {
	URL      string // http or https; a path overrides the protocol's
	Protocol *Protocol
	Header   http.Header   // added to each request, for authentication
	Queue    int           // profiles that may wait; 0: 16
	Bytes    int           // of the profiles that may wait, with the one being sent; 0: 32 MB
	Tries    int           // of each; 0: 8
	First    time.Duration // wait before the second try, twice as long before each other one; 0: 500 ms
	// Failed is called, on the sending goroutine, for each profile that is given up. May be
	// nil.
	Failed func(p *Profile, err error)
	Client *http.Client // nil: one with a timeout
}

// Limits.
const (
	defaultQueue  = 16
	defaultBytes  = 32 << 20
	defaultTries  = 8
	defaultFirst  = 500 * time.Millisecond
	longestWait   = 30 * time.Second // upper bound of the growing wait
	clientTimeout = 30 * time.Second // of one request, with its answer
)

// Counts counts profiles by outcome.
type Counts struct {
	Sent    int `json:"profiles_sent"`     // accepted by the server
	Failed  int `json:"profiles_not_sent"` // given up: see Options.Failed
	Retries int `json:"retries"`           // tries after the first
}

// Errors.
var (
	// ErrQueueFull is the error of a profile that did not fit the queue.
	ErrQueueFull = errors.New("the queue is full")
	// ErrClosed is the error of a profile that came after Close.
	ErrClosed = errors.New("the recording has ended")
	// ErrRefused is wrapped if the server refuses for good, so that there is no
	// retry.
	ErrRefused = errors.New("refused")
)

// Pusher sends profiles, one after the other.
type Pusher struct {
	opt     Options // with defaults set; not changed
	url     *url.URL
	queue   chan *Profile   // closed by Close
	ctx     context.Context // ends when Close loses patience
	stop    context.CancelFunc
	done    chan struct{} // closed when the sending goroutine has ended
	mu      sync.Mutex    // guards what follows
	counts  Counts
	waiting Waiting // with the one that is being sent
	closed  bool    // push gives up from now on
}

// Waiting counts the profiles that are neither sent nor given up.
type Waiting struct{ Profiles, Bytes int }

// New returns a running Pusher.
func New(opt Options) (*Pusher, error) {
	u, err := url.Parse(opt.URL)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q: want http://HOST[:PORT][/PATH] or https://", opt.URL)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = opt.Protocol.path
	}
	if opt.Queue <= 0 {
		opt.Queue = defaultQueue
	}
	if opt.Bytes <= 0 {
		opt.Bytes = defaultBytes
	}
	if opt.Tries <= 0 {
		opt.Tries = defaultTries
	}
	if opt.First <= 0 {
		opt.First = defaultFirst
	}
	client := http.Client{Timeout: clientTimeout}
	if opt.Client != nil {
		client = *opt.Client
	}
	// The client is a copy, so that the caller's keeps its own redirects.
	client.CheckRedirect = sameServer
	opt.Client = &client
	p := &Pusher{opt: opt, url: u, queue: make(chan *Profile, opt.Queue), done: make(chan struct{})}
	p.ctx, p.stop = context.WithCancel(context.Background())
	go p.run()
	return p, nil
}

// Push queues a profile. If the queue is full, or closed, the profile is given up.
func (p *Pusher) Push(profile *Profile) {
	if err := p.enqueue(profile); err != nil {
		p.give(profile, err)
	}
}

// enqueue adds a profile to the queue, if it is open and has room.
func (p *Pusher) enqueue(profile *Profile) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	// One profile may always wait, however large.
	if p.waiting.Profiles > 0 && p.waiting.Bytes+len(profile.Pprof) > p.opt.Bytes {
		return ErrQueueFull
	}
	// Never block the recorder.
	select {
	case p.queue <- profile:
		p.waiting.Profiles++
		p.waiting.Bytes += len(profile.Pprof)
		return nil
	default:
		return ErrQueueFull
	}
}

// Waiting returns how much waits now.
func (p *Pusher) Waiting() Waiting {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting
}

// settle counts a profile that has waited as sent, or not.
func (p *Pusher) settle(profile *Profile, sent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting.Profiles--
	p.waiting.Bytes -= len(profile.Pprof)
	if sent {
		p.counts.Sent++
	}
}

// Close waits until the queue is empty, but at most for patience; profiles that still
// wait are given up.
func (p *Pusher) Close(patience time.Duration) Counts {
	p.mu.Lock()
	// Under the lock, so that no Push sends on a closed channel.
	p.closed = true
	close(p.queue)
	p.mu.Unlock()
	// Out of patience: the request in progress is cancelled, and those after it fail at once.
	timer := time.AfterFunc(patience, p.stop)
	<-p.done
	timer.Stop()
	p.stop()
	return p.Counts()
}

// Counts returns the counts so far.
func (p *Pusher) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// give counts a profile as given up, and reports it.
func (p *Pusher) give(profile *Profile, err error) {
	p.mu.Lock()
	p.counts.Failed++
	p.mu.Unlock()
	if p.opt.Failed != nil {
		p.opt.Failed(profile, err)
	}
}

// run sends until the queue is closed and empty. It is the one goroutine that sends.
func (p *Pusher) run() {
	defer close(p.done)
	for profile := range p.queue {
		err := p.send(profile)
		p.settle(profile, err == nil)
		if err != nil {
			p.give(profile, err)
		}
	}
}

// send tries until it succeeds or a retry cannot help.
func (p *Pusher) send(profile *Profile) error {
	// The body is made once for all tries.
	body, err := p.opt.Protocol.body(profile)
	if err != nil {
		return err
	}
	wait := p.opt.First
	for try := 1; ; try++ {
		err := p.post(profile, body)
		// A refusal is final; other errors may pass.
		if err == nil || errors.Is(err, ErrRefused) || try == p.opt.Tries {
			return err
		}
		// Close may end the wait.
		select {
		case <-p.ctx.Done():
			return fmt.Errorf("given up at the end: %w", err)
		case <-time.After(wait):
		}
		wait = min(2*wait, longestWait)
		p.mu.Lock()
		p.counts.Retries++
		p.mu.Unlock()
	}
}

// sameServer follows a redirect only where that sends the same request to the same server: after 301, 302 and 303 it
// would have no body, and no other server may have the profile or the headers.
func sameServer(next *http.Request, before []*http.Request) error {
	first := before[0]
	const most = 10 // redirects, as by the default of net/http
	if next.Method != first.Method || next.URL.Scheme != first.URL.Scheme || next.URL.Host != first.URL.Host ||
		len(before) > most {
		return http.ErrUseLastResponse
	}
	return nil
}

// post makes one request.
func (p *Pusher) post(profile *Profile, body []byte) error {
	// A copy: the query differs from profile to profile.
	u := *p.url
	if p.opt.Protocol.query != nil {
		q := u.Query()
		for k, v := range p.opt.Protocol.query(profile) {
			q[k] = v
		}
		u.RawQuery = q.Encode()
	}
	req, err := http.NewRequestWithContext(p.ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	// The user's headers first; two of them are fixed.
	for k, v := range p.opt.Header {
		req.Header[k] = v
	}
	req.Header.Set("Content-Type", p.opt.Protocol.contentType)
	if p.opt.Protocol.encoding != "" {
		req.Header.Set("Content-Encoding", p.opt.Protocol.encoding)
	}
	req.Header.Set("User-Agent", "ehasm")
	res, err := p.opt.Client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	// The beginning of an answer explains a refusal.
	const most = 512
	text, _ := io.ReadAll(io.LimitReader(res.Body, most))
	switch {
	case res.StatusCode/100 == 2:
		return nil
	case res.StatusCode/100 == 3:
		return fmt.Errorf("%w: %s to %s, which is not followed", ErrRefused, res.Status, res.Header.Get("Location"))
	// 4xx says that the request is wrong: trying again would not help, except after a timeout or
	// too many requests.
	case res.StatusCode/100 == 4 && res.StatusCode != http.StatusRequestTimeout &&
		res.StatusCode != http.StatusTooManyRequests:
		return fmt.Errorf("%w: %s: %s", ErrRefused, res.Status, strings.TrimSpace(string(text)))
	}
	return fmt.Errorf("%s: %s", res.Status, strings.TrimSpace(string(text)))
}
