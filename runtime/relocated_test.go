//go:build unix

package runtime_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// TestRelocatedTables: programs whose tables the loader relocates do the same with the system's libgcc, preloaded, and
// with ours in its place, whatever the compiler and the linker have left in the file.
func TestRelocatedTables(t *testing.T) {
	k := makePreload(t)
	testtool.Need(t, "clang++", "ld.lld", "mold", "ld.gold")
	source, inner := "eh/testdata/relocated.cc", "eh/testdata/relocated-inner.s"
	whole := "-DLIBRARY -DPROGRAM "
	shapes := map[string]string{
		"large":     whole + "-mcmodel=large -fno-pic -pie -Wl,-z,notext",
		"inner":     whole + "-DINNER -fPIE -pie -Wl,-z,notext",
		"pie":       whole + "-fPIE -pie",
		"fixed":     whole + "-fno-pic -no-pie",
		"relr":      whole + "-fPIE -pie -Wl,-z,pack-relative-relocs",
		"rel":       whole + "-mcmodel=large -fno-pic -pie -Wl,-z,notext,-z,rel",
		"values":    whole + "-DINNER -mcmodel=large -fno-pic -pie -Wl,-z,notext,--apply-dynamic-relocs",
		"shared":    "-DLIBRARY -fPIC -shared",
		"prelinked": "-DLIBRARY -mcmodel=large -fno-pic -shared -Wl,-z,notext,--image-base=0x3000000000,--apply-dynamic-relocs",
	}
	// linkers
	only := map[string]string{"relr": "bfd mold", "rel": "lld", "values": "lld", "prelinked": "lld", "pie": "bfd",
		"fixed": "bfd"}
	lib := k.path("libgcc/libgcc_s.so.1")
	normal := 0
	for _, compiler := range []string{"g++", "clang++"} {
		for _, linker := range []string{"bfd", "gold", "lld", "mold"} {
			for shape, flags := range shapes {
				if names, ok := only[shape]; ok && !strings.Contains(names, linker) {
					continue
				}
				t.Run(compiler+" "+linker+" "+shape, func(t *testing.T) {
					dir := t.TempDir()
					program := filepath.Join(dir, "program")
					make := func(out, flags string, files ...string) {
						args := append(strings.Fields(flags), "-O2", "-w", "-fuse-ld="+linker, "-o", out)
						said, err := exec.Command(compiler, append(args, files...)...).CombinedOutput()
						require.NoError(t, err, "%s", said)
					}
					switch {
					case strings.Contains(flags, "-shared"):
						make(filepath.Join(dir, "libthrower.so"), flags, source)
						make(program, "-DPROGRAM -L"+dir+" -Wl,-rpath,"+dir, source, "-lthrower")
					case strings.Contains(flags, "INNER"):
						make(program, flags, source, inner)
					default:
						make(program, flags, source)
					}
					do := func(env string, command ...string) (string, int) {
						cmd := exec.Command(command[0], command[1:]...)
						cmd.Env = append(cmd.Environ(), "XDG_CACHE_HOME="+dir, env,
							"EHASM_PRELOAD_LIBRARY="+k.path("libehunwind-preload.so"))
						out, _ := cmd.Output()
						return string(out), cmd.ProcessState.ExitCode()
					}
					want, status := do("A=", program)
					if status >= 0 { // the linker has left tables with which the loader makes a sound program
						normal++
					}
					out, code := do("A=", k.path("ehasm"), "preload", "-q", "--", program)
					assert.Equal(t, want, out)
					assert.Equal(t, status, code)
					said, err := exec.Command(k.path("ehasm"), "build", "-q", "--deps", "-o", filepath.Join(dir, "eh"),
						program).CombinedOutput()
					if err != nil { // no reader could tell whose tables these are
						require.Contains(t, string(said), "nothing identifies it")
					}
					for _, env := range []string{"LD_PRELOAD=" + lib, "LD_LIBRARY_PATH=" + filepath.Dir(lib)} {
						out, code := do(env, "env", "EHASM_PATH="+filepath.Join(dir, "eh"), program)
						assert.Equal(t, want, out)
						assert.Equal(t, status, code)
					}
				})
			}
		}
	}
	t.Logf("%d programs end normally", normal)
}
