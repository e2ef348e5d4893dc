package check_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/analysis/check"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// stacks returns what gdb shows of a program that throws, and perf of one that is busy in the function that throws.
func stacks(t *testing.T, exe string) (gdb, perf string) {
	out, err := exec.Command("gdb", "-nx", "-q", "-batch", "-ex", "set debuginfod enabled off",
		"-ex", "set breakpoint pending on", "-ex", "break __cxa_throw",
		"-ex", "run", "-ex", "bt", exe).CombinedOutput()
	require.NoError(t, err, "%s", out)
	data := exe + ".data"
	// it may terminate
	_ = exec.Command("perf", "record", "-q", "-e", "cpu-clock:u", "-F", "199", "--call-graph", "dwarf,1024", "-o", data,
		exe, "busy").Run()
	samples, err := exec.Command("perf", "script", "-i", data, "-F", "ip,sym").Output()
	require.NoError(t, err)
	require.Contains(t, string(samples), "thrower", "no sample")
	return string(out), string(samples)
}

// TestHidden: an FDE is found to be hidden from libgcc and perf exactly where the program's throw terminates and perf's
// stacks end: clang's empty function has an empty FDE, which some linkers keep in .eh_frame_hdr. gdb's stacks are
// whole.
func TestHidden(t *testing.T) {
	testtool.Long(t)
	testtool.Need(t, "clang++", "ld.lld", "mold", "ld.gold", "gdb", "perf")
	const program = `void spin() { for (;;); }
static int n;
__attribute__((noinline)) void thrower(int k) { for (volatile int i = k; i; i = i - 1); n++; throw n; }
int main(int c, char **) { try { thrower(c > 1 ? 100000000 : 0); } catch (int x) { return x - 1; } }
`
	dir := t.TempDir()
	t.Setenv("HOME", dir) // where perf keeps files by build-id; in those of runs before, it finds the FDE
	source, exe := filepath.Join(dir, "p.cc"), filepath.Join(dir, "p")
	require.NoError(t, os.WriteFile(source, []byte(program), 0o644))
	all := map[bool]int{}
	for _, linker := range []string{"bfd", "gold", "lld", "mold"} {
		out, err := exec.Command("clang++", "-O2", "-fuse-ld="+linker, "-o", exe, source).CombinedOutput()
		require.NoError(t, err, "%s", out)
		terminates := exec.Command(exe).Run() != nil
		var hidden []string
		for _, f := range run(t, exe).Findings {
			if f.Kind == check.KindHidden {
				hidden = append(hidden, f.Function)
				assert.Equal(t, check.SeverityError, f.Severity)
				assert.Equal(t, "libgcc and perf find no FDE, so that a throw terminates; gdb finds one", f.Message())
			}
		}
		t.Logf("%s: terminates %v", linker, terminates)
		assert.Equal(t, terminates, len(hidden) > 0, "%s: %q", linker, hidden)
		gdb, perf := stacks(t, exe)
		assert.Regexp(t, `#2 .* in main`, gdb, linker)
		assert.Equal(t, !terminates, strings.Contains(perf, " main\n"), "%s: %s", linker, perf)
		all[terminates]++
	}
	assert.Len(t, all, 2)
}

// TestLoader has an FDE that begins with an address. A linker may leave it to the loader: then libgcc, which reads
// memory, finds the FDE if .eh_frame_hdr has it, but gdb and perf, which read the file, do not.
func TestLoader(t *testing.T) {
	testtool.Long(t)
	testtool.Need(t, "g++", "ld.lld", "gdb", "perf")
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	s := write("f.s", `	.text
	.globl	f
	.type	f, @function
f:	sub	$40, %rsp
.Lin:	call	*%rsi
	add	$40, %rsp
.Lout:	ret
.Lend:	.size	f, .-f
	.section .note.GNU-stack,"",@progbits
	.section .eh_frame,"aw",@progbits
.Lcie:	.long	.Lcie1-.Lcie0
.Lcie0:	.long	0
	.byte	1
	.string	"zR"
	.uleb128 1
	.sleb128 -8
	.byte	16
	.uleb128 1
	.byte	0			# an address
	.byte	0x0c, 7, 8, 0x90, 1	# CFA rsp+8, return address at CFA-8
	.balign	8
.Lcie1:	.long	.Lfde1-.Lfde0
.Lfde0:	.long	.Lfde0-.Lcie
	.quad	f
	.quad	.Lend-f
	.uleb128 0
	.byte	0x40+.Lin-f, 0x0e, 48
	.byte	0x40+.Lout-.Lin, 0x0e, 8
	.balign	8
.Lfde1:
`)
	cc := write("p.cc", `extern "C" void f(int, void (*)(int));
static int n;
__attribute__((noinline)) void thrower(int k) { for (volatile int i = k; i; i = i - 1); n++; throw n; }
int main(int c, char **) { try { f(c > 1 ? 100000000 : 0, thrower); } catch (int x) { return x - 1; } }
`)
	for _, linker := range []string{"bfd", "lld"} {
		exe := filepath.Join(dir, linker)
		out, err := exec.Command("g++", "-O1", "-fuse-ld="+linker, "-Wl,-z,notext", "-o", exe, cc, s).CombinedOutput()
		require.NoError(t, err, "%s", out)
		said := ""
		for _, f := range run(t, exe).Findings {
			if f.Kind == check.KindLoader {
				assert.Equal(t, check.SeverityNote, f.Severity)
				said = f.Message()
			}
		}
		gdb, perf := stacks(t, exe)
		if linker == "bfd" { // makes distances of addresses
			assert.Empty(t, said)
			assert.Regexp(t, `#3 .* in main`, gdb)
			assert.Contains(t, perf, " main\n")
			continue
		}
		assert.Equal(t, "1 pointers are written by the loader: gdb and perf read .eh_frame from the file", said)
		assert.Contains(t, gdb, " in f ")
		assert.NotContains(t, gdb, " in main")
		assert.NotContains(t, perf, " main\n")
	}
}

// TestAbsolute: of an FDE with an absolute address there is an error exactly where a throw through its function
// terminates. lld relocates the FDE but leaves .eh_frame_hdr without it; mold does not relocate it, but libgcc takes
// the address from .eh_frame_hdr.
func TestAbsolute(t *testing.T) {
	testtool.Need(t, "g++", "ld.lld", "mold", "ld.gold")
	const program = `extern "C" void calls(void (*)());
int main() { try { calls([] { throw 1; }); } catch (int) { return 0; } return 1; }
`
	dir := t.TempDir()
	source, exe := filepath.Join(dir, "p.cc"), filepath.Join(dir, "p")
	require.NoError(t, os.WriteFile(source, []byte(program), 0o644))
	all := map[bool]int{}
	for _, linker := range testtool.Sweep([]string{"lld", "bfd", "gold", "mold"}) {
		for _, pie := range []string{"-pie", "-no-pie"} {
			out, err := exec.Command("g++", "-w", "-fPIE", pie, "-Wl,-z,notext", "-fuse-ld="+linker, "-o", exe, source,
				"testdata/absolute.s").CombinedOutput()
			require.NoError(t, err, "%s", out)
			terminates := exec.Command(exe).Run() != nil
			found := 0
			for _, f := range run(t, exe).Findings {
				if f.Severity == check.SeverityError {
					found++
				}
			}
			assert.Equal(t, terminates, found > 0, "%s %s", linker, pie)
			all[terminates]++
		}
	}
	assert.Len(t, all, 2)
}
