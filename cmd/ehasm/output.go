package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/ehasm/ehasm/internal/files/atomicfile"
	"github.com/ehasm/ehasm/internal/files/shown"
)

// closedOutput is a standard output that is closed.
type closedOutput struct{}

func (closedOutput) Write([]byte) (int, error) { return 0, syscall.EBADF }

// verbOutput is the output of a verb: standard output, or the file that -o
// names, which gets its name when it is complete.
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
		perm = narrowed(perm, st) // keep a private file private
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

// failed reports whether a Write failed, so that the input is not blamed.
func (o *verbOutput) failed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err != nil
}

// onTerminal reports whether the output goes to a terminal, where a progress bar
// would disturb it.
func (o *verbOutput) onTerminal() bool { return o.file == nil && isTerminal(o.c.out.w) }

// checkOutputs returns an error if one of the named outputs would overwrite an input or
// another output. Names that are "" or "-", and files that are not regular, such as
// /dev/null, are no one's.
func checkOutputs(inputs []string, outputs ...string) error {
	taken := slices.Clone(inputs)
	for _, out := range outputs {
		for i, other := range taken {
			switch {
			case !sameFile(out, other):
			case i < len(inputs):
				return fmt.Errorf("%s would be overwritten: it is the input %s", shown.Name(out), shown.Name(other))
			default:
				return fmt.Errorf("%s is named for two outputs", shown.Name(out))
			}
		}
		taken = append(taken, out)
	}
	return nil
}

// sameFile reports whether two names are of the same regular file, which need not be
// there yet.
func sameFile(a, b string) bool {
	if a == "" || b == "" || a == "-" || b == "-" {
		return false
	}
	sa, errA := os.Stat(a)
	sb, errB := os.Stat(b)
	if errA == nil && errB == nil {
		return sa.Mode().IsRegular() && os.SameFile(sa, sb)
	}
	fullA, errFullA := filepath.Abs(a)
	fullB, errFullB := filepath.Abs(b)
	return errA != nil && errB != nil && errFullA == nil && errFullB == nil && fullA == fullB
}

// binaryOutput is the file that convert or synth makes: one that path names, or standard
// output for "-", where what the verb reports must not follow it.
type binaryOutput struct {
	path string
	c    *console
}

// check returns an error if the output cannot be what the user wants.
func (o binaryOutput) check(inputs []string) error {
	if o.path == "-" && isTerminal(o.c.out.w) {
		return fmt.Errorf("-o -: the file %w", errBinary)
	}
	if err := checkOutputs(inputs, o.path); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	return nil
}

// report returns where the verb's report goes.
func (o binaryOutput) report() io.Writer {
	if o.path == "-" {
		return o.c.stderr
	}
	return o.c.out
}

func (o binaryOutput) write(b []byte) error {
	if o.path == "-" {
		o.c.out.Write(b) // the console reports errors
		return nil
	}
	return atomicfile.WriteOutput(o.path, b, atomicfile.PermText)
}

// guardOutput returns a context that ends with the signals that would end the process, if
// newVerbOutput makes a temporary file for path, which must then be removed. Otherwise
// the signals do end the process.
func guardOutput(ctx context.Context, path string) (context.Context, context.CancelFunc) {
	st, err := os.Stat(path)
	if path == "" || path == "-" || err == nil && !st.Mode().IsRegular() {
		return ctx, func() {}
	}
	return interruptible(ctx)
}

// run calls work. If ctx, made by guardOutput, ends first, run abandons the output and
// returns false while work is still running: it may be waiting for a pipe.
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
		o.c.fail("interrupted", fmt.Errorf("%s is not written", shown.Name(o.path)))
		return false
	}
}

// finish must be called when all is written. The console reports errors of standard
// output.
func (o *verbOutput) finish() error {
	if o.file == nil {
		return nil
	}
	return o.file.Commit()
}

// permLike returns the mode of a file made from the recording at path: no wider
// than the mode of the recording, whose contents may be private.
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
	if st.IsDir() {
		for _, p := range recordingParts(path) {
			if st, err := os.Stat(p); err == nil {
				perm = narrowed(perm, st)
			}
		}
	}
	return perm
}

// narrowed returns perm without the rights of group and others that st lacks.
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
