package elfout

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/elfouttest"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// runTool runs a program in the C locale and returns both its outputs.
func runTool(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%v: %s", cmd, out)
	return string(out)
}

// written writes an image to a folder of the test's own.
func written(t *testing.T, im *Image) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), im.src.Soname())
	require.NoError(t, im.WriteFile(path))
	return path
}

// withoutSections is tiny without section headers.
func withoutSections(t *testing.T) *Image {
	t.Helper()
	src := testSource
	src.Bare = true
	im, err := New(elfouttest.Tiny(), src)
	require.NoError(t, err)
	return im
}

// compiled compiles testdata/load.c.
func compiled(t *testing.T, args ...string) string {
	t.Helper()
	testtool.Need(t, "gcc")
	testtool.DependsOn(t, "testdata", "../runtime/include")
	exe := filepath.Join(t.TempDir(), "load")
	runTool(t, "gcc", append([]string{"-O1", "-fno-omit-frame-pointer", "-o", exe, "testdata/load.c"}, args...)...)
	return exe
}

func requireLoads(t *testing.T, out string) {
	t.Helper()
	require.Regexp(t, `^walk 3 status -1 pcs 1100 1002 9999 rbp 9\nstep f rip 1100 rsp\+8 rbp 3 rbx 4\n$`, out)
}

func TestReadelfIsSilent(t *testing.T) {
	testtool.Need(t, "readelf")
	bare := elfouttest.Tiny()
	bare.Data, bare.Fixups, bare.Frames, bare.Symbols = nil, nil, nil, nil
	empty, err := New(bare, Source{Name: "x"})
	require.NoError(t, err)
	for name, im := range map[string]*Image{"tiny": tiny(t), "empty": empty, "no sections": withoutSections(t)} {
		t.Run(name, func(t *testing.T) {
			path := written(t, im)
			for _, flags := range [][]string{{"-aW"}, {"-W", "--debug-dump=frames-interp"},
				{"-W", "--dyn-syms", "-D"}} {
				out := runTool(t, "readelf", append(flags, path)...)
				require.NotRegexp(t, `(?i)warning|error|corrupt|<unknown|bad `, out, strings.Join(flags, " "))
			}
		})
	}
}

func TestElflint(t *testing.T) {
	testtool.Need(t, "eu-elflint")
	// It calls every note whose owner it does not know an error.
	out, _ := exec.Command("eu-elflint", "--gnu-ld", written(t, tiny(t))).CombinedOutput()
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		if !strings.Contains(line, "with owner name 'ehasm'") {
			require.Equal(t, "No errors", line)
		}
	}
}

func TestDlopen(t *testing.T) {
	exe := compiled(t, "-ldl")
	requireLoads(t, runTool(t, exe, written(t, tiny(t))))
	requireLoads(t, runTool(t, exe, written(t, withoutSections(t))))

	// With one of the hash tables hidden, the loader has to use the other.
	for _, hidden := range []elf.DynTag{elf.DT_GNU_HASH, elf.DT_HASH} {
		im := tiny(t)
		hideTag(im, hidden)
		requireLoads(t, runTool(t, exe, written(t, im)))
	}
}

// hideTag gives an entry of the dynamic section a tag that loaders ignore.
func hideTag(im *Image, tag elf.DynTag) {
	dyn := im.bytes[im.dynamic.off:im.dynamic.end()]
	for ; len(dyn) > 0; dyn = dyn[dynSize:] {
		if binary.LittleEndian.Uint64(dyn) == uint64(tag) {
			binary.LittleEndian.PutUint64(dyn, uint64(elf.DT_LOOS)+0x123)
		}
	}
}

// compiledMusl is compiled, against musl.
func compiledMusl(t *testing.T) string {
	t.Helper()
	const libc, loader = "/usr/lib/x86_64-linux-musl/libc.so", "/lib/ld-musl-x86_64.so.1"
	for _, path := range []string{libc, loader} {
		if _, err := os.Stat(path); err != nil {
			t.Skip("needs musl")
		}
	}
	return compiled(t, "-DSTART", "-nostdlib", "-fno-stack-protector", "-Wl,--dynamic-linker="+loader, libc)
}

// TestDlopenMusl loads with musl's dynamic linker.
func TestDlopenMusl(t *testing.T) {
	exe := compiledMusl(t)
	requireLoads(t, runTool(t, exe, written(t, tiny(t))))
	requireLoads(t, runTool(t, exe, written(t, withoutSections(t))))
}

// TestStripped loads and reads a file whose .symtab is gone.
func TestStripped(t *testing.T) {
	testtool.Need(t, "strip")
	exe := compiled(t, "-ldl")
	path := written(t, tiny(t))
	runTool(t, "strip", path)
	requireLoads(t, runTool(t, exe, path))
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	info, err := ReadInfo(bytes.NewReader(b))
	require.NoError(t, err)
	require.Len(t, info.Symbols, 2)
}

// TestGDB unwinds with gdb from every instruction of a walk, and from a
// callback below it.
func TestGDB(t *testing.T) {
	testtool.Need(t, "gdb")
	exe := compiled(t, "-g", "-ldl")
	script := filepath.Join(t.TempDir(), "gdb")
	const stepping = `
set $i = 0
while $i < 150
stepi
echo @\n
bt
set $i = $i + 1
end
`
	run := func(text string) string {
		require.NoError(t, os.WriteFile(script, []byte(text), 0o644))
		cmd := exec.Command("gdb", "-nx", "-batch", "-x", script, "--args", exe, written(t, tiny(t)))
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	prologue := "set pagination off\nset confirm off\nbreak loaded\nrun\ndelete\n"

	out := run(prologue + "break read_word\ncontinue\nbt\n")
	require.Regexp(t, `(?s)#0  read_word .*#1 .* eh_elf_load \(\).*#2 .* _eh_elf_walk \(\).*#3 .* main `, out)

	out = run(prologue + "break *_eh_elf_walk\ncontinue\n" + stepping)
	stacks := strings.Split(out, "@\n")[1:]
	require.Len(t, stacks, 150)
	frame := regexp.MustCompile(`(?m)^#\d+ +(?:0x[0-9a-f]+ in )?(\S+) \(`)
	inside := map[string]int{}
	for _, stack := range stacks {
		var names []string
		for _, m := range frame.FindAllStringSubmatch(stack, -1) {
			names = append(names, m[1])
		}
		require.NotEmpty(t, names, stack)
		require.Equal(t, "main", names[len(names)-1], stack)
		require.Contains(t, []string{
			"_eh_elf_walk main", "eh_elf_load _eh_elf_walk main", "read_word eh_elf_load _eh_elf_walk main",
		}, strings.Join(names, " "))
		inside[names[0]]++
	}
	require.Greater(t, inside["_eh_elf_walk"], 60)
	require.Greater(t, inside["eh_elf_load"], 30)
}
