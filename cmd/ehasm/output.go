package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/ehasm/ehasm/internal/files/output"
)

// closedOutput is a standard output that was closed when the process began (>&-). The Go run-time has opened /dev/null
// in its place, to which writes succeed; results that go nowhere must be failures.
type closedOutput struct{}

// Write fails as write(2) does on a closed descriptor.
func (closedOutput) Write([]byte) (int, error) { return 0, syscall.EBADF }

// binaryOutput is the file that convert or synth makes: one that path names, or standard
// output for "-", where what the verb reports must not follow it.
type binaryOutput struct {
	path string // a path, "-", or "" if nothing is to be written
	c    *console
	perm fs.FileMode // of a new file; permLike narrows it
}

// check returns an error if the output cannot be what the user wants.
// The inputs are files that the output must not overwrite.
func (o binaryOutput) check(inputs []string) error {
	if o.path == "-" && isTerminal(o.c.out.w) {
		return fmt.Errorf("-o -: the file %w", errBinary)
	}
	if err := output.Distinct(inputs, o.path); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	return nil
}

// report returns where the verb's report goes: standard error if standard output has the file.
func (o binaryOutput) report() io.Writer {
	if o.path == "-" {
		return o.c.stderr
	}
	return o.c.out
}

// write writes the file: whole under its name, or not at all.
func (o binaryOutput) write(b []byte) error {
	if o.path == "-" {
		o.c.out.Write(b) // the console reports errors
		return nil
	}
	return output.WriteOutput(o.path, b, o.perm)
}

// permLike narrows the mode of a file that is made from the one at path, or from the recording there: no wider than
// the mode of that, whose contents may be private. perf.data files have 0600, since stacks hold data of the program. A
// pipe or a device says nothing, so perm stays.
func permLike(perm fs.FileMode, path string) fs.FileMode {
	if path == "-" {
		if st, err := os.Stdin.Stat(); err == nil && st.Mode().IsRegular() {
			perm = output.Narrowed(perm, st)
		}
		return perm
	}
	st, err := os.Stat(path)
	if err != nil {
		return perm
	}
	if st.Mode().IsRegular() || st.IsDir() {
		perm = output.Narrowed(perm, st)
	}
	// A folder's recording is as private as its most private file.
	if st.IsDir() {
		for _, p := range recordingParts(path) {
			if st, err := os.Stat(p); err == nil {
				perm = output.Narrowed(perm, st)
			}
		}
	}
	return perm
}
