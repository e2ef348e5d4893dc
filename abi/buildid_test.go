package abi_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
)

// TestBuildID compares with readelf -n.
func TestBuildID(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "a.c")
	require.NoError(t, os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o600))
	noted := regexp.MustCompile(`Build ID: ([0-9a-f]+)`)
	for _, c := range []struct {
		flag string
		n    int
	}{{"-Wl,--build-id=sha1", 20}, {"-Wl,--build-id=md5", 16}, {"-Wl,--build-id=0x0102030405060708", 8},
		{"-Wl,--build-id=none", 0}, {"-c", 0}} {
		path := filepath.Join(dir, "a")
		out, err := exec.Command("gcc", c.flag, "-o", path, source).CombinedOutput()
		require.NoError(t, err, "%s", out)
		out, err = exec.Command("readelf", "-n", path).CombinedOutput()
		require.NoError(t, err, "%s", out)
		var want string
		if m := noted.FindSubmatch(out); m != nil {
			want = string(m[1])
		}
		object, err := os.ReadFile(path)
		require.NoError(t, err)
		id, err := abi.BuildID(bytes.NewReader(object))
		require.NoError(t, err, c.flag)
		assert.Len(t, id, c.n, c.flag)
		assert.Equal(t, want, fmt.Sprintf("%x", id), c.flag)

		// Without program headers the note sections tell, as in a debug file.
		clear(object[56:58])
		id, err = abi.BuildID(bytes.NewReader(object))
		require.NoError(t, err, c.flag)
		assert.Equal(t, want, fmt.Sprintf("%x", id), c.flag)
		for n := range 64 {
			_, err := abi.BuildID(bytes.NewReader(object[:n]))
			require.Error(t, err)
		}
	}
	_, err := abi.BuildID(bytes.NewReader(bytes.Repeat([]byte("x"), 100)))
	assert.ErrorIs(t, err, abi.ErrNotELF64)
}

func FuzzBuildID(f *testing.F) {
	self, err := os.Executable()
	require.NoError(f, err)
	b, err := os.ReadFile(self)
	require.NoError(f, err)
	f.Add(b[:4096])
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = abi.BuildID(bytes.NewReader(b)) })
}
