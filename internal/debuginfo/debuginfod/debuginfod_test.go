package debuginfod

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// object compiles a program, and returns it with its build-id, and the two files that it is
// for debuginfod: stripped, and what was stripped off.
func object(t *testing.T) (full, executable, debug string, buildID []byte) {
	testtool.Need(t, "gcc", "objcopy", "strip")
	dir := t.TempDir()
	full, executable, debug = filepath.Join(dir, "full"), filepath.Join(dir, "stripped"), filepath.Join(dir, "x.debug")
	src := filepath.Join(dir, "x.c")
	require.NoError(t, os.WriteFile(src,
		[]byte("static int hidden(int x) { return x + 1; }\nint main(int n, char **v) { return hidden(n) + (v == 0); }\n"),
		0o666))
	for _, args := range [][]string{
		{"gcc", "-g", "-O0", "-Wl,--build-id=0x00112233445566778899aabbccddeeff00112233", src, "-o", full},
		{"objcopy", "--only-keep-debug", full, debug}, {"strip", "-o", executable, full},
	} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	buildID, err := hex.DecodeString("00112233445566778899aabbccddeeff00112233")
	require.NoError(t, err)
	return full, executable, debug, buildID
}

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// TestFolderOfOthers: nothing is written to, or removed from, a folder in which another user
// may have put a link; what is there can be read.
func TestFolderOfOthers(t *testing.T) {
	testtool.NeedRoot(t, "to give a folder away")
	_, executable, debug, id := object(t)
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if strings.HasSuffix(r.URL.Path, "/debuginfo") {
			http.ServeFile(w, r, debug)
			return
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	for _, owner := range []int{0, 65534} {
		asked.Store(0)
		dir := t.TempDir()
		victim, cache := filepath.Join(dir, "victim"), filepath.Join(dir, "cache")
		require.NoError(t, os.Mkdir(victim, 0o755))
		require.NoError(t, os.Mkdir(cache, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(victim, "executable"), nil, 0))
		old := time.Now().Add(-missFor - time.Second)
		require.NoError(t, os.Chtimes(filepath.Join(victim, "executable"), old, old))
		require.NoError(t, os.Symlink(victim, filepath.Join(cache, hex.EncodeToString(id))))
		require.NoError(t, os.Lchown(filepath.Join(cache, hex.EncodeToString(id)), owner, owner))
		require.NoError(t, os.Chown(cache, owner, owner))
		made := func() *Client { return New(env("DEBUGINFOD_URLS", server.URL, "DEBUGINFOD_CACHE_PATH", cache)) }
		_, err := made().Find(context.Background(), id, DebugInfo)
		_, errMiss := made().Find(context.Background(), id, Executable)
		if owner == 0 { // the test can fail
			require.NoError(t, err)
			assert.FileExists(t, filepath.Join(victim, "debuginfo"))
			assert.ErrorIs(t, errMiss, ErrNotFound)
			continue
		}
		assert.ErrorIs(t, err, input.ErrUntrusted)
		assert.ErrorIs(t, errMiss, input.ErrUntrusted)
		assert.Zero(t, asked.Load())
		assert.NoFileExists(t, filepath.Join(victim, "debuginfo"))
		st, err := os.Stat(filepath.Join(victim, "executable"))
		require.NoError(t, err)
		assert.WithinDuration(t, old, st.ModTime(), time.Second)

		b, err := os.ReadFile(executable)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(victim, "debuginfo"), b, 0o444))
		_, err = made().Find(context.Background(), id, DebugInfo)
		assert.NoError(t, err)
	}
}

