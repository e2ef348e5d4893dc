package builder

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noted is a Progress that keeps the notes.
type noted struct {
	mu    sync.Mutex
	notes []string
}

func (n *noted) Note(name string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notes = append(n.notes, fmt.Sprintf("%s: %v", name, err))
}
func (*noted) Begin(int, int64) {}
func (*noted) Done(*Outcome)    {}
func (*noted) End(error)        {}

// buildFrom builds paths into a new cache, from a remote one, and returns the cache, how each file ended, and the
// notes.
func buildFrom(t *testing.T, remote *Remote, code compile.Options, paths ...string) (cache string, ended []Status,
	notes []string) {
	cache = filepath.Join(t.TempDir(), "cache")
	require.NoError(t, MakeCache(cache))
	found := find.Find(context.Background(), paths, find.Options{})
	require.Empty(t, found.Problems)
	var p noted
	for _, o := range Build(context.Background(), NewCacheJobs(found.Inputs), Options{Code: code, Cache: cache, Workers: 1,
		Remote: remote}, &p) {
		require.NoError(t, o.Err)
		ended = append(ended, o.Status)
	}
	return cache, ended, p.notes
}

// contents returns the files below a folder.
func contents(t *testing.T, folder string) map[string][]byte {
	files := make(map[string][]byte)
	require.NoError(t, fs.WalkDir(os.DirFS(folder), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files[path], err = os.ReadFile(filepath.Join(folder, path))
		}
		return err
	}))
	return files
}

// twoObjects compiles two libraries: their sources are the same, but for a constant.
func twoObjects(t *testing.T) (paths []string) {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	for i := range 2 {
		path := filepath.Join(dir, fmt.Sprintf("lib%d.so", i))
		source := filepath.Join(dir, "x.c")
		require.NoError(t, os.WriteFile(source, fmt.Appendf(nil, "int f(int (*g)(int)) { return g(%d) + %d; }\n", i, i),
			0o600))
		out, err := exec.Command("gcc", "-O2", "-shared", "-fPIC", "-Wl,--build-id", source, "-o", path).CombinedOutput()
		require.NoError(t, err, "%s", out)
		paths = append(paths, path)
	}
	return paths
}

// TestRemote: the cache is the same as if all were built here, from a folder and from a server, also below a path.
func TestRemote(t *testing.T) {
	objects := twoObjects(t)
	made, ended, _ := buildFrom(t, nil, compile.Options{}, objects...)
	require.Equal(t, []Status{Built, Built}, ended)
	files := http.FileServer(http.Dir(made))
	server := httptest.NewServer(http.StripPrefix("/below/it", files))
	defer server.Close()
	for _, from := range []string{made, server.URL + "/below/it", server.URL + "/below/it/"} {
		remote, err := NewRemote(from)
		require.NoError(t, err)
		cache, ended, notes := buildFrom(t, remote, compile.Options{}, objects...)
		assert.Equal(t, []Status{Fetched, Fetched}, ended, from)
		assert.Empty(t, notes)
		assert.Equal(t, contents(t, made), contents(t, cache))
	}
	// What it lacks is made here, silently, unless it has nothing: then its address may be wrong.
	remote, err := NewRemote(server.URL)
	require.NoError(t, err)
	_, ended, notes := buildFrom(t, remote, compile.Options{}, objects...)
	assert.Equal(t, []Status{Built, Built}, ended)
	assert.Equal(t, []string{server.URL + ": none of 2 eh_elfs is there; they are built here"}, notes)
	for path := range contents(t, made) {
		require.NoError(t, os.Remove(filepath.Join(made, path)))
		break
	}
	remote, err = NewRemote(server.URL + "/below/it")
	require.NoError(t, err)
	_, ended, notes = buildFrom(t, remote, compile.Options{}, objects...)
	assert.ElementsMatch(t, []Status{Built, Fetched}, ended)
	assert.Empty(t, notes)
}

// TestRemotePages: a server that answers with a page for each file is named once.
func TestRemotePages(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		fmt.Fprint(w, "<html>")
	}))
	defer server.Close()
	remote, err := NewRemote(server.URL)
	require.NoError(t, err)
	_, ended, notes := buildFrom(t, remote, compile.Options{}, twoObjects(t)...)
	assert.Equal(t, []Status{Built, Built}, ended)
	require.Len(t, notes, 1)
	assert.Contains(t, notes[0], "not used: not an eh_elf: not an ELF file; such files are built here")
}

