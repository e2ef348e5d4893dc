package live

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
)

// scenarios runs the program and returns the figures of each of its scenarios.
// The program compares; it must have found no difference.
func scenarios(t *testing.T, exe, ehElfs string, args ...string) map[string]map[string]int {
	t.Helper()
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "EH_ELFS="+ehElfs, "LD_BIND_NOW=")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Run(), "%s", out.String())
	require.Regexp(t, `(?m)^failures 0$`, out.String())
	figures := map[string]map[string]int{}
	pair := regexp.MustCompile(` ([\w-]+)=(\d+)`)
	for _, line := range strings.Split(out.String(), "\n") {
		name, ok := strings.CutPrefix(line, "scenario ")
		if !ok {
			continue
		}
		t.Log(line)
		name, _, _ = strings.Cut(name, " ")
		figures[name] = map[string]int{}
		for _, m := range pair.FindAllStringSubmatch(line, -1) {
			n, err := strconv.Atoi(m[2])
			require.NoError(t, err)
			figures[name][m[1]] = n
		}
	}
	return figures
}

// variants are the ways in which the program is compiled.
var variants = []struct {
	name  string
	flags []string
}{
	{"O2", []string{"-O2", "-fomit-frame-pointer"}},
	{"O0", []string{"-O0", "-fno-omit-frame-pointer"}},
	{"O3-clash-cet", []string{"-O3", "-fstack-clash-protection", "-fcf-protection", "-mavx2"}},
}

// TestStacks compares stacks taken at calls and in signal handlers.
func TestStacks(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			exe := program(t, t.TempDir(), v.flags...)
			figures := scenarios(t, exe, compileAll(t, exe, asmgen.Options{}), "calls", "signals", "sampled")
			for _, name := range []string{"constructor-of-library", "constructor", "chain", "noreturn", "thread",
				"dlopen",
				"signal", "signal-altstack", "timer", "atexit"} {
				require.Positive(t, figures[name]["stacks"], name)
				require.Positive(t, figures[name]["frames"], name)
				require.Positive(t, figures[name]["libgcc"], name)
			}
			require.Greater(t, figures["chain"]["frames"], 2000)
			require.Greater(t, figures["signal"]["frames"], 5000)
			require.Equal(t, 3000, figures["timer"]["samples"])
			require.Less(t, figures["timer"]["wrong-table-glibc-mpn"], 150)
			require.Less(t, figures["timer"]["wrong-table-gcc-realigned-epilogue"], 150)
		})
	}
}

// TestStepped compares the stack at every instruction of a program that
// single-steps itself: prologues, epilogues, lazy and bound PLT calls, the vDSO,
// library functions, and the walk itself.
func TestStepped(t *testing.T) {
	exe := program(t, t.TempDir(), variants[0].flags...)
	dir := compileAll(t, exe, asmgen.Options{})
	compileAgain(t, dir, "live.eh_elf.so", "libc.so.6.eh_elf.so", "liblive.so.eh_elf.so")
	figures := scenarios(t, exe, dir, "stepped")
	for _, name := range []string{"stepped", "stepped-altstack"} {
		f := figures[name]
		require.Greater(t, f["steps"], 20_000, name)
		require.Greater(t, f["calls"], 200, name)
		require.Greater(t, f["known"], 3*f["steps"], name)
		require.Less(t, f["wrong-table-glibc-mpn"]+f["wrong-table-gcc-realigned-epilogue"], f["steps"]/50, name)
	}
	first := figures["stepped-altstack"] // calls are bound in it
	require.Greater(t, first["steps-in-loader"], figures["stepped"]["steps-in-loader"]+1000)
	require.Positive(t, figures["stepped"]["plt-jumps"])
	require.Positive(t, first["plt-pushes-and-tail-calls"])
	require.Positive(t, first["steps-in-vdso"])
	require.Greater(t, first["steps-in-libc"], 10_000)
	require.Greater(t, figures["stepped-walk"]["steps"], 1000)
}

// TestOriginal walks with clients of the original interface.
func TestOriginal(t *testing.T) {
	exe := program(t, t.TempDir(), variants[0].flags...)
	for _, c := range []struct {
		name string
		opt  asmgen.Options
	}{{"original", asmgen.Options{}}, {"original-no-deref", asmgen.Options{NoDeref: true}}} {
		t.Run(c.name, func(t *testing.T) {
			f := scenarios(t, exe, compileAll(t, exe, c.opt), c.name)[c.name]
			require.Greater(t, f["original-frames"], 2000)
			require.Greater(t, f["original-frames-as-libunwind"], 2000)
		})
	}
}

// TestDifferenceIsSeen gives the program an eh_elf that is wrong about one
// register in a handful of rows, which it must notice.
func TestDifferenceIsSeen(t *testing.T) {
	exe := program(t, t.TempDir(), variants[0].flags...)
	dir := compileAll(t, exe, asmgen.Options{})
	object, err := dwarfcfa.Open(exe)
	require.NoError(t, err)
	defer object.Close()
	table, _, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{})
	require.NoError(t, err)
	changed := 0
	for i := range table.Rows {
		// many_saved and its like: rbx, rbp, r12 to r15 saved.
		if rule := &table.Rows[i].Regs[abi.R14]; rule.Kind == dwarfcfa.RuleOffset && rule.Offset == -24 {
			rule.Offset = -32
			changed++
		}
	}
	require.Positive(t, changed)
	layout, err := plan.Build(table, plan.Options{})
	require.NoError(t, err)
	code, err := asmgen.Assemble(layout, asmgen.Options{})
	require.NoError(t, err)
	image, err := elfout.New(code, elfout.Source{Name: "live", BuildID: object.BuildID(), FileSize: object.FileSize()})
	require.NoError(t, err)
	require.NoError(t, image.WriteFile(filepath.Join(dir, "live"+abi.Suffix)))

	cmd := exec.Command(exe, "calls")
	cmd.Env = append(os.Environ(), "LC_ALL=C", "EH_ELFS="+dir)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode(), "%s", out)
	require.Regexp(t, `FAIL chain: a register, frame \d+, against libunwind`, string(out))
	require.Regexp(t, `FAIL chain: a register, frame \d+, against libgcc`, string(out))
}
