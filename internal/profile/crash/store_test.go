//go:build linux && amd64

package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// reports returns the names in a folder.
func reports(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Name() != lockName {
			names = append(names, e.Name())
		}
	}
	return names
}

func nameOf(when time.Time, user, pid int) string {
	return fmt.Sprintf("crash-%s-user%d-pid%d.txt", timeText(when), user, pid)
}

// TestSaveBounds: many handlers at once keep to the bound together; the user with most reports loses the oldest.
func TestSaveBounds(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a", "crashes")
	r := room{10, time.Hour, 1}
	now := time.Now()
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			_, err := r.save(folder, nameOf(now.Add(time.Duration(i)), 7, i), []byte("x"), now)
			assert.NoError(t, err)
			n := 0
			for _, name := range reports(t, folder) {
				if reportName.MatchString(name) {
					n++
				}
			}
			assert.LessOrEqual(t, n, 10)
		})
	}
	all.Wait()
	assert.Len(t, reports(t, folder), 10)
	st, err := os.Stat(folder)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), st.Mode().Perm())

	for i := range 3 {
		_, err := r.save(folder, nameOf(now.Add(time.Minute), 8, i), []byte("x"), now)
		require.NoError(t, err)
	}
	for i := range 30 {
		path, err := r.save(folder, nameOf(now.Add(time.Second+time.Duration(i)), 7, 100+i), []byte("x"), now)
		require.NoError(t, err)
		assert.FileExists(t, path)
		st, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), st.Mode().Perm())
	}
	assert.Equal(t, 3, strings.Count(strings.Join(reports(t, folder), "\n"), "user8"))
	assert.Len(t, reports(t, folder), 10)

	for _, name := range []string{".ehasm-x.tmp", "notes.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), nil, 0o600))
	}
	later := now.Add(2 * time.Hour)
	_, err = r.save(folder, nameOf(later, 7, 1), []byte("x"), later)
	require.NoError(t, err)
	assert.Equal(t, []string{nameOf(later, 7, 1), "notes.txt"}, reports(t, folder),
		"old reports and what was left of killed handlers")
}

// TestSaveRefused: there is no report on a full file system, nor where others can write.
func TestSaveRefused(t *testing.T) {
	now := time.Now()
	folder := t.TempDir()
	_, err := room{10, time.Hour, 1 << 62}.save(folder, nameOf(now, 1, 1), nil, now)
	assert.ErrorContains(t, err, "are to stay free")
	assert.Empty(t, reports(t, folder))
	require.NoError(t, os.Chmod(folder, 0o777|os.ModeSticky))
	_, err = ordinary().save(folder, nameOf(now, 1, 1), nil, now)
	assert.ErrorContains(t, err, "others may write to it")
	assert.Empty(t, reports(t, folder))
	require.NoError(t, os.Chmod(folder, 0o777))
	_, err = ordinary().save(filepath.Join(folder, "deeper"), nameOf(now, 1, 1), nil, now)
	assert.ErrorContains(t, err, "not trusted")
	assert.Empty(t, reports(t, folder))
}

// TestSaveLocked: who can read a folder, and locks it, keeps no handler from it.
func TestSaveLocked(t *testing.T) {
	folder := t.TempDir()
	dir, err := os.Open(folder)
	require.NoError(t, err)
	defer dir.Close()
	require.NoError(t, unix.Flock(int(dir.Fd()), unix.LOCK_EX))
	now := time.Now()
	done := make(chan error, 1)
	go func() {
		_, err := ordinary().save(folder, nameOf(now, 1, 1), nil, now)
		done <- err
	}()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("it waits for the lock")
	}
	st, err := os.Stat(filepath.Join(folder, lockName))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), st.Mode().Perm())
}

// TestCut: a cut text ends with a whole line that says so.
func TestCut(t *testing.T) {
	text := []byte(strings.Repeat("line\n", 100))
	assert.Equal(t, text, cut(text, 500))
	b := cut(text, 100)
	assert.LessOrEqual(t, len(b), 100)
	assert.True(t, strings.HasSuffix(string(b), "line\n... cut: the report has a bound\n"))
}
