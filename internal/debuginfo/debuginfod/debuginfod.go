// Package debuginfod gets executables and debug files by their build-ids from
// debuginfod servers, and keeps them where the clients of elfutils, gdb and perf keep
// theirs: debuginfod(8), debuginfod-find(1), debuginfod_find_debuginfo(3).
package debuginfod

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/input"
)

// ErrNotFound is wrapped if no server has a file.
var ErrNotFound = errors.New("no debuginfod server has it")

// Kind is the kind of file to fetch for a build-id.
type Kind string

// Kinds: the last part of the path in webapi of debuginfod(8).
const (
	Executable Kind = "executable"
	DebugInfo  Kind = "debuginfo"
)

// Client fetches files from servers. Its methods are safe for concurrent use.
type Client struct {
	URLs    []string      // of servers, asked in this order; file:///FOLDER is one, too
	Folder  string        // the cache: a folder for each build-id, as other clients have it
	Timeout time.Duration // without leastBytes from a server
	MaxTime time.Duration // for a whole file; 0: any
	MaxSize int64         // bytes of a file; 0: any
	// Begin is called before the bytes of a file arrive; size is -1 if the server
	// does not send it. May be nil.
	Begin func(from string, kind Kind, size int64)

	http  http.Client
	mu    sync.Mutex
	calls map[string]*call // by path in the cache; they stay, so each file is asked for once
}

// call is the result of a fetch, shared by all concurrent callers: workers meet the same library at the same time.
type call struct {
	sync.Once
	path string
	err  error
}

// A server must send leastBytes within defaultTimeout, or the client gives up: elfutils'
// figures.
const (
	defaultTimeout = 90 * time.Second
	leastBytes     = 100 << 10
)

// The defaults for a whole file. Chromium's debug file has 2 GB.
const (
	defaultMaxTime = 30 * time.Minute
	defaultMaxSize = 4 << 30
)

// missFor is how long a miss is remembered: elfutils' cache_miss_s.
const missFor = 10 * time.Minute

// New returns a client configured by the environment, or nil if DEBUGINFOD_URLS names no
// server. getenv is os.Getenv or like it.
func New(getenv func(string) string) *Client {
	c := &Client{URLs: strings.Fields(getenv("DEBUGINFOD_URLS")), Timeout: defaultTimeout, MaxTime: defaultMaxTime,
		MaxSize: defaultMaxSize,
		calls:   make(map[string]*call)}
	c.Folder = folder(getenv)
	if len(c.URLs) == 0 || c.Folder == "" {
		return nil
	}
	if t, ok := http.DefaultTransport.(*http.Transport); ok {
		t = t.Clone()
		t.DisableCompression = true // so that the body has the announced size
		c.http.Transport = t
	}
	c.http.CheckRedirect = staySecure
	if s, err := strconv.Atoi(getenv("DEBUGINFOD_TIMEOUT")); err == nil && s > 0 {
		c.Timeout = time.Duration(s) * time.Second
	}
	if s, err := strconv.Atoi(getenv("DEBUGINFOD_MAXTIME")); err == nil && s > 0 {
		c.MaxTime = time.Duration(s) * time.Second
	}
	if n, err := strconv.ParseInt(getenv("DEBUGINFOD_MAXSIZE"), 10, 64); err == nil && n > 0 {
		c.MaxSize = n
	}
	return c
}

// staySecure follows no redirect from https to http, where others may answer. The build-id of the answer is checked,
// but it is no signature: anyone can make a file with it.
func staySecure(next *http.Request, before []*http.Request) error {
	const most = 10 // as the default
	if len(before) >= most {
		return fmt.Errorf("stopped after %d redirects", most)
	}
	if before[0].URL.Scheme == "https" && next.URL.Scheme != "https" {
		return fmt.Errorf("redirected from https to %s", next.URL.Redacted())
	}
	return nil
}

// shown is a server's URL for messages: without its password.
func shown(from string) string {
	u, err := url.Parse(from)
	if err != nil {
		scheme, _, _ := strings.Cut(from, "://")
		return scheme + "://..."
	}
	return u.Redacted()
}

