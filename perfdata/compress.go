package perfdata

import (
	"io"
	"iter"
	"runtime/debug"

	"github.com/klauspost/compress/zstd"
)

// inflater decompresses PERF_RECORD_COMPRESSED and PERF_RECORD_COMPRESSED2.
// Their payloads, concatenated, are one zstd stream of records. A record may
// span payloads.
//
// The decoder runs as a coroutine: it yields when it needs more input or has
// written enough.
type inflater struct {
	stream
	in     []byte                  // of the current payload
	hungry bool                    // the decoder waits for input
	closed bool                    // close was called, or the caller gave up
	err    error                   // of the decoder; set when it ends
	resume func() (struct{}, bool) // runs the decoder to its next yield; false: it has ended
	stop   func()                  // ends the coroutine
}

const maxWindow = 128 << 20 // bytes; perf's levels use up to 8 MB, --ultra ones 128

// newInflater returns an inflater whose decoder runs on the first more.
func newInflater(p *pool) *inflater {
	f := &inflater{stream: stream{pool: p}, hungry: true}
	f.resume, f.stop = iter.Pull(func(yield func(struct{}) bool) {
		debug.SetPanicOnFault(true) // the payload may be mapped; iter.Pull propagates a panic
		// The decoder's input: it yields until feed brings some.
		in := readerFunc(func(p []byte) (int, error) {
			for len(f.in) == 0 {
				f.hungry = true
				if f.closed || !yield(struct{}{}) {
					f.closed = true
					return 0, io.EOF
				}
			}
			n := copy(p, f.in)
			f.in = f.in[n:]
			return n, nil
		})
		// Its output: it yields when half a block is buffered, so that memory stays bounded.
		out := writerFunc(func(p []byte) (int, error) {
			todo := p
			for len(todo) > 0 {
				if f.end-f.pos > blockSize/2 && (f.closed || !yield(struct{}{})) {
					f.closed = true
					return 0, io.ErrClosedPipe
				}
				n := copy(f.room(), todo)
				f.end += n
				todo = todo[n:]
			}
			return len(p), nil
		})
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err == nil {
			defer d.Close()
			if err = d.Reset(in); err == nil {
				_, err = d.WriteTo(out)
			}
		}
		// The decoder is fed until close: an end by itself is damage.
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		f.err = err
	})
	return f
}

// feed gives the payload of the next compressed record.
func (f *inflater) feed(b []byte) { f.in, f.hungry = b, false }

// more runs the decoder until it has written something, or needs input.
func (f *inflater) more() error {
	if _, ok := f.resume(); !ok && f.err != nil {
		f.hungry = true
		return f.err
	}
	return nil
}

// close ends the decoder. It may be called on nil.
func (f *inflater) close() {
	if f != nil {
		f.closed = true
		f.stop()
	}
}

// readerFunc and writerFunc make an io.Reader and io.Writer of a function.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
