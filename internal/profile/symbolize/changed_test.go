package symbolize

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestChanged: lines are those of the file that was met, or none once another one is in its place or it was written to.
func TestChanged(t *testing.T) {
	dir := t.TempDir()
	build := func(name, id, code string) (path string, addr uint64) {
		src, path := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(src, []byte(code), 0o666))
		out, err := exec.Command("gcc", "-g", "-O0", "-fcf-protection=none", "-Wl,--build-id="+id, "-o", path,
			src).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(1e9+int64(len(code)), 0)))
		f, err := elf.Open(path)
		require.NoError(t, err)
		defer f.Close()
		symbols, err := f.Symbols()
		require.NoError(t, err)
		for _, s := range symbols {
			if s.Name == "main" {
				return path, s.Value
			}
		}
		t.Fatal("no main")
		return
	}
	for name, c := range map[string]struct {
		id     string
		change func(t *testing.T, path, other string)
		late   bool // before the file is opened for the first time
		lines  bool
	}{
		"same": {"none", func(*testing.T, string, string) {}, true, true},
		"replaced": {"none", func(t *testing.T, path,
			other string) {
			require.NoError(t, os.Rename(other, path))
		}, true, false},
		"replaced while open": {"none", func(t *testing.T, path,
			other string) {
			require.NoError(t, os.Rename(other, path))
		}, false, true},
		"written to":            {"none", overwrite, true, false},
		"written to while open": {"none", overwrite, false, false},
		"copied, with build-id": {"0x01020304", func(t *testing.T, path, _ string) { overwrite(t, path, path) },
			true, false},
		"replaced, same build-id": {"0x01020304", func(t *testing.T, path,
			other string) {
			require.NoError(t, os.Rename(other, path))
		}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			path, addr := build("first", c.id, "\n\nint main(void) {\nreturn 0; }\n")
			other, _ := build("other", c.id, "int main(void) {\nreturn 1; }\n")
			o := unwind.NewObjects(unwind.Options{}).Object(path, nil)
			require.Equal(t, path, o.Path())
			n := New(Options{Lines: true})
			line := func() int {
				f := &frame.Frame{Name: "main"}
				n.locate(f, o, addr)
				return int(f.Source.Line)
			}
			if !c.late {
				assert.Equal(t, 3, line())
			}
			c.change(t, path, other)
			assert.Equal(t, c.lines, line() != 0)
			errs := n.Close()
			assert.Equal(t, !c.lines, errors.Is(errors.Join(errs...), unwind.ErrChanged), "%v", errs)
		})
	}
}

// overwrite writes a file's bytes into another one.
func overwrite(t *testing.T, path, from string) {
	b, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, b, 0o666))
}
