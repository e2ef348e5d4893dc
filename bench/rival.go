package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// timing is what a pass over all samples took.
type timing struct {
	NS     int64 // of the thread's processor time
	Frames int64
}

func (t timing) perFrame() float64 { return float64(t.NS) / float64(max(t.Frames, 1)) }

// unwinder unwinds the samples of a flat file.
type unwinder interface {
	// pass unwinds all samples once; mode is inFile or inBatch.
	pass(mode string) (timing, error)
	// answers returns the pcs of each sample.
	answers() ([][]uint64, error)
	close() error
}

// rival is a C program of perf/.
type rival struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	scratch string // file for answers
}

// startRival starts a program on a flat file.
func startRival(program, flat string) (*rival, error) {
	r := &rival{cmd: exec.Command(program, flat), scratch: flat + ".answers"}
	r.cmd.Stderr = os.Stderr
	// Fetch nothing from debuginfod servers.
	r.cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS=")
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = bufio.NewReader(out)
	return r, r.cmd.Start()
}

// command sends a line and returns the line that answers it.
func (r *rival) command(line string) (string, error) {
	if _, err := fmt.Fprintln(r.in, line); err != nil {
		return "", err
	}
	answer, err := r.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w", r.cmd.Path, line, err)
	}
	return strings.TrimSpace(answer), nil
}

// pass and answers are as unwinder says.
func (r *rival) pass(mode string) (t timing, err error) {
	answer, err := r.command("pass " + mode)
	if err == nil {
		_, err = fmt.Sscan(answer, &t.NS, &t.Frames)
	}
	return t, err
}

func (r *rival) answers() ([][]uint64, error) {
	// Answers are many: they come through a file, as a count and the pcs for each sample.
	if _, err := r.command("answers " + r.scratch); err != nil {
		return nil, err
	}
	defer os.Remove(r.scratch)
	b, err := os.ReadFile(r.scratch)
	if err != nil {
		return nil, err
	}
	const word = 8
	var all [][]uint64
	next := func() uint64 {
		v := binary.LittleEndian.Uint64(b)
		b = b[word:]
		return v
	}
	for len(b) > 0 {
		pcs := make([]uint64, next())
		for i := range pcs {
			pcs[i] = next()
		}
		all = append(all, pcs)
	}
	return all, nil
}

func (r *rival) close() error {
	r.in.Close()
	return r.cmd.Wait()
}