func TestFind(t *testing.T) {
	_, executable, debug, id := object(t)
	want, err := os.ReadFile(debug)
	require.NoError(t, err)
	short := append([]byte{1, 4}, id[2:]...)
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch r.URL.Path {
		case "/sub/buildid/" + hex.EncodeToString(id) + "/debuginfo":
			http.ServeFile(w, r, debug)
		case "/sub/buildid/0102030405/debuginfo":
			http.ServeFile(w, r, executable) // of another build-id
		case "/sub/buildid/0102/debuginfo":
			http.Error(w, "out of order", http.StatusInternalServerError)
		case "/sub/buildid/0103/debuginfo":
			fmt.Fprint(w, "no ELF file")
		case "/sub/buildid/" + hex.EncodeToString(short) + "/debuginfo": // ends early
			w.Header().Set("Content-Length", fmt.Sprint(len(want)))
			_, _ = w.Write(bytes.Replace(want, id, short, 1)[:len(want)/2])
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	cache := filepath.Join(t.TempDir(), "cache")
	made := func() *Client {
		return New(env("DEBUGINFOD_URLS", "  "+server.URL+"/none "+server.URL+"/sub/ ", "DEBUGINFOD_CACHE_PATH", cache))
	}
	c := made()
	var begun []string
	c.Begin = func(from string, kind Kind, size int64) { begun = append(begun, fmt.Sprint(kind, " ", size)) }
	var all sync.WaitGroup
	for range 5 { // at once
		all.Go(func() {
			path, err := c.Find(context.Background(), id, DebugInfo)
			assert.NoError(t, err)
			assert.Equal(t, filepath.Join(cache, hex.EncodeToString(id), "debuginfo"), path)
		})
	}
	all.Wait()
	assert.Equal(t, []string{fmt.Sprint("debuginfo ", len(want))}, begun)
	assert.EqualValues(t, 2, asked.Load(), "one server, then the other")
	path, err := made().Find(context.Background(), id, DebugInfo)
	require.NoError(t, err)
	assert.EqualValues(t, 2, asked.Load(), "from the cache")
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, got))
	st, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o400), st.Mode())

	_, err = c.Find(context.Background(), id, Executable)
	assert.ErrorIs(t, err, ErrNotFound)
	assert.EqualValues(t, 4, asked.Load())
	_, err = made().Find(context.Background(), id, Executable)
	assert.ErrorIs(t, err, ErrNotFound)
	assert.EqualValues(t, 4, asked.Load(), "a miss is remembered")
	miss := filepath.Join(cache, hex.EncodeToString(id), "executable")
	old := time.Now().Add(-missFor - time.Second)
	require.NoError(t, os.Chtimes(miss, old, old))
	_, err = made().Find(context.Background(), id, Executable)
	assert.ErrorIs(t, err, ErrNotFound)
	assert.EqualValues(t, 6, asked.Load(), "for a while")

	for name, part := range map[string]string{"0102030405": "has build-id 0011", "0102": "500 Internal",
		"0103": "ELF64 file", hex.EncodeToString(short): "unexpected EOF"} {
		other, err := hex.DecodeString(name)
		require.NoError(t, err)
		_, err = c.Find(context.Background(), other, DebugInfo)
		assert.ErrorContains(t, err, part)
		assert.NotErrorIs(t, err, ErrNotFound)
		left, err := os.ReadDir(filepath.Join(cache, name))
		require.NoError(t, err)
		assert.Empty(t, left, "neither a file nor a miss")
	}
	_, err = c.Find(context.Background(), nil, DebugInfo)
	assert.ErrorIs(t, err, ErrNotFound)

	small := made()
	small.MaxSize, small.Folder = 100, t.TempDir()
	_, err = small.Find(context.Background(), id, DebugInfo)
	assert.ErrorContains(t, err, "DEBUGINFOD_MAXSIZE")
}

// liar serves what begins with a file, or with zeros, and goes on for ever. sent counts its bytes.
func liar(t *testing.T, file []byte, sent *atomic.Int64) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for part := file; r.Context().Err() == nil; part = make([]byte, 1<<16) {
			n, err := w.Write(part)
			if sent.Add(int64(n)); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// TestEndless: a body without an end is given up: at once where its beginning is not the file's,
// else at a size or after a time; nothing is left of it.
func TestEndless(t *testing.T) {
	_, executable, _, id := object(t)
	file, err := os.ReadFile(executable)
	require.NoError(t, err)
	for _, c := range []struct {
		begin []byte
		size  int64
		time  time.Duration
		want  string
	}{
		{make([]byte, 100), 1 << 40, time.Hour, "not a little-endian ELF64 file"},
		{bytes.Replace(file, id, bytes.Repeat([]byte{9}, len(id)), 1), 1 << 40, time.Hour, "has build-id 0909"},
		{file, 1 << 20, time.Hour, "more than 1048576 bytes (DEBUGINFOD_MAXSIZE)"},
		{file, 1 << 40, 100 * time.Millisecond, "not complete after 100ms (DEBUGINFOD_MAXTIME)"},
	} {
		var sent atomic.Int64
		client := New(env("DEBUGINFOD_URLS", liar(t, c.begin, &sent).URL, "DEBUGINFOD_CACHE_PATH", t.TempDir()))
		client.MaxSize, client.MaxTime = c.size, c.time
		_, err := client.Find(t.Context(), id, Executable)
		assert.ErrorContains(t, err, c.want)
		assert.Empty(t, filesBelow(t, client.Folder))
	}
	c := New(env("DEBUGINFOD_URLS", "http://h", "DEBUGINFOD_CACHE_PATH", "/x", "DEBUGINFOD_MAXTIME", "7"))
	assert.Equal(t, 7*time.Second, c.MaxTime)
	assert.EqualValues(t, 4<<30, c.MaxSize)
}

func filesBelow(t *testing.T, dir string) (list []string) {
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			list = append(list, path)
		}
		return err
	}))
	return list
}

