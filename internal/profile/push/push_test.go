package push

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sample returns a profile, which the protocol pprof sends as it is.
func sample() *Profile {
	start := time.Unix(1700000000, 0)
	return &Profile{Pprof: []byte("a profile"), Start: start, End: start.Add(15 * time.Second), Name: "shop",
		Labels: map[string]string{"zone": "b"}, Kind: "cpu"}
}

func protocol(t *testing.T, name string) *Protocol {
	p, err := ProtocolByName(name)
	require.NoError(t, err)
	return p
}

// TestPprof: the file is sent as it is, and tried again while the server has troubles.
func TestPprof(t *testing.T) {
	calls := 0
	want := sample()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		if calls < 3 {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		assert.Equal(t, "/ingest", r.URL.Path)
		assert.Equal(t, "shop", r.URL.Query().Get("name"))
		assert.Equal(t, "1700000015", r.URL.Query().Get("until"))
		assert.Equal(t, "k", r.URL.Query().Get("key"))
		b, _ := io.ReadAll(r.Body)
		assert.Equal(t, want.Pprof, b)
	}))
	defer server.Close()
	p, err := New(Options{URL: server.URL + "/ingest?key=k", Protocol: protocol(t, "pprof"), First: time.Millisecond})
	require.NoError(t, err)
	p.Push(want)
	assert.Equal(t, Counts{Sent: 1, Retries: 2}, p.Close(time.Minute))
}

// TestGivenUp: what is refused is not tried again, what finds no place in the queue or is not
// sent at the end is told.
func TestGivenUp(t *testing.T) {
	status := http.StatusUnauthorized
	calls := 0
	hold := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		<-hold
		http.Error(w, "who are you?", status)
	}))
	defer server.Close()
	var errs []error
	var mu sync.Mutex
	opt := Options{URL: server.URL, Protocol: protocol(t, "pprof"), Queue: 1, First: time.Hour,
		Failed: func(_ *Profile, err error) { mu.Lock(); errs = append(errs, err); mu.Unlock() }}
	p, err := New(opt)
	require.NoError(t, err)
	for range 5 {
		p.Push(sample())
	}
	full := p.Counts().Failed
	assert.GreaterOrEqual(t, full, 3, "one is being sent, one waits")
	close(hold)
	c := p.Close(time.Minute)
	assert.Equal(t, Counts{Failed: 5}, c)
	assert.Equal(t, 5-full, calls)
	assert.ErrorIs(t, errs[0], ErrQueueFull)
	assert.ErrorIs(t, errs[4], ErrRefused)
	assert.ErrorContains(t, errs[4], "who are you?")

	status = http.StatusInternalServerError
	errs = nil
	p, err = New(opt)
	require.NoError(t, err)
	p.Push(sample())
	assert.Equal(t, Counts{Failed: 1}, p.Close(10*time.Millisecond), "the second try would come in an hour")
	assert.Len(t, errs, 1)
}

// TestRedirects: a profile that a redirect would not bring, or would bring elsewhere, is not sent;
// headers go to no other server.
func TestRedirects(t *testing.T) {
	var mu sync.Mutex
	var elsewhere, here []string
	note := func(list *[]string, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		*list = append(*list, fmt.Sprint(r.Method, " ", r.URL.Path, " ", len(b) > 0, " ", r.Header.Get("X-Api-Key")))
	}
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { note(&elsewhere, r) }))
	defer other.Close()
	status, location := 0, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note(&here, r)
		if r.URL.Path == "/in" {
			w.Header().Set("Location", location)
			w.WriteHeader(status)
		}
	}))
	defer server.Close()
	secure := strings.Replace(server.URL, "http:", "https:", 1)
	for _, c := range []struct {
		status int
		to     string
		sent   bool
	}{
		{301, "/login", false}, {302, "/login", false}, {303, "/login", false}, {300, "/login", false},
		{307, "/new", true}, {308, server.URL + "/new", true},
		{301, other.URL, false}, {307, other.URL, false}, {308, other.URL, false}, {307, secure, false},
		{308, secure, false},
		{307, "file:///etc/passwd", false}, {307, "/in", false},
	} {
		status, location = c.status, c.to
		var failed error
		p, err := New(Options{URL: server.URL + "/in", Protocol: protocol(t, "pprof"),
			Header: http.Header{"X-Api-Key": {"key"}}, Tries: 1,
			Failed: func(_ *Profile, err error) { failed = err }})
		require.NoError(t, err)
		p.Push(sample())
		counts := p.Close(time.Minute)
		assert.Empty(t, elsewhere)
		if c.sent {
			assert.Equal(t, Counts{Sent: 1}, counts, c.to)
			assert.Equal(t, "POST /new true key", here[len(here)-1])
			continue
		}
		assert.Equal(t, Counts{Failed: 1}, counts, "%d %s", c.status, c.to)
		assert.ErrorIs(t, failed, ErrRefused)
		assert.ErrorContains(t, failed, fmt.Sprint(c.status))
		assert.ErrorContains(t, failed, c.to)
		assert.NotContains(t, here, "GET /login false key")
	}
}

func TestMisuse(t *testing.T) {
	for _, url := range []string{"", "host:4040", "ftp://x", "http://", "http://a b"} {
		_, err := New(Options{URL: url, Protocol: protocols()[0]})
		assert.Error(t, err, "%q", url)
	}
	_, err := ProtocolByName("x")
	assert.ErrorContains(t, err, "want one of pyroscope, otlp, pprof")
	_, err = otlpBody(&Profile{Pprof: []byte("no profile")})
	assert.Error(t, err)
}

// TestQueueBytes: large profiles that wait are bounded by their bytes; one may be larger than the bound.
func TestQueueBytes(t *testing.T) {
	hold := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	defer server.Close()
	p, err := New(Options{URL: server.URL, Protocol: protocol(t, "pprof"), Bytes: 1000})
	require.NoError(t, err)
	for range 3 {
		p.Push(&Profile{Pprof: make([]byte, 400)})
	}
	assert.Equal(t, Waiting{Profiles: 2, Bytes: 800}, p.Waiting())
	p.Push(&Profile{Pprof: make([]byte, 200)})
	assert.Equal(t, Waiting{Profiles: 3, Bytes: 1000}, p.Waiting())
	assert.Equal(t, Counts{Failed: 1}, p.Counts())
	close(hold)
	assert.Equal(t, Counts{Sent: 3, Failed: 1}, p.Close(time.Minute))
	assert.Zero(t, p.Waiting())

	p, err = New(Options{URL: server.URL, Protocol: protocol(t, "pprof"), Bytes: 1000})
	require.NoError(t, err)
	p.Push(&Profile{Pprof: make([]byte, 2000)})
	assert.Equal(t, Counts{Sent: 1}, p.Close(time.Minute))
}
