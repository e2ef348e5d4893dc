//go:build linux

package docs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCommands goes through each document for users in order, in its own folder, and
// through the examples of each verb's help. A block "```c FILE" or "```go FILE" becomes that
// file; each command is run by bash, with ehasm and libehunwind installed. A command must
// succeed, and print what the document shows, figures apart.
func TestCommands(t *testing.T) {
	w := newWorld(t)
	w.documents(t)
	w.examples(t)
	for _, a := range w.adapt {
		assert.True(t, a.used, "no command has %q", a.old)
	}
}

func (w *world) documents(t *testing.T) {
	documents, err := filepath.Glob("*.md")
	require.NoError(t, err)
	for _, doc := range append(documents, "../README.md") {
		t.Run(filepath.Base(doc), func(t *testing.T) {
			f := w.folder(t)
			text, err := os.ReadFile(doc)
			require.NoError(t, err)
			for _, b := range blocks(string(text)) {
				if len(b.info) == 2 {
					f.write(t, b.info[1], b.text)
				}
				if len(b.info) == 2 && b.info[0] == "go" {
					compileGo(t, b)
				}
				if len(b.info) == 0 || b.info[0] == "console" || b.info[0] == "sh" {
					f.runAll(t, b.commands())
				}
			}
		})
	}
}

func (w *world) examples(t *testing.T) {
	help := w.ehasm(t, "help")
	_, verbs, ok := strings.Cut(help, "Verbs:\n")
	require.True(t, ok)
	verbs, _, _ = strings.Cut(verbs, "\n\n")
	f := w.folder(t)
	f.runExamples(t, help)
	for line := range strings.Lines(verbs) {
		if verb := strings.Fields(line)[0]; verb != "help" {
			t.Run(verb, func(t *testing.T) {
				assert.NotZero(t, f.runExamples(t, w.ehasm(t, verb, "--help")))
			})
		}
	}
}

// runExamples runs what stands under "Examples:" and returns the number of commands.
func (f *folder) runExamples(t *testing.T, help string) int {
	t.Helper()
	_, examples, ok := strings.Cut(help, "Examples:\n")
	require.True(t, ok, help)
	examples, _, _ = strings.Cut(examples, "\n\n")
	list := block{text: examples}.commands()
	require.Len(t, list, len(strings.Split(strings.TrimSpace(examples), "\n")), "each line is one")
	f.runAll(t, list)
	return len(list)
}

// adaptation is what a command needs to be run here: on this machine's files, for a second, on loopback.
type adaptation struct {
	old, new string
	other    bool // another file: the output is not the one shown
	used     bool
}

// world is what all documents find: ehasm installed, a process to look at, a server.
type world struct {
	prefix string
	top    string
	adapt  []adaptation
	pid    int // of a process that is busy
}

func newWorld(t *testing.T) *world {
	t.Helper()
	top, err := filepath.Abs("..")
	require.NoError(t, err)
	w := &world{prefix: install(t), top: top}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/proto") // all that Pyroscope answers
	}))
	t.Cleanup(server.Close)
	busy := exec.Command("sh", "-c", "while :; do :; done")
	require.NoError(t, busy.Start())
	t.Cleanup(func() { busy.Process.Kill(); busy.Wait() })
	w.pid = busy.Process.Pid
	for _, a := range [][2]string{
		{"PREFIX=/usr/local", "PREFIX=" + w.prefix},
		{"/usr/local/share/man/man1", "."},
		{"/usr/local/share/zsh/site-functions", "."},
		{"/usr/local", w.prefix},
		{"~/.config/fish/completions", "."},
		{"~/.local/share/bash-completion/completions", "."},
		{"http://pyroscope:4040", server.URL},
		{"1234", fmt.Sprint(w.pid)},
		{"--dump PID", "--dump $(cat flight.pid)"},
		{"COMMAND", "ls"},
		{"--name '^nginx'", "--name '^sh$'"},
		{"record -a ", "record -p " + fmt.Sprint(w.pid) + " "}, // cmd/ehasm's tests record everything
		{"top -a", "top -p " + fmt.Sprint(w.pid)},
		{"agent --push", "agent -p " + fmt.Sprint(w.pid) + " --push"},
		{"agent --every", "agent -p " + fmt.Sprint(w.pid) + " --every"},
		{"-- ./server", "-- ./server 2"}, // seconds
		{"--duration 30s", "--duration 1s"},
		{"--duration 10s", "--duration 1s"},
		{"-http=:", "-top"},
		{"make -j2", "make -f /dev/null -j2 -q x || true"},
		{"/usr/lib/x86_64-linux-gnu/libx264.so.164", "./libfoo.so"},
		{"libx264.so.164", "./libfoo.so"},
		{"/usr/lib/python3/dist-packages", "plugins/"},
		{"--all /usr/lib/x86_64-linux-gnu", "--all beside"},
		{"/usr/bin /usr/lib/x86_64-linux-gnu", "./bin plugins"},
		{"/usr/bin/ls", "/bin/ls"},
		{"--comm prog -o", "--comm program -o"},
		{"--comm nginx", "--comm program"},
		{"--pc 0x4010", "--pc 0x$(nm -D libfoo.so | awk '/ foo$/ {print $1}')"},
		{" eh_elfs /bin/ls", " first /bin/ls"},
	} {
		w.adapt = append(w.adapt, adaptation{old: a[0], new: a[1], other: strings.Contains(a[0], "libx264")})
	}
	return w
}

