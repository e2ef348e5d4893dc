//go:build linux && amd64

// Package crash is the handler of kernel.core_pattern. It writes a report with the stacks of a crashed process while
// the kernel holds the process, and can pass the core on to another handler. A second process, the reporter, reads what
// the crashed process has chosen: memory, files and names. So these take no more memory and time than the reporter may.
//
//	pipe --Handle--> head of the core --Report, in the reporter--> reports --Handle--> folder    pipe --pass--> another
//	handler
package crash

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/ehasm/ehasm/stack"
	"github.com/ehasm/ehasm/unwind"
)

// This file is the handler's own part. The kernel runs it as root, in the first namespaces, with the core on its
// standard input, and holds the process until it has read the core or closed it: core(5).

// Options say what crashed and where its report goes.
type Options struct {
	PID, TID int32    // of the process and of its thread that crashed: %P and %I of core(5)
	Folder   string   // of reports; it is made if it is missing
	JSON     bool     // else text
	Handler  []string // gets the core; nil: none
	Pointers unwind.FramePointers
	Reporter []string // the command that calls Report
}

// Patience bounds the time for the stacks of a report; the kernel holds the process meanwhile.
const Patience = 10 * time.Second

// Bounds on what does not end with a context.
const (
	namesPatience = 5 * time.Second // for symbols: of files of gigabytes, a report shows addresses
	plainPatience = 2 * Patience    // for all else: memory and files of a process may be of a server that does not answer
)

// errLate is about the process, whose memory or files do not answer; what reads them may never return.
var errLate = fmt.Errorf("its memory or files could not be read within %v", plainPatience)

// within calls f, for at most a time: after that it returns errLate, while f goes on, on its goroutine. f must not
// share what the caller uses afterwards.
func within[T any](most time.Duration, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-time.After(most):
		var none T
		return none, errLate
	}
}

// Handle has the reporter take the stacks of the process whose core the kernel writes into the pipe core, and writes a
// report. It returns the report's path; "": there is none. It passes the core on to the handler and closes the pipe.
// An error of the report does not keep the core from the handler, unless reading the core is what hangs.
func Handle(opt Options, core io.ReadCloser) (path string, err error) {
	defer core.Close()
	user := userOf(opt.TID) // first: it is gone with the process
	var head bytes.Buffer
	_, err = within(plainPatience, func() (*stack.Core, error) { return stack.OpenDump(io.TeeReader(core, &head)) })
	if err == errLate {
		return "", err // it still reads
	}
	var text []byte
	if err == nil {
		text, err = opt.ask(user, head.Bytes())
	}
	if len(opt.Handler) == 0 {
		core.Close() // the kernel ends the process
	}
	if err == nil {
		now := time.Now()
		path, err = ordinary().save(opt.Folder, opt.name(now, user), text, now)
	}
	if len(opt.Handler) > 0 {
		err = errors.Join(err, pass(opt.Handler, &head, core))
	}
	return path, err
}

// pass gives another handler the core: first head, which was already read, then the rest. The handler may end early,
// as one does that wants no core of a program: writing then fails with EPIPE, and its exit status counts.
func pass(command []string, head io.Reader, core io.Reader) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	to, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("handler: %w", err)
	}
	for _, from := range []io.Reader{head, core} {
		if _, err := io.Copy(to, from); err != nil {
			break // the handler's status tells
		}
	}
	to.Close()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("handler %s: %w", command[0], err)
	}
	return nil
}
