package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/ehasm/ehasm/internal/atomicfile"
)

// closedOutput is a standard output that is closed.
type closedOutput struct{}

func (closedOutput) Write([]byte) (int, error) { return 0, syscall.EBADF }

// verbOutput is where a verb's result goes: standard output, or the file that -o
// names, which is whole when it has its name.
type verbOutput struct {
	path string
	file *atomicfile.File // nil: standard output
	c    *console

	mu  sync.Mutex
	err error // the first of Write
}

// newVerbOutput begins the output; path is "" or "-" for standard output.
func newVerbOutput(path string, perm fs.FileMode, c *console) (*verbOutput, error) {
	o := &verbOutput{path: path, c: c}
	if path == "" || path == "-" {
		return o, nil
	}
	if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
		perm = narrowed(perm, st) // who made it private wants the next one so, too
	}
	var err error
	o.file, err = atomicfile.CreateOutput(path, perm)
	return o, err
}

func (o *verbOutput) Write(p []byte) (n int, err error) {
	if o.file != nil {
		n, err = o.file.Write(p)
	} else {
		n, err = o.c.out.Write(p)
	}
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

// failed reports whether a Write failed: then the input is not to blame.
func (o *verbOutput) failed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err != nil
}

// onTerminal reports whether the output goes to a terminal, where a progress bar
// would be in its way.
func (o *verbOutput) onTerminal() bool { return o.file == nil && isTerminal(o.c.out.w) }

// guardOutput returns a context that ends with the signals that would end the process,
// if newVerbOutput makes a temporary file for path, which is to be removed then. Where it
// makes none they do end the process.
func guardOutput(ctx context.Context, path string) (context.Context, context.CancelFunc) {
	st, err := os.Stat(path)
	if path == "" || path == "-" || err == nil && !st.Mode().IsRegular() {
		return ctx, func() {}
	}
	return interruptible(ctx)
}

// run calls work. Where ctx, which is guardOutput's, ends before, the output is given up
// and run returns false with work still under way: it may be waiting for a pipe.
func (o *verbOutput) run(ctx context.Context, work func()) bool {
	if o.file == nil || o.file.InPlace() {
		work()
		return true
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		work()
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		o.file.Abort()
		o.c.stopBar()
		o.c.fail("interrupted", fmt.Errorf("%s is not written", quote(o.path)))
		return false
	}
}

// finish is to be called when all is written. Of standard output, the console tells.
func (o *verbOutput) finish() error {
	if o.file == nil {
		return nil
	}
	return o.file.Commit()
}

// permLike is the mode of a file made from what is in the recording at path: no
// wider than that of the recording, which may hold what its owner wants to keep.
func permLike(path string) fs.FileMode {
	perm := atomicfile.PermText
	if path == "-" {
		if st, err := os.Stdin.Stat(); err == nil && st.Mode().IsRegular() {
			perm = narrowed(perm, st)
		}
		return perm
	}
	st, err := os.Stat(path)
	if err != nil {
		return atomicfile.PermText
	}
	if st.Mode().IsRegular() || st.IsDir() {
		perm = narrowed(perm, st)
	}
	parts, _ := os.ReadDir(path)
	for _, p := range parts {
		if st, err := os.Stat(filepath.Join(path, p.Name())); err == nil {
			perm = narrowed(perm, st)
		}
	}
	return perm
}

// narrowed is perm with the rights of group and others that st gives.
func narrowed(perm fs.FileMode, st fs.FileInfo) fs.FileMode {
	return perm & (0o600 | st.Mode().Perm())
}

// writeStats writes the summary of --stats.
func writeStats(path string, perm fs.FileMode, summary any, c *console) error {
	b, err := json.MarshalIndent(summary, "", "  ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if path == "-" {
		_, err = c.stderr.Write(b)
		return err
	}
	return atomicfile.WriteOutput(path, b, perm)
}

var _ io.Writer = (*verbOutput)(nil)