// missing says what a command needs that this machine has not, or "".
func (w *world) missing(line string) string {
	for _, program := range []string{"perf", "jq", "less", "man", "heaptrack", "python3", "rustc"} {
		if regexp.MustCompile(`(^|[| ])` + program + `( |$)`).MatchString(line) {
			if _, err := exec.LookPath(program); err != nil {
				return program + " is not installed"
			}
		}
	}
	for _, text := range []string{"--system", "/etc/systemd", "systemctl"} {
		if strings.Contains(line, text) {
			return "a machine to change" // TestDebianPackages does it in a chroot
		}
	}
	if strings.Contains(line, "probe:") {
		return "a kernel to try it in" // bench/probes.sh has one: some hang
	}
	if strings.Contains(line, "--off-cpu") && os.Geteuid() != 0 {
		return "it needs root"
	}
	for _, library := range []string{"libprofiler.so.0", "libjemalloc.so.2"} {
		if found, _ := filepath.Glob("/usr/lib/*/" + library); strings.Contains(line, library) && len(found) == 0 {
			return library + " is not installed"
		}
	}
	return ""
}

func (w *world) env(dir string) []string {
	return append(os.Environ(), "PATH="+filepath.Join(w.prefix, "bin")+":"+os.Getenv("PATH"),
		"PKG_CONFIG_PATH="+filepath.Join(w.prefix, "lib/pkgconfig"),
		"LD_LIBRARY_PATH="+filepath.Join(w.prefix, "lib"), "XDG_CACHE_HOME="+filepath.Join(dir, ".cache"),
		"HOME="+dir, "PAGER=cat", "MANPAGER=cat")
}

func (w *world) ehasm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(w.prefix, "bin/ehasm"), args...).Output()
	require.NoError(t, err)
	return string(out)
}

// folder is where a document's commands run.
type folder struct {
	*world
	dir string
}

func (f *folder) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(f.dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
}

// folder makes one with the files that documents take for granted.
func (w *world) folder(t *testing.T) *folder {
	t.Helper()
	f := &folder{world: w, dir: t.TempDir()}
	f.write(t, "program.c", `#include <time.h>
#include <stdlib.h>
int main(int argc, char **argv) { /* [SECONDS] */
	struct timespec t, from;
	clock_gettime(CLOCK_MONOTONIC, &from);
	double enough = argc > 1 ? atof(argv[argc - 1]) : 0.2;
	do clock_gettime(CLOCK_MONOTONIC, &t);
	while ((t.tv_sec - from.tv_sec) + (t.tv_nsec - from.tv_nsec) / 1e9 < enough && enough < 100);
}
`)
	f.write(t, "foo.s", "\t.globl my_memcpy\n\t.type my_memcpy,@function\nmy_memcpy:\n\tpush %rbx\n\tpop %rbx\n\tret\n\t.size my_memcpy,.-my_memcpy\n")
	f.write(t, "foo.c", "int foo(int (*f)(int), int n) { return f(n) + f(n + 1); }\n")
	f.write(t, "fib.py", "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\nfib(24)\n")
	f.write(t, "work.py", "print(1)\n")
	f.script(t, `gcc -O2 -o program program.c && cp program server && mkdir bin plugins beside && cp program bin/
		gcc -O2 -g -shared -fPIC -o libfoo.so foo.c foo.s && cp libfoo.so plugins/
		gcc -c foo.c && as -o mem.o foo.s
		ehasm build -q --deps -o eh_elfs /bin/ls && cp eh_elfs/ls.eh_elf.so eh_elfs/libc.so.6.eh_elf.so .
		cp libfoo.so program beside && ehasm build -q libfoo.so beside`)
	if out, err := f.try(t, "ehasm record --raw perf.data -o /dev/null --format folded -- ./program"); err != nil {
		t.Logf("no recording: %s", out)
	}
	f.try(t, "cp perf.data before.data; cp perf.data after.data")
	return f
}

