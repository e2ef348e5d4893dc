//go:build unix

package input

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// tree returns a folder of this user's with a/b/file.
func tree(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a", "b", "file"), []byte("text"), 0o644))
	return dir
}

// TestOpen has one thing wrong at a time, or nothing.
func TestOpenTrusted(t *testing.T) {
	const file = "a/b/file"
	chmod := func(name string, mode fs.FileMode) func(*testing.T, string) {
		return func(t *testing.T, dir string) { require.NoError(t, os.Chmod(filepath.Join(dir, name), mode)) }
	}
	link := func(to, name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { require.NoError(t, os.Symlink(to, filepath.Join(dir, name))) }
	}
	// give makes what is there another user's. That takes root, which trusts only root's files.
	give := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			testtool.NeedRoot(t, "to give a file away")
			require.NoError(t, os.Lchown(filepath.Join(dir, name), 65534, 65534))
		}
	}
	for _, c := range []struct {
		name string
		do   []func(*testing.T, string)
		open string
		want error
	}{
		{"as it is", nil, file, nil},
		{"private", []func(*testing.T, string){chmod(file, 0o600), chmod("a", 0o700)}, file, nil},
		{"group may write the file", []func(*testing.T, string){chmod(file, 0o664)}, file, ErrUntrusted},
		{"others may write the file", []func(*testing.T, string){chmod(file, 0o646)}, file, ErrUntrusted},
		{"group may write the folder", []func(*testing.T, string){chmod("a/b", 0o775)}, file, ErrUntrusted},
		{"others may write a folder above", []func(*testing.T, string){chmod("a", 0o757)}, file, ErrUntrusted},
		{"sticky folder", []func(*testing.T, string){chmod("a", 0o777|fs.ModeSticky)}, file, nil},
		{"sticky is nothing to a file", []func(*testing.T, string){chmod(file, 0o666|fs.ModeSticky)}, file,
			ErrUntrusted},
		{"another's file", []func(*testing.T, string){give(file)}, file, ErrUntrusted},
		{"another's file in a sticky folder", []func(*testing.T,
			string){give(file), chmod("a/b", 0o777|fs.ModeSticky)}, file, ErrUntrusted},
		{"another's folder", []func(*testing.T, string){give("a")}, file, ErrUntrusted},
		{"another's sticky folder", []func(*testing.T, string){give("a"), chmod("a", 0o777|fs.ModeSticky)}, file,
			ErrUntrusted},
		{"link to the file", []func(*testing.T, string){link(file, "l")}, "l", nil},
		{"link to a folder, by way of its parent", []func(*testing.T, string){link("../b", "a/b/l")}, "a/b/l/file",
			nil},
		{"link to a file that others may write", []func(*testing.T, string){link(file, "l"), chmod(file, 0o666)}, "l",
			ErrUntrusted},
		{"link into a folder that others may write", []func(*testing.T,
			string){link("a/b", "l"), chmod("a/b", 0o777)}, "l/file", ErrUntrusted},
		{"another's link", []func(*testing.T, string){link(file, "l"), give("l")}, "l", ErrUntrusted},
		{"another's link to a folder", []func(*testing.T, string){link("a/b", "l"), give("l")}, "l/file", ErrUntrusted},
		{"link to itself", []func(*testing.T, string){link("l", "l")}, "l", syscall.ELOOP},
		{"dangling link", []func(*testing.T, string){link("none", "l")}, "l", fs.ErrNotExist},
		{"none", nil, "a/none/file", fs.ErrNotExist},
		{"below a file", nil, file + "/x", syscall.ENOTDIR},
		{"a folder", nil, "a/b", ErrUntrusted},
		{"a FIFO", []func(*testing.T, string){func(t *testing.T, dir string) {
			require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
		}}, "fifo", ErrUntrusted},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := tree(t)
			for _, do := range c.do {
				do(t, dir)
			}
			f, err := OpenTrusted(filepath.Join(dir, c.open))
			require.Equal(t, err, CheckTrusted(filepath.Join(dir, c.open)))
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
				require.Nil(t, f)
				require.ErrorContains(t, err, dir, "names what is wrong")
				return
			}
			require.NoError(t, err)
			defer f.Close()
			b, err := io.ReadAll(f)
			require.NoError(t, err)
			require.Equal(t, "text", string(b))
		})
	}
	t.Run("absolute link", func(t *testing.T) {
		dir := tree(t)
		link(filepath.Join(dir, "a"), "l")(t, dir)
		f, err := OpenTrusted(filepath.Join(dir, "l", "b", "file"))
		require.NoError(t, err)
		require.NoError(t, f.Close())
	})
	t.Run("another user", func(t *testing.T) {
		path := filepath.Join(tree(t), file)
		f, err := openFor(os.Geteuid()+1, path)
		if os.Geteuid() == 0 {
			require.NoError(t, err, "root may be trusted")
			require.NoError(t, f.Close())
			return
		}
		require.ErrorIs(t, err, ErrUntrusted)
	})
}