// TestKilled: nothing is left of a download when the process ends.
func TestKilled(t *testing.T) {
	const variable = "EHASM_TEST_DOWNLOAD"
	_, executable, _, id := object(t)
	if os.Getenv(variable) != "" {
		_, err := New(os.Getenv).Find(t.Context(), id, Executable)
		assert.NoError(t, err)
		return
	}
	if runtime.GOOS != "linux" {
		t.Skip("needs open files without names")
	}
	file, err := os.ReadFile(executable)
	require.NoError(t, err)
	var sent atomic.Int64
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), variable+"=1", "DEBUGINFOD_URLS="+liar(t, file, &sent).URL,
		"DEBUGINFOD_CACHE_PATH="+dir)
	require.NoError(t, cmd.Start())
	const much = 32 << 20 // more than can be under way
	require.Eventually(t, func() bool { return sent.Load() > much }, time.Minute, time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	assert.Error(t, cmd.Wait())
	assert.Empty(t, filesBelow(t, dir))
}

// TestSilent has a server that does not answer, and one that is not there.
func TestSilent(t *testing.T) {
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-done:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(done)
	c := New(env("DEBUGINFOD_URLS", server.URL, "DEBUGINFOD_CACHE_PATH", t.TempDir()))
	c.Timeout = 10 * time.Millisecond
	_, err := c.Find(context.Background(), []byte("1234"), DebugInfo)
	assert.ErrorContains(t, err, "no answer in 10ms")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c.Timeout = time.Hour
	_, err = c.Find(ctx, []byte("5678"), DebugInfo)
	assert.ErrorIs(t, err, context.Canceled)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	c = New(env("DEBUGINFOD_URLS", "http://"+l.Addr().String(), "DEBUGINFOD_CACHE_PATH", t.TempDir()))
	_, err = c.Find(context.Background(), []byte("1234"), DebugInfo)
	assert.ErrorContains(t, err, "connection refused")
}

// TestTrickle has a server that sends a byte now and then: it is not waited for. Nothing is asked
// for compressed, which could be far larger than it is said to be.
func TestTrickle(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("asks for %q", r.Header.Get("Accept-Encoding"))
		}
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte{0})
			w.(http.Flusher).Flush()
			time.Sleep(time.Millisecond)
		}
	}))
	defer server.Close()
	c := New(env("DEBUGINFOD_URLS", server.URL, "DEBUGINFOD_CACHE_PATH", t.TempDir()))
	c.Timeout = 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err := c.Find(ctx, []byte("1234"), DebugInfo)
	assert.ErrorContains(t, err, "no answer in 100ms")
}

func TestFolder(t *testing.T) {
	home := t.TempDir()
	assert.Equal(t, "/c", folder(env("DEBUGINFOD_CACHE_PATH", "/c", "HOME", home)))
	assert.Equal(t, "/x/debuginfod_client", folder(env("XDG_CACHE_HOME", "/x", "HOME", home)))
	assert.Equal(t, home+"/.cache/debuginfod_client", folder(env("HOME", home)))
	assert.Empty(t, folder(env()))
	require.NoError(t, os.Mkdir(home+"/.debuginfod_client_cache", 0o777))
	assert.Equal(t, home+"/.debuginfod_client_cache", folder(env("XDG_CACHE_HOME", "/x", "HOME", home)))
	assert.Nil(t, New(env("HOME", home)))
	assert.Nil(t, New(env("DEBUGINFOD_URLS", " ", "HOME", home)))
	c := New(env("DEBUGINFOD_URLS", "a b", "HOME", home, "DEBUGINFOD_TIMEOUT", "5", "DEBUGINFOD_MAXSIZE", "77"))
	assert.Equal(t, []string{"a", "b"}, c.URLs)
	assert.Equal(t, 5*time.Second, c.Timeout)
	assert.EqualValues(t, 77, c.MaxSize)
}

