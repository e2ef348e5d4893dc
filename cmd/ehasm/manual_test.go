package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestManPages has groff render every page without a warning, and looks for
// each flag and example in the result.
func TestManPages(t *testing.T) {
	groff, err := exec.LookPath("groff")
	require.NoError(t, err, "groff: see scripts/deps.sh")
	render := func(args ...string) string {
		page := ehasm(t, append([]string{"man"}, args...)...)
		require.Equal(t, exitDone, page.code, page.stderr)
		cmd := exec.Command(groff, "-man", "-Tascii", "-P-cbou", "-ww", "-rLL=200n", "-z")
		cmd.Stdin = strings.NewReader(page.stdout)
		warnings, err := cmd.CombinedOutput()
		require.NoError(t, err)
		assert.Empty(t, string(warnings), "%v", args)
		cmd = exec.Command(groff, "-man", "-Tascii", "-P-cbou", "-rLL=200n")
		cmd.Stdin = strings.NewReader(page.stdout)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		text, err := cmd.Output()
		require.NoError(t, err, stderr.String())
		return string(text)
	}
	whole := render()
	assert.Contains(t, whole, "ehasm-perf(1)")
	assert.Contains(t, render("perf"), "ehasm-perf script [-i FILE]")
	for _, v := range verbs() {
		assert.Contains(t, whole, "ehasm-"+v.name+"(1)")
		page := render(v.name)
		assert.Contains(t, page, "ehasm-"+v.name+" - "+v.brief[:10])
		fs, _ := v.declare()
		fs.VisitAll(func(f *pflag.Flag) {
			assert.Equal(t, !f.Hidden, strings.Contains(page, "--"+f.Name), "%s --%s", v.name, f.Name)
		})
		_, examples, found := strings.Cut(v.more, "Examples:\n")
		require.True(t, found, "%s: help without examples", v.name)
		for line := range strings.Lines(examples) {
			if line = strings.TrimSpace(line); line != "" {
				assert.Contains(t, page, line, v.name)
			}
		}
	}
}

// TestCompletion has each shell complete a verb and a flag, or, where a shell
// cannot be asked without a terminal, check the script.
func TestCompletion(t *testing.T) {
	dir := t.TempDir()
	script := func(shell string) string {
		out := ehasm(t, "completion", shell)
		require.Equal(t, exitDone, out.code, out.stderr)
		return writeFile(t, filepath.Join(dir, shell), []byte(out.stdout))
	}
	ask := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
		return string(out)
	}
	bash := func(words string) []string {
		return strings.Fields(ask("bash", "-c", `source `+script("bash")+`; COMP_WORDS=(`+words+`)
			COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _ehasm; printf '%s\n' "${COMPREPLY[@]}"`))
	}
	assert.Equal(t, []string{"build"}, bash("ehasm bu"))
	assert.Equal(t, []string{"--dispatch"}, bash("ehasm build --disp"))
	assert.Equal(t, []string{"preload"}, bash("ehasm help pre"))
	assert.Equal(t, []string{"perf", "perf.data"}, bash("ehasm record --format pe"))
	assert.Equal(t, []string{"folded", "firefox"}, bash("ehasm script --format f"))
	assert.Equal(t, []string{"comm"}, bash("ehasm agent --labels com"))
	assert.Empty(t, bash("ehasm preload ls --"), "flags of the command that is run are not ours")
	assert.Contains(t, bash("ehasm record -o x.svg -- ech"), "echo", "the command")
	assert.Contains(t, bash("ehasm record -F 99 ech"), "echo", "the command, behind a flag and its value")
	assert.Contains(t, bash("ehasm stack -p ''"), strconv.Itoa(os.Getpid()))
	assert.Contains(t, bash("ehasm stack "+strconv.Itoa(os.Getpid())), strconv.Itoa(os.Getpid()))
	assert.Empty(t, bash("ehasm build -o --dispatch"), "a file")
	for _, v := range describeCommand().Verbs {
		for flag, values := range v.Values {
			usage := v.Flags.Lookup(flag).Usage
			for _, value := range values {
				assert.Contains(t, usage, value, "%s --%s", v.Name, flag)
			}
			assert.ElementsMatch(t, values, bash("ehasm "+v.Name+" --"+flag+" ''"), "%s --%s", v.Name, flag)
			assert.ElementsMatch(t, values, bash("ehasm "+v.Name+" --"+flag+" ="), "%s --%s=", v.Name, flag)
		}
	}

	fish := script("fish")
	assert.Contains(t, ask("fish", "-c", "source "+fish+"; complete -C 'ehasm bu'"), "build\t")
	assert.Contains(t, ask("fish", "-c", "source "+fish+"; complete -C 'ehasm build --disp'"), "--dispatch")
	ways := ask("fish", "-c", "source "+fish+"; complete -C 'ehasm build --dispatch '")
	assert.Regexp(t, `\Apacked\t.*\ntree\t.*\n\z`, ways)
	assert.Contains(t, ask("fish", "-c",
		"source "+fish+"; complete -C 'ehasm stack -p "+strconv.Itoa(os.Getpid())+"'"), strconv.Itoa(os.Getpid()))
	assert.Contains(t, ask("fish", "-c", "source "+fish+"; complete -C 'ehasm record -- ech'"), "echo")

	ask("zsh", "-f", "-n", script("zsh"))
	assert.Contains(t, typedInZsh(t, script("zsh"), "ehasm build --dispatch=pac"), "--dispatch=packed")
	assert.Contains(t, typedInZsh(t, script("zsh"), "ehasm agent -o x --push-as otl"), "--push-as otlp")
	assert.Contains(t, typedInZsh(t, script("zsh"), "ehasm sta"), "ehasm stack")
	assert.Contains(t, ask("zsh", "-f", "-c", "autoload -U compinit; compinit -u -D; source "+filepath.Join(dir,
		"zsh")+"; print $_comps[ehasm]"), "_ehasm")

	assert.Equal(t, exitUsage, ehasm(t, "completion", "tcsh").code)
	assert.Equal(t, exitUsage, ehasm(t, "completion").code)
	assert.Equal(t, exitUsage, ehasm(t, "man", "nonsense").code)
}

// typedInZsh types text and a tab into an interactive zsh with the script, and returns what its terminal shows.
func typedInZsh(t *testing.T, script, text string) string {
	t.Helper()
	cmd := exec.Command("zsh", "-f", "-c", `zmodload zsh/zpty
		zpty shell zsh -f -i
		zpty -w shell "PS1= RPS1= ; stty -echo; autoload -U compinit; compinit -u -D; source $1; echo rea''dy"
		zpty -r -m shell shown "*ready*"
		zpty -w -n shell "$2"$'\t'" end"$'\n'
		zpty -r -m shell shown "* end*"
		print -r -- "$shown"
		zpty -d shell`, "zsh", script, text)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}
