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

// Options are the settings of a Pusher.
type Options struct {
	URL      string
	Protocol *Protocol
	Header   http.Header   // of each request, to prove who sends it
	Queue    int           // profiles that may wait; 0: 16
	Tries    int           // of each; 0: 8
	First    time.Duration // wait before the second try, twice as long before each other one; 0: 500 ms
	// Failed is told of each profile that is given up, from the goroutine that sends; may be
	// nil.
	Failed func(p *Profile, err error)
	Client *http.Client // nil: one with a timeout
}

// Limits.
const (
	defaultQueue  = 16
	defaultTries  = 8
	defaultFirst  = 500 * time.Millisecond
	longestWait   = 30 * time.Second
	clientTimeout = 30 * time.Second
)

// Counts is what has become of profiles.
type Counts struct {
	Sent    int `json:"profiles_sent"`
	Failed  int `json:"profiles_not_sent"`
	Retries int `json:"retries"`
}

// Errors.
var (
	// ErrQueueFull is why a profile is given up that others wait before.
	ErrQueueFull = errors.New("the queue is full")
	// ErrRefused is wrapped if the server wants no other try.
	ErrRefused = errors.New("refused")
)

// Pusher sends profiles, one after the other.
type Pusher struct {
	opt    Options
	url    *url.URL
	queue  chan *Profile
	ctx    context.Context
	stop   context.CancelFunc
	done   chan struct{}
	mu     sync.Mutex
	counts Counts
}

// New returns a Pusher that is at work.
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
	if opt.Tries <= 0 {
		opt.Tries = defaultTries
	}
	if opt.First <= 0 {
		opt.First = defaultFirst
	}
	if opt.Client == nil {
		opt.Client = &http.Client{Timeout: clientTimeout}
	}
	p := &Pusher{opt: opt, url: u, queue: make(chan *Profile, opt.Queue), done: make(chan struct{})}
	p.ctx, p.stop = context.WithCancel(context.Background())
	go p.run()
	return p, nil
}

// Push puts a profile into the queue. Where that is full it is given up.
func (p *Pusher) Push(profile *Profile) {
	select {
	case p.queue <- profile:
	default:
		p.give(profile, ErrQueueFull)
	}
}

// Close waits until the queue is empty, but no longer than for patience; what waits then
// is given up. There must be no Push any more.
func (p *Pusher) Close(patience time.Duration) Counts {
	close(p.queue)
	timer := time.AfterFunc(patience, p.stop)
	<-p.done
	timer.Stop()
	p.stop()
	return p.Counts()
}

// Counts returns what has been counted so far.
func (p *Pusher) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

func (p *Pusher) give(profile *Profile, err error) {
	p.mu.Lock()
	p.counts.Failed++
	p.mu.Unlock()
	if p.opt.Failed != nil {
		p.opt.Failed(profile, err)
	}
}

func (p *Pusher) run() {
	defer close(p.done)
	for profile := range p.queue {
		if err := p.send(profile); err != nil {
			p.give(profile, err)
			continue
		}
		p.mu.Lock()
		p.counts.Sent++
		p.mu.Unlock()
	}
}

// send tries until it succeeds, or another try is of no use.
func (p *Pusher) send(profile *Profile) error {
	body, err := p.opt.Protocol.body(profile)
	if err != nil {
		return err
	}
	wait := p.opt.First
	for try := 1; ; try++ {
		err := p.post(profile, body)
		if err == nil || errors.Is(err, ErrRefused) || try == p.opt.Tries {
			return err
		}
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

// post makes one request.
func (p *Pusher) post(profile *Profile, body []byte) error {
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
	for k, v := range p.opt.Header {
		req.Header[k] = v
	}
	req.Header.Set("Content-Type", p.opt.Protocol.contentType)
	req.Header.Set("User-Agent", "ehasm")
	res, err := p.opt.Client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	const most = 512
	text, _ := io.ReadAll(io.LimitReader(res.Body, most))
	switch {
	case res.StatusCode/100 == 2:
		return nil
	case res.StatusCode/100 == 4 && res.StatusCode != http.StatusRequestTimeout && res.StatusCode != http.StatusTooManyRequests:
		return fmt.Errorf("%w: %s: %s", ErrRefused, res.Status, strings.TrimSpace(string(text)))
	}
	return fmt.Errorf("%s: %s", res.Status, strings.TrimSpace(string(text)))
}