// TestServer asks Debian's server, and leaves what its client finds, and finds what it leaves.
func TestServer(t *testing.T) {
	testtool.Need(t, "debuginfod", "debuginfod-find")
	full, _, _, id := object(t)
	require.NoError(t, os.Remove(full)) // it has both kinds: which file the server sends would be its choice
	url := testtool.Debuginfod(t, filepath.Dir(full))
	name := hex.EncodeToString(id)
	ours, theirs := t.TempDir(), t.TempDir()
	find := func(cache, urls, kind string) string {
		cmd := exec.Command("debuginfod-find", kind, name)
		cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS="+urls, "DEBUGINFOD_CACHE_PATH="+cache)
		out, err := cmd.Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(out))
	}
	c := New(env("DEBUGINFOD_URLS", url, "DEBUGINFOD_CACHE_PATH", ours))
	for _, kind := range []Kind{DebugInfo, Executable} {
		path, err := c.Find(context.Background(), id, kind)
		require.NoError(t, err)
		a, err := os.ReadFile(path)
		require.NoError(t, err)
		b, err := os.ReadFile(find(theirs, url, string(kind)))
		require.NoError(t, err)
		assert.True(t, bytes.Equal(a, b))
		assert.Equal(t, path, find(ours, "http://127.0.0.1:1", string(kind)), "their client, our cache")
		other := New(env("DEBUGINFOD_URLS", "http://127.0.0.1:1", "DEBUGINFOD_CACHE_PATH", theirs))
		path, err = other.Find(context.Background(), id, kind)
		assert.NoError(t, err, "our client, their cache")
		assert.Equal(t, filepath.Join(theirs, name, string(kind)), path)
	}
	_, err := c.Find(context.Background(), []byte("another"), DebugInfo)
	assert.True(t, errors.Is(err, ErrNotFound), err)
}

// TestCut: what is cut is not kept, whether the server says a smaller size or none.
func TestCut(t *testing.T) {
	_, executable, _, id := object(t)
	file, err := os.ReadFile(executable)
	require.NoError(t, err)
	for _, announced := range []bool{false, true} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if part := file[:len(file)-1]; announced {
				w.Header().Set("Content-Length", fmt.Sprint(len(part)))
				_, _ = w.Write(part)
			} else {
				_, _ = w.Write(part[:2000])
				w.(http.Flusher).Flush()
				_, _ = w.Write(part[2000:])
			}
		}))
		t.Cleanup(server.Close)
		client := New(env("DEBUGINFOD_URLS", server.URL, "DEBUGINFOD_CACHE_PATH", t.TempDir()))
		_, err := client.Find(t.Context(), id, Executable)
		assert.ErrorContains(t, err, fmt.Sprintf("cut short: %d bytes, and its section headers reach to %d", len(file)-1,
			len(file)))
		assert.Empty(t, filesBelow(t, client.Folder))
	}
}

// TestSecrets: a password in a URL is in no message, and goes to no other host.
func TestSecrets(t *testing.T) {
	_, executable, _, id := object(t)
	var got []string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, fmt.Sprint(r.Header))
		http.ServeFile(w, r, executable)
	}))
	t.Cleanup(other.Close)
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		assert.Equal(t, "secret", password)
		switch {
		case strings.HasPrefix(r.URL.Path, "/moved/"):
			http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1)+"/", http.StatusFound)
		default:
			http.Error(w, "", http.StatusForbidden)
		}
	}))
	t.Cleanup(first.Close)
	base := strings.Replace(first.URL, "http://", "http://user:secret@", 1)
	find := func(url string) error {
		client := New(env("DEBUGINFOD_URLS", url, "DEBUGINFOD_CACHE_PATH", t.TempDir()))
		client.Begin = func(from string, _ Kind, _ int64) { got = append(got, from) }
		_, err := client.Find(t.Context(), id, Executable)
		return err
	}
	require.NoError(t, find(base+"/moved"))
	require.Len(t, got, 2)
	for _, url := range []string{base, "http://user:secret@127.0.0.1:0/", "http://user:secret@h:x/",
		"http://user:secret@[::1/"} {
		err := find(url)
		require.Error(t, err)
		got = append(got, err.Error())
	}
	for _, text := range got {
		assert.NotContains(t, text, "secret")
		assert.NotContains(t, text, "dXNlcjpzZWNyZXQ", "base64")
	}
}

// TestStaySecure: https stays https.
func TestStaySecure(t *testing.T) {
	_, executable, _, id := object(t)
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		http.ServeFile(w, r, executable)
	}))
	t.Cleanup(plain.Close)
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL, http.StatusFound)
	}))
	t.Cleanup(secure.Close)
	client := New(env("DEBUGINFOD_URLS", secure.URL, "DEBUGINFOD_CACHE_PATH", t.TempDir()))
	_, err := client.Find(t.Context(), id, Executable)
	assert.ErrorContains(t, err, "certificate", "who signed it is not known")
	client = New(env("DEBUGINFOD_URLS", secure.URL, "DEBUGINFOD_CACHE_PATH", t.TempDir()))
	client.http.Transport = secure.Client().Transport
	_, err = client.Find(t.Context(), id, Executable)
	assert.ErrorContains(t, err, "redirected from https to http://127.0.0.1")
	assert.Empty(t, filesBelow(t, client.Folder))
}
