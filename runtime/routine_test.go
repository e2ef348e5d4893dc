//go:build unix

package runtime_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOtherRoutines: personality routines that are not libstdc++'s are called as libgcc calls them, whatever their name
// is in the file that the eh_elf was made from.
func TestOtherRoutines(t *testing.T) {
	k := makePreload(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	source := "-O2 -Wl,--build-id=0x1234 eh/testdata/routine.cc"
	plain := compileTo(t, path("plain"), "g++ -rdynamic "+source)
	defines := compileTo(t, path("defines"), "g++ -rdynamic -DDEFINES "+source)
	interposer := compileTo(t, path("interposer.so"), "g++ -shared -fPIC -DINTERPOSER -Wl,--no-as-needed -lgcc_s "+source)
	// may have a libgcc: its frames are handed over
	alone := compileTo(t, path("alone.so"), "g++ -shared -fPIC -DINTERPOSER "+source)
	compileTo(t, path("named.o"), "g++ -c -fPIC -DPLUGIN "+source)
	out, err := exec.Command("objcopy", "--redefine-sym", "__gxx_personality_v0=own_personality_v0", "--redefine-sym",
		"DW.ref.__gxx_personality_v0=DW.ref.own_personality_v0", path("named.o"), path("own.o")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range []string{"named", "own"} {
		compileTo(t, path(name+".so"), "g++ -shared -Wl,--build-id=0x1234 "+path(name+".o"))
	}
	lib := k.path("libgcc/libgcc_s.so.1")
	for made, other := range map[string]string{"named.so": "own.so", "own.so": "named.so"} {
		eh := buildFor(t, k, path("eh-"+made), "--deps", plain, defines, interposer, alone, path(made))
		require.NoError(t, writeMode(filepath.Join(eh, other+".eh_elf.so"), read(t, filepath.Join(eh, made+".eh_elf.so")),
			0o644))
		for _, plugin := range []string{made, other} {
			for _, c := range []struct{ program, more string }{{plain, ""}, {defines, ""}, {plain, interposer}, {plain, alone}} {
				if c.more == alone && plugin == "own.so" {
					continue // what had answered is asked again
				}
				want := k.mustRun(t, "", []string{"LD_PRELOAD=" + c.more}, c.program, path(plugin))
				got := k.mustRun(t, eh, []string{"LD_PRELOAD=" + lib + ":" + c.more}, c.program, path(plugin))
				assert.Equal(t, want, got, "%s of %s, %v", plugin, made, c)
				if c.more == alone {
					continue
				}
				stats := k.mustRun(t, eh, []string{"EHASM_STATS=1", "LD_PRELOAD=" + lib + ":" + c.more}, c.program, path(plugin))
				assert.Contains(t, stats, "on, 6 throws taken over, 0 handed over, ")
			}
		}
	}
}