// TestRemoteHostile: whatever a server sends, the cache is as if all were built here.
func TestRemoteHostile(t *testing.T) {
	objects := twoObjects(t)
	made, _, _ := buildFrom(t, nil, compile.Options{}, objects...)
	want := contents(t, made)
	others, _, _ := buildFrom(t, nil, compile.Options{NoDeref: true}, objects...)
	paths := make([]string, 0, len(want))
	for path := range want {
		paths = append(paths, path)
	}
	other := func(path string) string {
		if path == paths[0] {
			return paths[1]
		}
		return paths[0]
	}
	for name, c := range map[string]struct {
		answer func(path string, w http.ResponseWriter)
		note   string
	}{
		"nothing": {func(string, http.ResponseWriter) {}, "not used"},
		"text":    {func(_ string, w http.ResponseWriter) { fmt.Fprint(w, "<html>\x1b[2J</html>") }, "not used"},
		"another object": {func(path string, w http.ResponseWriter) { w.Write(want[other(path)]) },
			"not used: made by another"},
		"other options": {func(path string, w http.ResponseWriter) { w.Write(contents(t, others)[path]) },
			"not used: made by another"},
		"cut": {func(path string, w http.ResponseWriter) { w.Write(want[path][:len(want[path])-200]) },
			"not used"},
		"longer": {func(path string, w http.ResponseWriter) { w.Write(append(bytes.Clone(want[path]), 0)) },
			"not used"},
		"code": {func(path string, w http.ResponseWriter) { w.Write(changed(want[path])) },
			"not used: not proven"},
		"own build-id": {func(path string, w http.ResponseWriter) { w.Write(renamed(t, want[path])) },
			"not used: its own build-id"},
		"no end":          {func(_ string, w http.ResponseWriter) { endless(w) }, "more than"},
		"error":           {func(_ string, w http.ResponseWriter) { w.WriteHeader(http.StatusTeapot) }, "418"},
		"broken":          {func(string, http.ResponseWriter) { panic(http.ErrAbortHandler) }, "EOF"},
		"redirect itself": {func(path string, w http.ResponseWriter) { moved(w, "/"+path) }, "10 redirects"},
		"compressed": {func(_ string, w http.ResponseWriter) {
			w.Header().Set("Content-Encoding",
				"gzip")
			w.Write([]byte{1})
		}, "not used"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.answer(strings.TrimPrefix(r.URL.Path, "/"), w)
			}))
			defer server.Close()
			remote, err := NewRemote(server.URL)
			require.NoError(t, err)
			cache, ended, notes := buildFrom(t, remote, compile.Options{}, objects...)
			assert.Equal(t, []Status{Built, Built}, ended)
			assert.Equal(t, want, contents(t, cache))
			require.NotEmpty(t, notes)
			assert.Contains(t, notes[0], c.note)
			assert.NotContains(t, notes[0], "\x1b")
		})
	}
}

// TestRemoteSlow: a server whose answers take long is left alone, one with large files is not.
func TestRemoteSlow(t *testing.T) {
	const minute = 60
	slow, fast := &Remote{}, &Remote{}
	for i := range 3 * minute {
		assert.Equal(t, i >= minute, slow.isSlow(2*time.Second, 0), i)
		assert.False(t, fast.isSlow(20*time.Second, 20<<20))
		assert.False(t, fast.isSlow(time.Second/2, 0))
	}
}

// changed returns an eh_elf with another byte in the middle of its code.
func changed(image []byte) []byte {
	image = bytes.Clone(image)
	image[len(image)/2] ^= 0x40
	return image
}

// renamed returns an eh_elf whose note has another build-id.
func renamed(t *testing.T, image []byte) []byte {
	info, err := elfout.ReadInfo(bytes.NewReader(image))
	require.NoError(t, err)
	return bytes.Replace(image, info.BuildID, bytes.Repeat([]byte{7}, len(info.BuildID)), 1)
}

// TestRemoteFolder: a file that cannot be read keeps no other from being used; a folder that is not there is named
// once.
func TestRemoteFolder(t *testing.T) {
	objects := twoObjects(t)
	made, _, _ := buildFrom(t, nil, compile.Options{}, objects...)
	for path := range contents(t, made) {
		require.NoError(t, os.Remove(filepath.Join(made, path)))
		require.NoError(t, os.Mkdir(filepath.Join(made, path), 0o700))
		break
	}
	remote, err := NewRemote(made)
	require.NoError(t, err)
	_, ended, notes := buildFrom(t, remote, compile.Options{}, objects...)
	assert.ElementsMatch(t, []Status{Built, Fetched}, ended)
	require.Len(t, notes, 1)
	assert.Contains(t, notes[0], "not used")

	remote, err = NewRemote(made + "/none")
	require.NoError(t, err)
	_, ended, notes = buildFrom(t, remote, compile.Options{}, objects...)
	assert.Equal(t, []Status{Built, Built}, ended)
	require.Len(t, notes, 1)
	assert.Contains(t, notes[0], "no such file or directory")
}

// endless sends more than any eh_elf of a small library.
func endless(w http.ResponseWriter) {
	block := make([]byte, 1<<16)
	for range 1 << 10 {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

// moved redirects.
func moved(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusFound)
}

// TestNewRemote: what --from takes.
func TestNewRemote(t *testing.T) {
	for from, ok := range map[string]bool{
		"http://h": true, "https://h:1/x": true, "/srv/cache": true,
		"": false, "srv": false, "ftp://h/x": false, "http://": false, "file:///x": false, "h:80": false,
	} {
		_, err := NewRemote(from)
		assert.Equal(t, ok, err == nil, from)
	}
}
