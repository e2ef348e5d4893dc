package builder

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/files/output"
)

// Errors that concern one file of a remote cache.
var (
	errNotThere = errors.New("not there")
	errLarge    = errors.New("too large for this object")
)

// Remote is a cache that another machine has filled, in a folder or below a URL. Nothing in it is believed: each file
// is proven against the object that it is for, or made here. Its methods are safe for concurrent use.
type Remote struct {
	base   string // a URL, or a folder
	client *http.Client
	down   atomic.Bool  // it has failed, or is slow: it is not asked again
	lost   atomic.Int64 // time.Duration that answers took beyond what is expected
	other  atomic.Bool  // a file of another build was named: one line for all such files
	alien  atomic.Bool  // one that is no eh_elf was named
	asked  atomic.Int64 // files that it answered for
	had    atomic.Int64 // of these, files that were there
}

// Bounds of a transfer: of the wait for an answer, of a whole file, and of its bytes beside those of the object's
// tables. The smallest files are 2 to 3 times as large as their tables.
const (
	remoteWait  = 10 * time.Second
	remoteTime  = 2 * time.Minute
	remoteExtra = 1 << 20
	remoteTimes = 4
)

// An answer is expected within a second and one more for each MB: building takes less. When a cache's answers have
// taken remoteLost longer in all, it is left alone.
const (
	remoteExpected = time.Second
	remoteLost     = time.Minute
)

// NewRemote returns the cache at from: an http or https URL, or an absolute path.
func NewRemote(from string) (*Remote, error) {
	if filepath.IsAbs(from) {
		return &Remote{base: filepath.Clean(from)}, nil
	}
	u, err := url.Parse(from)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("want http://HOST..., https://HOST..., or the absolute path of a folder")
	}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		DialContext: (&net.Dialer{Timeout: remoteWait}).DialContext, TLSHandshakeTimeout: remoteWait,
		ResponseHeaderTimeout: remoteWait,
		DisableCompression:    true, // a few bytes could become many
	}
	return &Remote{base: from, client: &http.Client{Timeout: remoteTime, Transport: t}}, nil
}

// get returns at most limit bytes of the file name, a path relative to the cache.
func (r *Remote) get(ctx context.Context, name string, limit int64) ([]byte, error) {
	body, err := r.open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%w: more than %d bytes", errLarge, limit)
	}
	return b, err
}

// open asks the server, or opens the file of a folder.
func (r *Remote) open(ctx context.Context, name string) (io.ReadCloser, error) {
	if r.client == nil {
		f, err := input.Open(filepath.Join(r.base, name))
		if errors.Is(err, fs.ErrNotExist) && r.hasFolder() {
			return nil, errNotThere
		}
		return f, err
	}
	address, err := url.JoinPath(r.base, filepath.ToSlash(name))
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", "ehasm")
	answer, err := r.client.Do(request)
	if err != nil {
		return nil, err
	}
	switch answer.StatusCode {
	case http.StatusOK:
		return answer.Body, nil
	case http.StatusNotFound, http.StatusGone:
		err = errNotThere
	default:
		err = errors.New(answer.Status)
	}
	answer.Body.Close()
	return nil, err
}

