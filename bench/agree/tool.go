package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path"
	"strings"
)

// sample is what a program says of a sample: its first line, and its user frames,
// innermost first.
type sample struct {
	head  string
	lines []string // frames as perf writes them
	ips   []string // their addresses
}

// key returns the part of the first line that all versions of perf write alike: up to
// the time.
func (s *sample) key() string {
	before, _, _ := strings.Cut(s.head, ": ")
	return strings.Join(strings.Fields(before), " ")
}

// last returns the line of the outermost frame that was found.
func (s *sample) last() string {
	if len(s.lines) == 0 {
		return ""
	}
	return s.lines[len(s.lines)-1]
}

// tool is a running program that writes the text of perf script.
type tool struct {
	cmd  *exec.Cmd
	pipe io.ReadCloser
	in   *bufio.Scanner
}

// startTool starts a program that writes samples.
func startTool(name string, args ...string) (*tool, error) {
	t := &tool{cmd: exec.Command(name, args...)}
	pipe, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	t.pipe = pipe
	t.in = bufio.NewScanner(pipe)
	t.in.Buffer(nil, 1<<20)
	return t, t.cmd.Start()
}

// close reads what is left, so that the program can end, and waits for it.
func (t *tool) close() error {
	if t == nil {
		return nil
	}
	_, _ = io.Copy(io.Discard, t.pipe)
	if err := t.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", t.cmd, err)
	}
	return nil
}

// next reads the next sample, io.EOF at the end.
func (t *tool) next() (*sample, error) {
	s := new(sample)
	for t.in.Scan() {
		line := t.in.Text()
		switch {
		case line == "":
			if s.head != "" {
				return s, nil
			}
		case line[0] != '\t':
			s.head = line
		default:
			line = strings.TrimSpace(line)
			ip, _, _ := strings.Cut(line, " ")
			// Addresses of the kernel, and the ffffffffffffffff in which perf ends a
			// stack whose return address is 0.
			if len(ip) == 16 && ip >= "8000000000000000" {
				continue
			}
			s.ips = append(s.ips, ip)
			s.lines = append(s.lines, withoutStart(line))
		}
	}
	if err := t.in.Err(); err != nil {
		return nil, err
	}
	if s.head != "" {
		return s, nil
	}
	return nil, io.EOF
}

// withoutStart returns the line of a frame as perf writes it: ehasm calls a function without a symbol after its
// object and its start.
func withoutStart(line string) string {
	ip, rest, _ := strings.Cut(line, " ")
	name, object, ok := strings.Cut(rest, " (")
	if ok && strings.HasPrefix(name, path.Base(strings.TrimSuffix(object, ")"))+"+0x") {
		return ip + " [unknown] (" + object
	}
	return line
}

// perfDepth is perf's own bound, PERF_MAX_STACK_DEPTH.
const perfDepth = "--max-stack=127"

// ends reads why ehasm's walks ended.
type ends struct {
	cmd  *exec.Cmd
	pipe io.ReadCloser
	in   *json.Decoder
}

// startEnds starts ehasm with an output that says why a walk ended.
func startEnds(ehasm, data string) (*ends, error) {
	e := &ends{cmd: exec.Command(ehasm, "script", "-q", perfDepth, "--format=json", "-i", data)}
	pipe, err := e.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	e.pipe, e.in = pipe, json.NewDecoder(bufio.NewReader(pipe))
	return e, e.cmd.Start()
}

// next returns why the walk of the next sample ended.
func (e *ends) next() (string, error) {
	var v struct{ End string }
	err := e.in.Decode(&v)
	return v.End, err
}

// close reads what is left and waits for the program.
func (e *ends) close() error {
	if e == nil {
		return nil
	}
	_, _ = io.Copy(io.Discard, e.pipe)
	return e.cmd.Wait()
}
