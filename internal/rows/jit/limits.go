package jit

import (
	"math"
	"sync"
	"time"

	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
)

// This file bounds the recorder's work: programs that make much code would otherwise take as much processor time of the
// recorder as they use.

// Limits bounds what the code of all processes takes together. It is safe for concurrent use; nil does not bound.
type Limits struct {
	files *symbols.OpenFiles

	mu      sync.Mutex // for what is below
	left    int        // instructions that may be followed
	counted time.Time  // when left was right
}

// Bounds on following code: an instruction takes some 0.2 us, so 0.8 seconds of the recorder's time at once and 0.2 of
// each second later. javac of 6,000 methods takes 0.8 million a second.
const (
	mostFollowed      = 4 << 20 // instructions at once
	followedPerSecond = 1 << 20
)

// NewLimits returns limits with n jitdump files that may be open.
func NewLimits(files int) *Limits {
	return &Limits{files: symbols.NewOpenFiles(files), left: mostFollowed, counted: time.Now()}
}

// NewFileLimits returns limits of the open jitdump files alone.
func NewFileLimits(files int) *Limits {
	return &Limits{files: symbols.NewOpenFiles(files), left: math.MaxInt}
}

// open returns what bounds the open files.
func (l *Limits) open() *symbols.OpenFiles {
	if l == nil {
		return nil
	}
	return l.files
}

// mayFollow reports whether code may be followed now. It asks the clock only when the allowance is used up.
func (l *Limits) mayFollow() bool {
	if l == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left <= 0 {
		now := time.Now()
		l.refill(now.Sub(l.counted))
		l.counted = now
	}
	return l.left > 0
}

// refill adds what may be followed after a time.
func (l *Limits) refill(since time.Duration) {
	l.left = int(min(mostFollowed, float64(l.left)+since.Seconds()*followedPerSecond))
}

// followed counts instructions.
func (l *Limits) followed(n int) {
	if l != nil {
		l.mu.Lock()
		l.left -= n
		l.mu.Unlock()
	}
}
