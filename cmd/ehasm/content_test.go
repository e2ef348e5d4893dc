package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// TestSynthContent: rows that were made from code hold for that code, so it identifies an
// object, whose .eh_frame may be another object's.
func TestSynthContent(t *testing.T) {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	compile := func(name string, room int) string {
		path := filepath.Join(dir, name, "room.so")
		require.NoError(t, os.Mkdir(filepath.Dir(path), 0o755))
		cmd := exec.Command("gcc", "-O1", "-shared", "-fPIC", "-Wl,--build-id=0x12", "-x", "c", "-", "-o", path)
		cmd.Stdin = strings.NewReader(fmt.Sprintf(`int with(int x) { return x + 1; }
__asm__(".globl without\n.type without, @function\nwithout: sub $%d, %%rsp\ncall with@plt\nadd $%d, %%rsp\nret\n.size without, .-without");
`, room, room))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return path
	}
	a, b := compile("a", 24), compile("b", 40)
	for mode, differ := range map[string]bool{"off": false, "missing": true} {
		r := ehasm(t, "build", "--synth="+mode, a)
		require.Equal(t, exitDone, r.code, r.stderr)
		for path, want := range map[string]bool{a: true, b: !differ} {
			object, err := os.Open(path)
			require.NoError(t, err)
			defer object.Close()
			f, err := ehelf.OpenFor(a+".eh_elf.so", object)
			if !want {
				assert.ErrorIs(t, err, ehelf.ErrMismatch, "%s with %s", mode, path)
				continue
			}
			require.NoError(t, err, "%s with %s", mode, path)
			require.NoError(t, f.Close())
		}
	}
}