func (f *folder) script(t *testing.T, text string) string {
	t.Helper()
	out, err := f.try(t, text)
	require.NoError(t, err, "%s: %s", text, out)
	return out
}

// try has bash run a line, with some minutes for it: others may be busy here.
func (f *folder) try(t *testing.T, line string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", line)
	cmd.Dir, cmd.Env = f.dir, append(f.env(f.dir), "GOCACHE="+goCache(t), "GOPATH="+goPath(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (f *folder) runAll(t *testing.T, list []command) {
	t.Helper()
	for i := 0; i < len(list); i++ {
		c := list[i]
		if i+1 < len(list) && list[i+1].line == "echo $?" { // the same shell's
			i++
			c = command{line: "{ " + c.line + "; } || echo $?", shown: append(c.shown, list[i].shown...)}
		}
		f.run(t, c)
	}
}

// endless are recordings that the test must end.
var endless = regexp.MustCompile(`ehasm (top|(record|agent) .*(-a|-p \d+|--push|--every))( |$)`)

func (f *folder) run(t *testing.T, c command) {
	t.Helper()
	if name, ok := strings.CutPrefix(c.line, "cat "); ok { // what it shows is what the reader has
		f.write(t, name, strings.Join(c.shown, "\n")+"\n")
		return
	}
	if why := f.missing(c.line); why != "" {
		t.Logf("not run here: %s: %s", c.line, why)
		return
	}
	line := c.line
	for i := range f.adapt {
		if a := &f.adapt[i]; strings.Contains(line, a.old) {
			line, a.used = strings.ReplaceAll(line, a.old, a.new), true
			if a.other {
				c.shown = nil
			}
		}
	}
	switch {
	case strings.HasPrefix(c.line, "make "): // others run what it makes
		line = "make -C " + f.top + " -n " + line[len("make "):]
	case strings.HasPrefix(c.line, "go run ./cmd"), strings.HasPrefix(c.line, "go install -v ./cmd"):
		line = "cd " + f.top + " && GOBIN=" + f.dir + " " + strings.Replace(line, "-o ", "-o "+f.dir+"/", 1)
	case strings.Contains(c.line, "--flight"): // until the dump, however slow the machine is
		line = strings.Replace(line, "./server 2", "./server 90", 1) + ` >/dev/null 2>&1 & echo $! >flight.pid
			for i in $(seq 600); do grep -q perf_event /proc/$!/maps && break; sleep 0.1; done 2>/dev/null; sleep 0.7`
	case strings.Contains(c.line, "--dump"):
		line += "; kill -INT $(cat flight.pid)"
	case endless.MatchString(c.line) && !strings.Contains(c.line, "--duration"):
		line = "timeout --foreground --preserve-status -s INT 2 " + line // of whatever shell script(1) takes
		if strings.Contains(line, "ehasm top") {                         // needs a terminal
			line = "TERM=xterm script -qec '" + line + "' /dev/null"
		}
	}
	out, err := f.try(t, line)
	var exit *exec.ExitError
	if found := errors.As(err, &exit); found && exit.ExitCode() == 1 && strings.HasPrefix(c.line, "ehasm check") {
		err = nil // it has found something
	}
	assert.NoError(t, err, "%s\n%s\n%s", c.line, line, out)
	if strings.HasPrefix(c.line, "ehasm record") && len(c.shown) > 1 {
		c.shown = c.shown[:1] // the summary has only lines for what happened
	}
	requireShown(t, c, out)
}

var (
	figures = regexp.MustCompile(`0x[0-9a-f]+|[0-9a-f]{5,}|[0-9]+(\.[0-9]+)?`)
	spaces  = regexp.MustCompile(`\s+`)
)

// alike returns a line without its figures.
func alike(line string) string {
	return strings.TrimSpace(spaces.ReplaceAllString(figures.ReplaceAllString(line, "0"), " "))
}

// requireShown: the output has each line that the document shows, figures apart.
func requireShown(t *testing.T, c command, out string) {
	t.Helper()
	have := map[string]bool{}
	for line := range strings.Lines(out) {
		have[alike(line)] = true
	}
	for _, line := range c.shown {
		if line = alike(line); line != "" && line != "..." {
			assert.True(t, have[line], "%s: does not print\n%s\nbut\n%s", c.line, line, out)
		}
	}
}