// take returns the eh_elf of the cache's path name, proven; nil if it is to be made here. Why a file is not used is
// noted, but for files that are not there. A server that fails is named once, and left alone from then on.
func (r *Remote) take(ctx context.Context, name string, table *compile.Table, id *compile.Identity, p Progress) ([]byte,
	compile.Stats) {
	if r == nil || r.down.Load() {
		return nil, compile.Stats{}
	}
	begun := time.Now()
	image, err := r.get(ctx, name, remoteExtra+remoteTimes*table.Bytes())
	if r.isSlow(time.Since(begun), len(image)) && (err == nil || errors.Is(err, errNotThere)) && !r.down.Swap(true) {
		p.Note(r.shown(), errors.New("slow; what is missing is built here"))
	}
	if err == nil || errors.Is(err, errNotThere) {
		r.asked.Add(1)
	}
	if err == nil {
		r.had.Add(1)
	}
	switch {
	case errors.Is(err, errNotThere) || ctx.Err() != nil:
		return nil, compile.Stats{}
	case errors.Is(err, errLarge) || err != nil && r.hasFolder():
		p.Note(r.shown()+"/"+filepath.ToSlash(name), fmt.Errorf("not used: %w", output.BareError(err)))
		return nil, compile.Stats{}
	case err != nil:
		if !r.down.Swap(true) {
			p.Note(r.shown(), fmt.Errorf("%w; what is missing is built here", output.BareError(bareURL(err))))
		}
		return nil, compile.Stats{}
	}
	stats, err := table.Accept(image, id)
	if err == nil {
		return image, stats
	}
	var named *atomic.Bool
	switch {
	case errors.Is(err, compile.ErrOther):
		named = &r.other
	case errors.Is(err, elfout.ErrNotEhElf): // such as a page that says that there is none
		named = &r.alien
	}
	if named != nil {
		if named.Swap(true) {
			return nil, compile.Stats{}
		}
		err = fmt.Errorf("%w; such files are built here", err)
	}
	p.Note(r.shown()+"/"+filepath.ToSlash(name), fmt.Errorf("not used: %w", err))
	return nil, compile.Stats{}
}

// end tells of a cache that had nothing: its address may be wrong.
func (r *Remote) end(p Progress) {
	if r != nil && r.asked.Load() > 0 && r.had.Load() == 0 && !r.down.Load() {
		p.Note(r.shown(), fmt.Errorf("none of %d eh_elfs is there; they are built here", r.asked.Load()))
	}
}

// isSlow adds up how much longer than expected answers took, this one of n bytes included, and reports whether it is
// too much.
func (r *Remote) isSlow(took time.Duration, n int) bool {
	took -= remoteExpected * time.Duration(1+n>>20)
	return time.Duration(r.lost.Add(int64(max(took, 0)))) > remoteLost
}

// hasFolder reports whether the cache is a folder, and there.
func (r *Remote) hasFolder() bool {
	st, err := os.Stat(r.base)
	return r.client == nil && err == nil && st.IsDir()
}

// keep looks up now what is asked for later of this system's files, which EnterRoot leaves: the server's address, or
// the proxy's, and whose certificates are trusted. A name that is not found now is not found later, either.
func (r *Remote) keep() {
	if r == nil || r.client == nil {
		return
	}
	x509.SystemCertPool() // package x509 keeps it
	request, err := http.NewRequest(http.MethodGet, r.base, nil)
	if err != nil {
		return
	}
	name := request.URL.Hostname()
	if proxy, err := http.ProxyFromEnvironment(request); err == nil && proxy != nil {
		name = proxy.Hostname()
	}
	ctx, cancel := context.WithTimeout(context.Background(), remoteWait)
	defer cancel()
	known, err := net.DefaultResolver.LookupHost(ctx, name)
	// With cgo, a look-up would run libraries of the image: libnss_*.so.
	dialer := &net.Dialer{Timeout: remoteWait, Resolver: &net.Resolver{PreferGo: true}}
	r.client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (conn net.Conn,
		failed error) {
		host, port, split := net.SplitHostPort(address)
		if split != nil || host != name {
			return dialer.DialContext(ctx, network, address)
		}
		failed = err
		for _, ip := range known {
			if conn, failed = dialer.DialContext(ctx, network, net.JoinHostPort(ip, port)); failed == nil {
				return conn, nil
			}
		}
		return nil, failed
	}
}

// shown is the cache's place for messages: without a password.
func (r *Remote) shown() string {
	if u, err := url.Parse(r.base); err == nil && r.client != nil {
		return strings.TrimSuffix(u.Redacted(), "/")
	}
	return path.Clean(r.base)
}

// bareURL leaves out what the message names already.
func bareURL(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}