// folder returns the cache's, by the rules of debuginfod_find_debuginfo(3), so that gdb, perf and elfutils find what
// was downloaded here, and the other way round. "": there is no place for one.
func folder(getenv func(string) string) string {
	if path := getenv("DEBUGINFOD_CACHE_PATH"); path != "" {
		return path
	}
	home := getenv("HOME")
	if home != "" {
		if old := filepath.Join(home, ".debuginfod_client_cache"); isFolder(old) {
			return old
		}
	}
	if xdg := getenv("XDG_CACHE_HOME"); xdg != "" {
		return filepath.Join(xdg, "debuginfod_client")
	}
	if home == "" {
		return ""
	}
	return filepath.Join(home, ".cache", "debuginfod_client")
}

// isFolder reports whether there is a folder at a path.
func isFolder(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// Find returns the path of a file in the cache, and downloads it if necessary. A file with another build-id is an
// error. The error wraps ErrNotFound where all servers have answered that they do not have it. The first call for a
// file decides: its ctx and its error are those of all later ones.
func (c *Client) Find(ctx context.Context, buildID []byte, kind Kind) (string, error) {
	const least = 2 // bytes; the first of them names no folder by itself
	if len(buildID) < least {
		return "", fmt.Errorf("%w: no build-id", ErrNotFound)
	}
	path := filepath.Join(c.Folder, hex.EncodeToString(buildID), string(kind))
	c.mu.Lock()
	one := c.calls[path]
	if one == nil {
		one = new(call)
		c.calls[path] = one
	}
	c.mu.Unlock()
	one.Do(func() {
		if one.err = c.find(ctx, path, buildID, kind); one.err == nil {
			one.path = path
		}
	})
	return one.path, one.err
}

// find returns nil if the file is at path in the cache, where it may have put it. A file without
// permissions and bytes says that no server had it, as in elfutils.
func (c *Client) find(ctx context.Context, path string, buildID []byte, kind Kind) error {
	if st, err := os.Stat(path); err == nil {
		switch miss := st.Size() == 0 && st.Mode().Perm() == 0; { // elfutils writes a miss in this way
		case miss && time.Since(st.ModTime()) < missFor:
			return ErrNotFound
		case miss:
		case st.Mode().IsRegular():
			if err := checkFile(path, buildID); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			return nil
		default:
			return fmt.Errorf("%s: not a regular file", path)
		}
	}
	// The cache's contents are data, whoever put them there. But in another user's folder, that
	// user's links would choose where root writes and what it removes.
	if err := input.MkdirAll(filepath.Dir(path)); err != nil {
		return err
	}
	var failed error // of servers that may have it
	for _, base := range c.URLs {
		err := c.download(ctx, base, path, buildID, kind)
		if err == nil {
			return nil
		}
		switch {
		case errors.Is(err, ErrNotFound):
		case failed == nil:
			failed = err
		default:
			failed = fmt.Errorf("%w; %w", failed, err)
		}
	}
	if failed != nil {
		return failed
	}
	remember(path)
	return ErrNotFound
}

// remember records that no server has the file, in elfutils' way. If that fails, the servers are asked again next
// time.
func remember(path string) {
	_ = os.Remove(path)
	if f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0); err == nil {
		_ = f.Close()
	}
}

// download fetches a file from one server. The cache gets it only if it is complete and has the right build-id. The
// error names the server, or wraps ErrNotFound.
func (c *Client) download(ctx context.Context, base, path string, buildID []byte, kind Kind) error {
	from := strings.TrimRight(base, "/") + "/buildid/" + hex.EncodeToString(buildID) + "/" + string(kind)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.MaxTime > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, c.MaxTime)
		defer stop()
	}
	idle := time.AfterFunc(c.Timeout, cancel) // ends a download that stands still
	defer idle.Stop()
	body, size, err := c.open(ctx, from)
	if err == nil {
		defer body.Close()
		err = c.keep(&watched{body, idle, c.Timeout, 0}, size, shown(from), path, buildID, kind)
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s: not complete after %v (DEBUGINFOD_MAXTIME)", shown(from), c.MaxTime)
	}
	// The timer has fired: it ended the download.
	if err != nil && ctx.Err() != nil && !idle.Stop() {
		return fmt.Errorf("%s: no answer in %v", shown(from), c.Timeout)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // the rest is the URL
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%s: %w", shown(from), err)
	}
	return err
}

