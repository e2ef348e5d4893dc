package perfdata

import (
	"errors"
	"fmt"
)

var (
	// ErrFormat is wrapped by errors about files that are not perf.data files,
	// or of a kind that this package does not read.
	ErrFormat = errors.New("not a readable perf.data file")
	// ErrTruncated is wrapped if the file or a record is shorter than it says.
	ErrTruncated = errors.New("truncated")
	// ErrBadRecord is wrapped if a record contradicts itself.
	ErrBadRecord = errors.New("bad record")
	// ErrUnknownEvent is wrapped if a sample has an id that no event has.
	ErrUnknownEvent = errors.New("sample of an unknown event")
)

// Error is an error at a place of the file.
type Error struct {
	Offset int64 // in the file; of the compressed record, for what was in one
	What   string
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("offset %#x: %s: %v", e.Offset, e.What, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }
