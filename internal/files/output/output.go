package output

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
)

// Output is the output of a verb: standard output, or the file that -o
// names, which gets its name when it is complete.
type Output struct {
	file   *File // nil: standard output
	stdout io.Writer

	mu  sync.Mutex
	err error // the first of Write
}

// New begins the output; path is "" or "-" for standard output.
func New(path string, perm fs.FileMode, stdout io.Writer) (*Output, error) {
	o := &Output{stdout: stdout}
	if path == "" || path == "-" {
		return o, nil
	}
	var err error
	o.file, err = CreateOutput(path, perm)
	return o, err
}

// Write writes to the output and remembers the first error.
func (o *Output) Write(p []byte) (n int, err error) {
	if o.file != nil {
		n, err = o.file.Write(p)
	} else {
		n, err = o.stdout.Write(p)
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

// Seek sets the place of the next Write. Standard output has none.
func (o *Output) Seek(offset int64, whence int) (int64, error) {
	if o.file == nil {
		return 0, syscall.ESPIPE
	}
	return o.file.Seek(offset, whence)
}

// Abandon drops the output: the file is removed, and what had its name stays.
func (o *Output) Abandon() {
	if o.file != nil {
		o.file.Abort()
	}
}

// Failed reports whether a Write failed, so that the input is not blamed.
func (o *Output) Failed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err != nil
}

// File returns the file; nil: standard output.
func (o *Output) File() *File { return o.file }

// Run calls work. If ctx, of host.Guard, ends first, Run abandons the output and
// returns false while work is still running: it may be waiting for a pipe.
func (o *Output) Run(ctx context.Context, work func()) bool {
	if o.file == nil || o.file.InPlace() { // no temporary file, nothing to remove
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
		return false
	}
}

// Finish must be called when all is written. Standard output reports its errors when it is flushed.
func (o *Output) Finish() error {
	if o.file == nil {
		return nil
	}
	return o.file.Commit()
}

// Writable returns an error if no file can be made or written at a path.
func Writable(path string) error {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return nil // opening a pipe may wait for its reader
	}
	out, err := New(path, PermText, io.Discard)
	if err == nil && out.file != nil {
		out.file.Abort()
	}
	return err
}

// Distinct returns an error if one of the named outputs would overwrite an input or
// another output. Names that are "" or "-", and files that are not regular, such as
// /dev/null, are no one's.
func Distinct(inputs []string, outputs ...string) error {
	taken := slices.Clone(inputs)
	for _, out := range outputs {
		for i, other := range taken {
			switch {
			case !sameFile(out, other):
			case i < len(inputs):
				return fmt.Errorf("%s would be overwritten: it is the input %s", Name(out), Name(other))
			default:
				return fmt.Errorf("%s is named for two outputs", Name(out))
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

// Narrowed returns perm without the rights of group and others that st lacks.
func Narrowed(perm fs.FileMode, st fs.FileInfo) fs.FileMode {
	return perm & (0o600 | st.Mode().Perm())
}

// WriteStats writes the summary of --stats.
func WriteStats(path string, perm fs.FileMode, summary any, stderr io.Writer) error {
	b, err := json.MarshalIndent(summary, "", "  ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if path == "-" { // standard error: the output itself may be on standard output
		_, err = stderr.Write(b)
		return err
	}
	return WriteOutput(path, b, perm)
}