// open asks one server, and returns what it sends and how many bytes; -1: it does not say. file: URLs are folders with
// the layout of a server's paths.
func (c *Client) open(ctx context.Context, from string) (io.ReadCloser, int64, error) {
	if path, ok := strings.CutPrefix(from, "file://"); ok {
		f, err := input.Open(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, -1, ErrNotFound
		case err != nil:
			return nil, -1, err
		}
		return f, -1, nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("User-Agent", "ehasm")
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, 0, err
	}
	switch answer.StatusCode {
	case http.StatusOK:
		return answer.Body, answer.ContentLength, nil
	case http.StatusNotFound, http.StatusGone:
		err = ErrNotFound
	default:
		err = errors.New(answer.Status)
	}
	answer.Body.Close()
	return nil, 0, err
}

// watched puts off a timer at each leastBytes: a server that sends a byte a minute is as good as none.
type watched struct {
	io.Reader
	idle  *time.Timer
	after time.Duration
	since int // bytes
}

// Read reads, and puts off the timer once leastBytes have come.
func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	if w.since += n; w.since >= leastBytes {
		w.idle.Reset(w.after)
		w.since = 0
	}
	return n, err
}

// keep writes body to the cache. It gives up at once where the beginning is not the file's: a login page, say, of a
// network that wants one.
func (c *Client) keep(body io.Reader, size int64, from, path string, buildID []byte, kind Kind) error {
	if c.MaxSize > 0 && size > c.MaxSize {
		return fmt.Errorf("%d bytes, more than %d (DEBUGINFOD_MAXSIZE)", size, c.MaxSize)
	}
	head := make([]byte, headSize)
	n, err := io.ReadFull(body, head)
	if head = head[:n]; err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return err
	}
	if err := checkHead(head, buildID); err != nil {
		return err
	}
	if c.Begin != nil {
		c.Begin(from, kind, size)
	}
	f, err := create(filepath.Dir(path), string(kind))
	if err != nil {
		return err
	}
	defer f.discard()
	body = io.MultiReader(bytes.NewReader(head), body)
	if c.MaxSize > 0 { // one byte more tells that the file is too large
		body = io.LimitReader(body, c.MaxSize+1)
	}
	written, err := io.Copy(f, body)
	if c.MaxSize > 0 && written > c.MaxSize {
		err = fmt.Errorf("more than %d bytes (DEBUGINFOD_MAXSIZE)", c.MaxSize)
	}
	if err == nil {
		err = check(f, written, buildID)
	}
	const readOnly = 0o400 // as elfutils
	if err = errors.Join(err, f.Chmod(readOnly)); err != nil {
		return err
	}
	return f.keep(path)
}

// headSize is how many bytes must have come before anything is written. Nearly all files have their build-id there.
const headSize = 64 << 10

// checkHead returns an error if a file that begins with head is not an ELF file, or has another build-id there.
func checkHead(head, buildID []byte) error {
	id, err := abi.BuildID(bytes.NewReader(head))
	if errors.Is(err, abi.ErrNotELF64) {
		return err
	}
	if err == nil && id != nil && !bytes.Equal(id, buildID) {
		return fmt.Errorf("has build-id %x", id)
	}
	return nil
}

// checkFile returns an error if the file at path is not an ELF file of this build-id.
func checkFile(path string, buildID []byte) error {
	f, err := input.Open(path)
	if errors.Is(err, input.ErrEmpty) {
		err = abi.ErrNotELF64
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	return check(f, st.Size(), buildID)
}

// check returns an error if a file of size bytes is not a whole ELF file of this build-id.
func check(f io.ReaderAt, size int64, buildID []byte) error {
	id, err := abi.BuildID(f)
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("not an ELF file")
	case err != nil:
		return err
	case id == nil:
		return errors.New("no build-id")
	case !bytes.Equal(id, buildID):
		return fmt.Errorf("has build-id %x", id)
	}
	if want := leastSize(f); want > uint64(size) {
		return fmt.Errorf("cut short: %d bytes, and its section headers reach to %d", size, want)
	}
	return nil
}

// leastSize returns where the section headers of an ELF64 file end; 0: it cannot be read. Linkers write them last, so
// a file that is cut short nearly always lacks them.
func leastSize(f io.ReaderAt) uint64 {
	var h [64]byte
	if _, err := f.ReadAt(h[:], 0); err != nil {
		return 0
	}
	le := binary.LittleEndian
	end := le.Uint64(h[40:]) + uint64(le.Uint16(h[58:]))*uint64(le.Uint16(h[60:])) // e_shoff, e_shentsize, e_shnum
	return max(end, le.Uint64(h[40:]))
}
