package perfdata

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// input is a stream of records: the data section of a file, or one of the files
// data.0, data.1, ... of a folder.
type input struct {
	name    string // in the folder; "" for the file with the header
	src     source // nil until the first compressed record
	inf     *inflater
	inOff   int64  // offset of the record that inf works on
	last    uint64 // latest time seen
	ended   bool   // no more is read from it
	follows uint64 // bytes of data after the last record that are still to be delivered
}

// addInput adds a stream that is read up to its end.
func (r *Reader) addInput(name string, in io.Reader) {
	src := source{stream: stream{pool: &r.pool}, r: in, left: -1}
	if r.opt.Map {
		src.mapping = newMapping(in)
	}
	r.inputs = append(r.inputs, &input{name: name, src: src})
}

// folder reports whether records come from several files.
func (r *Reader) folder() bool { return len(r.inputs) > 1 }

// errPart is a warning about a file of a folder that is opened by itself.
var errPart = errors.New("the recording is a folder; this file is only one of its parts")

// openFolder opens a folder of perf record --threads: data is a file with a
// header and the records that perf itself makes; each data.N holds the bare
// records of one thread of perf (tools/perf/util/data.c, perf_data__open_dir).
// Nothing marks the end of a thread's round, so the records go through the queue
// at its full length; the files are read side by side in the order of time.
func openFolder(path string, opt Options) (*Reader, error) {
	name := filepath.Join(path, "data")
	if _, err := os.Stat(name); err != nil {
		return nil, fmt.Errorf("%s: a folder, and not one of perf record: %w", path, err)
	}
	r, err := Open(name, opt)
	if err != nil {
		return nil, err
	}
	// The header's warning is about the file alone; here the folder is read.
	r.info.Warnings = slices.DeleteFunc(r.info.Warnings, func(w error) bool { return errors.Is(w, errPart) })
	for i := 0; ; i++ {
		// data.0, data.1 and so on, without gaps.
		base := "data." + strconv.Itoa(i)
		f, err := os.Open(filepath.Join(path, base))
		if errors.Is(err, os.ErrNotExist) {
			return r, nil
		}
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.closers = append(r.closers, f)
		r.addInput(base, f)
	}
}

// endInput closes the input at whose end pull has arrived. err is io.EOF at a
// regular end.
func (r *Reader) endInput(err error) {
	// Errors are kept; the other files are still read.
	if !errors.Is(err, io.EOF) {
		if r.in.name != "" {
			err = fmt.Errorf("%s: %w", r.in.name, err)
		}
		if r.err != nil {
			err = errors.Join(r.err, err)
		}
		r.err = err
	}
	r.in.inf.close()
	r.in.ended = true
	r.choose()
}

// choose continues with the input that is behind the others in time.
func (r *Reader) choose() {
	var first *input
	r.until = ^uint64(0)
	for _, in := range r.inputs {
		switch {
		// Ended inputs need no turn.
		case in.ended:
		case first == nil:
			first = in
		// The earliest is read until it passes the second earliest.
		case in.last < first.last:
			first, r.until = in, first.last
		default:
			r.until = min(r.until, in.last)
		}
	}
	// All have ended: what is queued is released.
	if first == nil {
		r.done = true
		r.queue.flush(^uint64(0))
		return
	}
	r.in = first
}
