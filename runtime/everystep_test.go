//go:build unix

package runtime_test

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

var metAt = regexp.MustCompile(
	`(\d+) instructions, (\d+) in eh_elfs, (\d+) in libgcc_s, (\d+) landing; 0 short, 0 wrong\n$`)

// TestEveryInstruction: a signal may come at any instruction of a walk or a throw, and finds the whole stack there.
func TestEveryInstruction(t *testing.T) {
	k := makeKit(t)
	testtool.Need(t, "g++")
	program, throws := k.path("everystep"), k.path("libgcc/libgcc_s.so.1")
	require.Empty(t, runAll([][]string{
		{"g++", "-O2", "-Wall", "-Wextra", "-Werror", "-Iinclude", "-pthread", "-o", program,
			"eh/testdata/everystep.cc",
			k.path("libehunwind.so"), "-Wl,-rpath," + k.dir},
		{k.path("ehasm"), "build", "-q", "-o", k.path("eh-everystep-throws"), throws},
	}))
	for _, variant := range []string{"--dispatch=tree", "--dispatch=packed"} {
		eh := k.path("eh-everystep" + variant)
		require.Empty(t, runAll([][]string{{k.path("ehasm"), "build", "-q", "--deps", "--vdso", variant, "-o", eh,
			program}}))
		for _, c := range []struct {
			args            []string
			ehElfs, landing bool // what it is to have met
		}{
			{[]string{"walk", "warm"}, true, false},
			{[]string{"walk", "threads", "40"}, true, false},
			{[]string{"throw", "warm"}, false, true},
			{[]string{"throw", "cold"}, true, true},
			{[]string{"exit", "warm"}, true, true},
			{[]string{"cancel", "warm"}, true, true},
		} {
			cmd := exec.Command(program, c.args...)
			cmd.Env = append(os.Environ(), "EHASM_PATH="+eh+":"+k.path("eh-everystep-throws"),
				"XDG_CACHE_HOME="+t.TempDir(), "LD_PRELOAD="+throws)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s %v: %s", variant, c.args, out)
			met := metAt.FindStringSubmatch(string(out))
			require.NotNil(t, met, "%s", out)
			t.Logf("%s %v: %s", variant, c.args, out)
			inEhElfs, err := strconv.Atoi(met[2])
			require.NoError(t, err)
			assert.Equal(t, c.ehElfs, inEhElfs > 0, "%s", out)
			assert.Equal(t, c.landing, met[3] != "0" && met[4] == "3", "%s", out)
		}
	}
}

// TestEveryHandler: at any instruction of a throw, a walk or a thread's end, a signal's handler may
// walk, throw, load and fork. The program left in the middle goes on as if nothing had been.
func TestEveryHandler(t *testing.T) {
	k := makeKit(t)
	testtool.Need(t, "g++")
	program, library, eh := k.path("everyhandler"), k.path("everyhandler.so"), k.path("eh-everyhandler")
	require.Empty(t, runAll([][]string{
		{"g++", "-O2", "-Wall", "-Wextra", "-Werror", "-Iinclude", "-pthread", "-o", program,
			"eh/testdata/everyhandler.cc",
			k.path("libehunwind.so"), "-Wl,-rpath," + k.dir},
		{"g++", "-O2", "-shared", "-fPIC", "-include", "exception", "-DPARENT=std::exception", "-DPLUS=1", "-o",
			library, "eh/testdata/plugin.cc"},
		{k.path("ehasm"), "build", "-q", "--deps", "--vdso", "-o", eh, program, library},
		{k.path("ehasm"), "build", "-q", "-o", eh + "-ours", k.path("libgcc/libgcc_s.so.1"),
			k.path("libehunwind-preload.so")},
	}))
	for _, args := range []string{
		"throw throw warm fork 1", "throw all warm fork 13", "rethrow all warm fork 41", "exit all warm fork 53",
		"cancel throw warm fork 7",
		"walk all warm fork 17", "backtrace all warm fork 17", "unwind all warm fork 59", "throw all cold fork 211",
		"exit throw cold fork 101",
		"throw load warm many 97", "throw all warm many 499", "exit all warm many 997", "throw throw cold many 7",
		"throw all cold alone 9973",
	} {
		cmd := exec.Command(program, append(strings.Fields(args), library)...)
		cmd.Env = append(os.Environ(), "EHASM_PATH="+eh+"-ours:"+eh, "XDG_CACHE_HOME="+t.TempDir(),
			"LD_PRELOAD="+k.path("libehunwind-preload.so")+":"+k.path("libgcc/libgcc_s.so.1"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", args, out)
		assert.Regexp(t, `: [1-9]\d* runs of \d{3,} instructions, [1-9]\d* signals, \d+ left out; 0 short, 0 failed in handlers, 0 wrong, 0 hung, 0 dead\n$`, string(out))
	}
}

// TestStress: the short form of stress/run.sh ends well, in which signals come while threads do everything at once; and
// stacks in handlers are those that functions note, while threads throw, load, fork, are cancelled and switch stacks.
func TestStress(t *testing.T) {
	testtool.Need(t, "gcc", "g++", "make", "ar")
	testtool.DependsOn(t, "..")
	cmd := exec.Command("stress/run.sh", "30", "2000")
	cmd.Env = append(os.Environ(), "MODES=", "STRESS_OUT="+t.TempDir())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Regexp(t, `(?m)^storm: .*[1-9]\d* stacks right, .* 0 wrong; rounds( [1-9]\d*){7} $`, string(out))
	for _, line := range []string{"preload, all-loading", "preload, all-throwing", "linked, all", "TSan, all"} {
		assert.Regexp(t, "(?m)^"+line+`: .* [1-9]\d* samples, .* 0 wrong $`, string(out))
	}
}