// TestSearchOnly: the folders of others' homes may often be searched, not read.
func TestSearchOnly(t *testing.T) {
	dir := tree(t)
	require.NoError(t, os.Chmod(filepath.Join(dir, "a"), 0o711))
	testtool.AsOther(t, dir, func() {
		f, err := OpenTrusted(filepath.Join(dir, "a", "b", "file"))
		require.NoError(t, err)
		require.NoError(t, f.Close())
	})
}

func TestMkdirAll(t *testing.T) {
	if !testtool.InChild(t) {
		return
	}
	for _, umask := range []int{0, 0o022, 0o777} {
		syscall.Umask(0o022)
		dir := tree(t)
		syscall.Umask(umask)
		require.NoError(t, MkdirAll(filepath.Join(dir, "a", "new", "er")))
		require.NoError(t, MkdirAll(filepath.Join(dir, "a", "new", "er")))
		for _, name := range []string{"a/new", "a/new/er"} {
			st, err := os.Stat(filepath.Join(dir, name))
			require.NoError(t, err)
			require.Equal(t, fs.ModeDir|0o700, st.Mode(), "umask %o", umask)
		}
		require.ErrorIs(t, MkdirAll(filepath.Join(dir, "a", "b", "file")), syscall.ENOTDIR)
		require.ErrorIs(t, MkdirAll(filepath.Join(dir, "a", "b", "file", "x")), syscall.ENOTDIR)
		require.NoError(t, os.Symlink("gone", filepath.Join(dir, "l")))
		require.NoError(t, MkdirAll(filepath.Join(dir, "l", "x")))
		require.DirExists(t, filepath.Join(dir, "gone", "x"))
		require.NoError(t, os.Chmod(filepath.Join(dir, "a"), 0o777))
		require.ErrorIs(t, MkdirAll(filepath.Join(dir, "a", "other")), ErrUntrusted)
		require.ErrorIs(t, MkdirAll(filepath.Join(dir, "a", "new")), ErrUntrusted)
	}
}

// TestDescriptors: none is left open, whatever comes of it.
func TestDescriptors(t *testing.T) {
	if !testtool.InChild(t) {
		return
	}
	dir := tree(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "open"), nil, 0o644))
	require.NoError(t, os.Chmod(filepath.Join(dir, "open"), 0o666))
	require.NoError(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	limit := syscall.Rlimit{Cur: 64, Max: 64}
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	for range 100 {
		f, err := OpenTrusted(filepath.Join(dir, "a", "b", "file"))
		require.NoError(t, err)
		require.NoError(t, f.Close())
		for _, name := range []string{"open", "loop", "a", "a/none", "open/x"} {
			_, err := OpenTrusted(filepath.Join(dir, name))
			require.NotErrorIs(t, err, syscall.EMFILE)
			require.Error(t, err)
			MkdirAll(filepath.Join(dir, name))
		}
	}
}
