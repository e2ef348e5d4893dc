// Command mutants changes the emitter of code, one change at a time, and asks whether
// the proof refuses what it emits then. list.txt has the changes. Each is compiled by
// way of an overlay, so that no file of the tree is written to.
//
// A change must be refused for some file, or, if it is listed as harmless, for none. One
// that the proof accepts is given to the tests of asmgen, elfout and verify.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

//go:embed list.txt
var listText string

const self = "./validate/mutants" // from the module's root, where this runs

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit status: 1 if a change survives, has no effect or cannot be tried.
func run(args []string, stdout, stderr io.Writer) int {
	fs := pflag.NewFlagSet("mutants", pflag.ContinueOnError)
	fs.SetOutput(stderr)
	emitting := fs.Bool("emit", false, "emit and prove with the emitter of this program; run by itself")
	running := fs.Bool("run", false, "with --emit: run the code, too")
	only := fs.String("only", "", "only changes whose name or file matches this `PATTERN`")
	limit := fs.Duration("limit", 5*time.Minute, "time for one emitter's files")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	if *emitting {
		return emitAll(fs.Args(), *running, stdout, stderr)
	}
	list, err := parse(listText)
	if err != nil {
		fmt.Fprintln(stderr, "mutants:", err)
		return 1
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(stderr, "mutants:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	folder, err := os.MkdirTemp("", "mutants")
	if err != nil {
		fmt.Fprintln(stderr, "mutants:", err)
		return 1
	}
	defer os.RemoveAll(folder)
	j := judge{ctx: ctx, folder: folder, files: fs.Args(), limit: *limit}
	// The unchanged emitter must be proven, or refusals would mean nothing.
	if j.original, err = j.answer("", false); err != nil || len(j.original.Refused) > 0 {
		fmt.Fprintln(stderr, "mutants: without a change:", err, j.original.Refused)
		return 1
	}
	fmt.Fprintf(stdout, "%d files of the unchanged emitter are proven\n", j.original.Images)
	counts, wrong, tried := map[string]int{}, 0, 0
	for i := range list {
		m := &list[i]
		if !pattern.MatchString(m.name) && !pattern.MatchString(m.file) {
			continue
		}
		if ctx.Err() != nil {
			fmt.Fprintln(stderr, "mutants: interrupted")
			return 1
		}
		tried++
		verdict, detail, err := j.try(m)
		if err != nil {
			verdict, detail = "NOT TRIED", err.Error()
		}
		counts[verdict]++
		if strings.ToUpper(verdict) == verdict { // verdicts in capitals are failures
			wrong++
		}
		fmt.Fprintf(stdout, "%s: %s: %s: %s\n", verdict, m.file, m.name, detail)
	}
	fmt.Fprintf(stdout, "%d changes: %v\n", tried, counts)
	if wrong > 0 || tried == 0 {
		return 1
	}
	return 0
}

// mutant is a change of the emitter.
type mutant struct {
	name, file string
	harmless   string   // why it means the same; "" if it does not
	old        []string // lines that follow each other, without blanks around them
	new        []string
}

// parse reads the list.
func parse(text string) (list []mutant, err error) {
	names := map[string]bool{}
	for n, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "== "):
			list = append(list, mutant{name: line[3:]})
			if names[line] {
				return nil, fmt.Errorf("list.txt:%d: %q is there twice", n+1, line[3:])
			}
			names[line] = true
		case line == "" || line[0] == '#':
		case len(list) == 0:
			return nil, fmt.Errorf("list.txt:%d: a line before the first change", n+1)
		default:
			m := &list[len(list)-1]
			switch {
			case strings.HasPrefix(line, "file "):
				m.file = line[5:]
			case strings.HasPrefix(line, "harmless "):
				m.harmless = line[9:]
			case line[0] == '-':
				m.old = append(m.old, strings.TrimSpace(line[1:]))
			case line[0] == '+':
				m.new = append(m.new, line[1:])
			case line[0] == ' ':
				m.old = append(m.old, strings.TrimSpace(line[1:]))
				m.new = append(m.new, line[1:])
			default:
				return nil, fmt.Errorf("list.txt:%d: neither of a change nor about one", n+1)
			}
		}
	}
	for i := range list {
		if m := &list[i]; m.file == "" || len(m.old) == 0 {
			return nil, fmt.Errorf("list.txt: %q has no file or no line", m.name)
		}
	}
	return list, nil
}

