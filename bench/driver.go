package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// driver is the running C program that holds the stacks. It obeys one command
// at a time.
type driver struct {
	cmd     *exec.Cmd      // ended by close
	in      io.WriteCloser // commands, a line each
	out     *bufio.Reader  // answers: lines, then ok or error
	Skipped []string       // chains that it could not make, with the reason
	Modules []module
	Stacks  []liveStack
	Cache   int64 // bytes of the last-level cache
	Flush   int64 // bytes that are written before each cold walk
}

// module is an object that the driver has loaded.
type module struct {
	Index            int    // the driver's number for it
	Start, End, Bias uint64 // run-time addresses of its code, and its load bias
	Path             string
}

// liveStack is a real stack of the driver.
type liveStack struct {
	RSP, Hi uint64 // rsp in its innermost frame, and one past its highest address
	Kind    string // the libraries that its chain goes through
}

// errRefused is wrapped if the driver answers a command with an error.
var errRefused = errors.New("refused")

// startDriver starts the driver, under a wrapper such as valgrind if one is given.
func startDriver(wrapper []string, args ...string) (*driver, error) {
	// The wrapper's arguments come before the driver's.
	args = append(append([]string(nil), wrapper...), args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	d := &driver{cmd: cmd, in: in, out: bufio.NewReaderSize(out, 1<<20)}
	// The driver answers once when its stacks are made.
	if d.Skipped, err = d.answer(); err != nil {
		return nil, fmt.Errorf("driver: %w", err)
	}
	return d, d.inventory()
}

// command sends one command and returns the lines of the answer.
func (d *driver) command(format string, args ...any) ([]string, error) {
	line := fmt.Sprintf(format, args...)
	if _, err := io.WriteString(d.in, line+"\n"); err != nil {
		return nil, err
	}
	lines, err := d.answer()
	if err != nil {
		// Commands may name hundreds of stacks.
		if len(line) > 60 {
			line = line[:60] + "..."
		}
		return nil, fmt.Errorf("driver: %s: %w", line, err)
	}
	return lines, nil
}

// answer reads lines up to "ok" or "error WHY"; the latter wraps errRefused.
func (d *driver) answer() (lines []string, err error) {
	for {
		line, err := d.out.ReadString('\n')
		if err != nil {
			// The driver has ended: its status says how.
			return nil, fmt.Errorf("%w, %v", err, d.cmd.Wait())
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "ok" {
			return lines, nil
		}
		if why, ok := strings.CutPrefix(line, "error "); ok {
			return nil, fmt.Errorf("%w: %s", errRefused, why)
		}
		lines = append(lines, line)
	}
}

// close ends the driver and waits for it.
func (d *driver) close() error {
	io.WriteString(d.in, "quit\n")
	d.in.Close()
	return d.cmd.Wait()
}

// inventory asks for modules and stacks.
func (d *driver) inventory() error {
	lines, err := d.command("modules")
	if err != nil {
		return err
	}
	// Numbers, addresses and path, separated by spaces.
	for _, l := range lines {
		var m module
		if _, err := fmt.Sscanf(l, "module %d %v %v %v %s", &m.Index, &m.Start, &m.End, &m.Bias, &m.Path); err != nil {
			return fmt.Errorf("%q: %w", l, err)
		}
		d.Modules = append(d.Modules, m)
	}
	// Sizes of the cache and of what is written to flush it.
	if lines, err = d.command("cache"); err != nil {
		return err
	}
	if _, err := fmt.Sscanf(strings.Join(lines, "\n"), "cache %d %d", &d.Cache, &d.Flush); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	if lines, err = d.command("stacks"); err != nil {
		return err
	}
	for _, l := range lines {
		var s liveStack
		var i int
		if _, err := fmt.Sscanf(l, "stack %d %v %v", &i, &s.RSP, &s.Hi); err != nil {
			return fmt.Errorf("%q: %w", l, err)
		}
		// The rest of the line may have spaces.
		s.Kind = strings.SplitN(l, " ", 5)[4]
		d.Stacks = append(d.Stacks, s)
	}
	return nil
}

// pcs returns what a contender finds on each stack of a set.
func (d *driver) pcs(contender, set string) ([][]uint64, error) {
	lines, err := d.command("pcs %s %s", contender, set)
	if err != nil {
		return nil, err
	}
	all := make([][]uint64, 0, len(lines))
	for _, l := range lines {
		var pcs []uint64
		// After the words "pcs" and the number.
		for _, w := range strings.Fields(l)[2:] {
			pc, err := strconv.ParseUint(w, 16, 64)
			if err != nil {
				return nil, err
			}
			pcs = append(pcs, pc)
		}
		all = append(all, pcs)
	}
	return all, nil
}

// measurement is the answer to a command that measures: one pass over a set.
type measurement struct {
	NS     float64 // of one pass
	Frames uint64  // of one pass
}

// perFrame returns ns per frame.
func (m measurement) perFrame() float64 { return m.NS / float64(m.Frames) }

// measure sends a command whose answer is one line with time and frames.
func (d *driver) measure(format string, args ...any) (m measurement, err error) {
	lines, err := d.command(format, args...)
	if err != nil {
		return m, err
	}
	if len(lines) != 1 {
		return m, fmt.Errorf("driver: %d lines", len(lines))
	}
	_, err = fmt.Sscanf(lines[0], "result %g %d", &m.NS, &m.Frames)
	return m, err
}

// sendSet names stacks as a set.
func (d *driver) sendSet(name string, ids []int) error {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, " %d", id)
	}
	_, err := d.command("set %s%s", name, b.String())
	return err
}
