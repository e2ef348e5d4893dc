package live

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// run runs a program in the C locale and returns its output.
func run(t testing.TB, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(append(os.Environ(), "LC_ALL=C"), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%v: %s", cmd, out)
	return string(out)
}

// gccFlags returns the flags of gcc for the programs of these tests.
func gccFlags(more ...string) []string {
	return append([]string{"-g", "-fasynchronous-unwind-tables", "-Wall", "-Wextra", "-Werror",
		"-I../../runtime/include", "-Itestdata", "-Wl,-z,lazy"}, more...)
}

// program compiles the C and assembly files of testdata, and the library that
// they call, to dir/live and dir/liblive.so. variant goes to gcc.
func program(t testing.TB, dir string, variant ...string) string {
	t.Helper()
	testtool.Need(t, "gcc")
	testtool.DependsOn(t, "testdata", "../../runtime/include")
	needLibunwind(t)
	run(t, nil, "gcc", gccFlags(append(variant, "-fPIC", "-shared", "-o", filepath.Join(dir, "liblive.so"),
		"testdata/lib.c")...)...)
	exe := filepath.Join(dir, "live")
	args := gccFlags(append(variant, "-rdynamic", "-o", exe)...)
	for _, f := range []string{"main.c", "objects.c", "memory.c", "unwind.c", "compare.c", "stepped.c", "original.c",
		"shapes.c", "work.c", "regs.S"} {
		args = append(args, filepath.Join("testdata", f))
	}
	// libgcc's unwinder is looked up by name: libunwind exports the same functions.
	run(t, nil, "gcc", append(args, "-L"+dir, "-llive", "-Wl,-rpath,$ORIGIN", "-lunwind",
		"-Wl,--no-as-needed", "-lgcc_s", "-Wl,--as-needed", "-lm", "-lpthread", "-ldl")...)
	return exe
}

// needLibunwind skips the test where libunwind's header and library are missing.
func needLibunwind(t testing.TB) {
	t.Helper()
	cmd := exec.Command("gcc", "-x", "c", "-", "-o", filepath.Join(t.TempDir(), "out"), "-lunwind")
	cmd.Stdin = strings.NewReader("#define UNW_LOCAL_ONLY\n#include <libunwind.h>\n" +
		"int main(void) { unw_context_t c; return unw_getcontext(&c); }\n")
	if err := cmd.Run(); err != nil {
		t.Skip("needs libunwind-dev")
	}
}

// compile makes the eh_elf of an object.
func compile(t testing.TB, name string, r io.ReaderAt, size int64, opt asmgen.Options) []byte {
	t.Helper()
	object, err := dwarfcfa.NewFile(name, r, size)
	require.NoError(t, err)
	table, report, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{Strict: true})
	require.NoError(t, err)
	require.Zero(t, report.Entries.Lost)
	layout, err := plan.Build(table, plan.Options{})
	require.NoError(t, err)
	code, err := asmgen.Assemble(layout, opt)
	require.NoError(t, err)
	image, err := elfout.New(code, elfout.Source{Name: filepath.Base(name), BuildID: object.BuildID(), FileSize: size})
	require.NoError(t, err)
	return image.Bytes()
}

// compileAll writes the eh_elfs of a program, of all that it loads and of the vDSO
// to a new folder, by all names under which an object is found.
func compileAll(t testing.TB, exe string, opt asmgen.Options) string {
	t.Helper()
	dir := t.TempDir()
	found := find.Find(context.Background(), []string{exe}, find.Options{Deps: true, VDSO: true,
		Loader: find.HostLoader(os.Getenv)})
	require.Empty(t, found.Problems)
	require.Greater(t, len(found.Inputs), 3)
	for _, in := range found.Inputs {
		r, size, done, err := in.Open()
		require.NoError(t, err)
		name := filepath.Base(in.Names[0].Path)
		if in.Data != nil {
			name = find.VDSOName
		}
		image := compile(t, name, r, size, opt)
		require.NoError(t, done())
		names := map[string]bool{name: true}
		for _, n := range in.Names {
			names[filepath.Base(n.Path)] = true
			if target, err := filepath.EvalSymlinks(n.Path); err == nil {
				names[filepath.Base(target)] = true // as /proc/PID/maps has it
			}
		}
		for n := range names {
			require.NoError(t, os.WriteFile(filepath.Join(dir, n+abi.Suffix), image, 0o644))
		}
	}
	return dir
}

// compileAgain adds the eh_elfs of some eh_elfs.
func compileAgain(t testing.TB, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		image, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		again := compile(t, name, bytes.NewReader(image), int64(len(image)), asmgen.Options{})
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+abi.Suffix), again, 0o644))
	}
}