// apply makes the change in a file's text.
func (m *mutant) apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	// The lines must be there exactly once, whatever their indentation.
	index := -1
	for i := 0; i+len(m.old) <= len(lines); i++ {
		same := true
		for k, old := range m.old {
			same = same && strings.TrimSpace(lines[i+k]) == old
		}
		if !same {
			continue
		}
		if index >= 0 {
			return "", fmt.Errorf("its lines are there twice, at %d and %d", index+1, i+1)
		}
		index = i
	}
	if index < 0 {
		return "", errors.New("its lines are not in the emitter: update list.txt")
	}
	out := append([]string{}, lines[:index]...)
	out = append(out, m.new...)
	return strings.Join(append(out, lines[index+len(m.old):]...), "\n"), nil
}

// judge tries changes.
type judge struct {
	ctx      context.Context
	folder   string        // for overlays and programs
	files    []string      // objects to be compiled
	limit    time.Duration // for the files of one emitter
	original answer        // of the unchanged emitter
}

// answer is what one emitter came to.
type answer struct {
	Hash    string   // of all that it emitted
	Images  int      // proven
	Refused []string // for which files, and why
}

// try builds and asks a changed emitter. Verdicts in capitals are failures.
func (j *judge) try(m *mutant) (verdict, detail string, err error) {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return "", "", err
	}
	changed, err := m.apply(string(text))
	if err != nil {
		return "", "", err
	}
	overlay, err := j.overlay(m.file, changed)
	if err != nil {
		return "", "", err
	}
	got, err := j.answer(overlay, m.harmless != "") // what is accepted although it should not be is run only below
	switch {
	case err != nil:
		return "", "", err
	case len(got.Refused) > 0 && m.harmless != "":
		return "HARMLESS, REFUSED", got.Refused[0], nil
	case len(got.Refused) > 0:
		return "refused", got.Refused[0], nil
	case got.Hash == j.original.Hash:
		return "NO EFFECT", "the same files", nil
	case m.harmless != "":
		return "harmless", fmt.Sprintf("%d files proven and run: %s", got.Images, m.harmless), nil
	}
	out, err := j.command("go", "test", "-overlay", overlay, "./asmgen/...", "./elfout",
		"./validate/verify").CombinedOutput()
	if err != nil {
		return "accepted, found by a test", firstFailure(out), nil
	}
	return "SURVIVES", fmt.Sprintf("%d files proven", got.Images), nil
}

// firstFailure returns the first line of a test's output that names a failure.
func firstFailure(out []byte) string {
	for _, line := range strings.Split(string(out), "\n") {
		if strings.Contains(line, "--- FAIL") {
			return strings.TrimSpace(line)
		}
	}
	return "a test fails"
}

// command returns a command that ends with the judge's context. Programs are linked without cgo, as
// released ones are.
func (j *judge) command(name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(j.ctx, name, args...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	return c
}

// overlay writes what go's -overlay takes.
func (j *judge) overlay(file, text string) (string, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	source, list := filepath.Join(j.folder, "source.go"), filepath.Join(j.folder, "overlay.json")
	b, err := json.Marshal(map[string]map[string]string{"Replace": {path: source}})
	if err != nil {
		return "", err
	}
	return list, errors.Join(os.WriteFile(source, []byte(text), 0o600), os.WriteFile(list, b, 0o600))
}

// answer builds this program with an overlay and asks what it emits.
func (j *judge) answer(overlay string, running bool) (a answer, err error) {
	program := filepath.Join(j.folder, "emitter")
	if out, err := j.command("go", "build", "-overlay", overlay, "-o", program, self).CombinedOutput(); err != nil {
		return a, fmt.Errorf("does not compile: %.300s", out)
	}
	args := append([]string{"--emit"}, j.files...)
	if running {
		args = append(args, "--run")
	}
	ctx, stop := context.WithTimeout(j.ctx, j.limit)
	defer stop()
	c := exec.CommandContext(ctx, program, args...)
	var failure strings.Builder
	c.Stderr = &failure
	out, err := c.Output()
	switch {
	case j.ctx.Err() != nil:
		return a, j.ctx.Err()
	case ctx.Err() != nil: // an emitter or a proof that does not end counts as a refusal
		return answer{Refused: []string{"no end"}}, nil
	case err != nil: // it fails or dies
		text, _ := bufio.NewReader(strings.NewReader(failure.String())).ReadString('\n')
		return answer{Refused: []string{"ends with " + err.Error() + ": " + strings.TrimSpace(text)}}, nil
	}
	return a, json.Unmarshal(out, &a)
}
