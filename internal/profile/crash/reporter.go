//go:build linux && amd64

package crash

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/ehasm/ehasm/internal/files/host"
	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/internal/rows/jit"
	"github.com/ehasm/ehasm/stack"
	"github.com/ehasm/ehasm/unwind"

	"golang.org/x/sys/unix"
)

// This file starts the reporter, a process with bounds on time and memory, and takes its reports: one with addresses
// first, then one with names.

// UserVariable is the environment variable that only the reporter has: the user of the crashed process.
const UserVariable = "EHASM_CRASH_USER"

// mostData bounds the reporter's memory, in bytes: RLIMIT_DATA. The kernel runs many handlers at once, as root.
const mostData = 512 << 20

// reportEnd follows each report of the reporter: it writes one with addresses, and then one with names. Neither
// contains it.
const reportEnd = 0

// ask returns the best report that the reporter makes in time. user is the crashed thread's; head has the core's
// headers and notes. The reporter is killed when ask returns.
func (opt *Options) ask(user int, head []byte) ([]byte, error) {
	if user < 0 { // the process has ended
		return nil, stack.ErrNoProcess
	}
	from, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer from.Close()
	var messages limitedBuffer
	cmd := exec.Command(opt.Reporter[0], opt.Reporter[1:]...)
	// no other variable: the reporter obeys none
	cmd.Env = []string{fmt.Sprintf("%s=%d", UserVariable, user)}
	// The reporter reads the core's head and writes to a pipe.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(head), to, &messages
	err = cmd.Start()
	// The only writing end left is the reporter's: its end is the pipe's end.
	to.Close()
	if err != nil {
		return nil, fmt.Errorf("reporter: %w", err)
	}
	ended := make(chan error, 1)
	// a process that waits for a server that does not answer does not even end by SIGKILL
	go func() { ended <- cmd.Wait() }()
	defer cmd.Process.Kill()
	// Without names first: that report is there if the one with names is late.
	text, err := receive(from, []time.Duration{plainPatience, namesPatience})
	switch {
	case text != nil:
		return text, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errLate
	case err != nil:
		return nil, err
	}
	// Nothing came: the first line of its messages says why.
	if err = <-ended; messages.Len() > 0 { // it has closed its output
		line, _, _ := strings.Cut(messages.String(), "\n")
		err = errors.New(line)
	}
	return nil, fmt.Errorf("no report: %w", err)
}

// receive reads the reporter's output, each report within a time, and returns the last complete one, or nil. The error
// is of the first.
func receive(from *os.File, patience []time.Duration) (last []byte, err error) {
	// A reporter that writes without end is cut off.
	r := bufio.NewReader(io.LimitReader(from, 4*MostBytes))
	for _, most := range patience {
		if err := from.SetReadDeadline(time.Now().Add(most)); err != nil {
			return last, err
		}
		text, err := r.ReadBytes(reportEnd)
		switch {
		case err == nil:
			last = text[:len(text)-1]
		case last == nil && err != io.EOF:
			return nil, err
		}
	}
	return last, nil
}

// limitedBuffer keeps the beginning of what is written to it.
type limitedBuffer struct{ bytes.Buffer }

// Write takes all of p, and keeps what fits 4 KB.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	const most = 4 << 10 // bytes; the first line is shown
	b.Buffer.Write(p[:min(len(p), max(0, most-b.Len()))])
	return len(p), nil
}

// Report is the reporter: it reads the head of a core and writes the reports of its process. The limit on memory
// stays: call it in a process that ends afterwards.
func Report(ctx context.Context, opt Options, head io.Reader, out io.Writer) error {
	// The limit comes before anything of the process is read.
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: mostData, Max: mostData}); err != nil {
		return fmt.Errorf("limit on data: %w", err)
	}
	host.BoundMemory()
	user, err := strconv.Atoi(os.Getenv(UserVariable))
	if err != nil {
		return fmt.Errorf("%s: %w", UserVariable, err)
	}
	registers, err := stack.OpenDump(head)
	if err != nil {
		return err
	}
	// The kernel keeps the crashed process until the handler ends.
	ctx, stop := context.WithTimeout(ctx, Patience)
	defer stop()
	objects := stack.NewObjects(ctx, unwind.Options{DebugDirs: unwind.DefaultDebugDirs(),
		VDSO: func() ([]byte, error) { return procfs.VDSO("/proc/self") }})
	live := stack.NewLive(stack.Options{Objects: objects, FramePointers: opt.Pointers})
	defer live.Close()
	target, err := live.TakeDumped(ctx, opt.PID, opt.TID, registers)
	if err != nil {
		return err
	}
	// Threads and frames beyond the bounds get no names either.
	bound(target)
	c := describe(target, user, registers, live)
	if err := c.plain().write(out, opt.JSON, symbolize.Options{Addresses: true}); err != nil {
		return err
	}
	return c.write(out, opt.JSON, symbolize.Options{DebugDirs: unwind.DefaultDebugDirs(),
		Places: jit.NewPlaces(true, "/tmp")})
}
