package host

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// interruption is the cause of a context that a signal ended.
type interruption struct{ signal os.Signal }

// Error says which signal it was.
func (i interruption) Error() string { return "interrupted: " + i.signal.String() }

// Repeated is the time in which a signal that comes again is the same one: timeout(1) signals its command, and then its
// process group, which has the command.
const Repeated = 500 * time.Millisecond

// InterruptContext returns a context that ends with the signals that would end the
// process, so that no partial file is left behind; a second signal after Repeated
// does end it. Ignored signals stay ignored, also in programs that are executed.
func InterruptContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return until(ctx, Repeated)
}

// Guard returns a context that ends with the signals that would end the process, if
// output.New makes a temporary file for path, which must then be removed. Otherwise
// the signals do end the process.
func Guard(ctx context.Context, path string) (context.Context, context.CancelFunc) {
	st, err := os.Stat(path)
	if path == "" || path == "-" || err == nil && !st.Mode().IsRegular() {
		return ctx, func() {}
	}
	return InterruptContext(ctx)
}

// until is InterruptContext with another time for repeated signals.
func until(ctx context.Context, repeated time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)
	if len(signals) > 0 { // Notify without signals means all
		arrived := make(chan os.Signal, 1)
		signal.Notify(arrived, signals...)
		go func() {
			select {
			case s := <-arrived:
				cancel(interruption{s})
				time.Sleep(repeated)
				signal.Stop(arrived) // the next one ends the process
			case <-ctx.Done():
				signal.Stop(arrived)
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// BySignal plus the signal's number is the exit status of a process that a signal ended, as in
// shells.
const BySignal = 128

// InterruptStatus returns the exit status of work that ctx ended, as in shells for
// a process that a signal ended: 130 for ^C.
func InterruptStatus(ctx context.Context) int {
	var i interruption
	if errors.As(context.Cause(ctx), &i) {
		if n, ok := i.signal.(syscall.Signal); ok {
			return BySignal + int(n)
		}
	}
	return failed
}

// failed is the exit status of work that something else ended.
const failed = 1
