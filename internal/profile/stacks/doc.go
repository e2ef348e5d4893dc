// Package stacks takes the stacks of all threads of a process or of a core file.
//
//	process --Live--> Target: threads with pcs --Text--> text
//	core    --Open, Core.Target--> the same    --Target.Samples--> a format of package stackfmt
//
// Live stops a thread for its registers and a copy of its stack; everything else happens while
// it runs. It works on Linux on x86-64; cores are read on any host.
package stacks

import (
	"time"

	"github.com/ehasm/ehasm/unwind"
)

// MaxFrames is how many frames of a stack are taken.
const MaxFrames = 4096

// Options say how stacks are taken.
type Options struct {
	Objects       *unwind.Objects
	FramePointers unwind.FramePointers // in which code without unwind information they are followed
}

// Thread is a thread with its stack.
type Thread struct {
	TID     int32
	Comm    string // "": not known
	State   string // "running", or what it is blocked in; "": not known
	PCs     []uint64
	Guessed []int         // which of PCs were found by frame pointer, ascending
	End     unwind.Cause  // why the stack ends
	Missing string        // why there is no stack; "": there is one
	Stopped time.Duration // for how long it was stopped
}

// Target is a process or a core.
type Target struct {
	PID     int32
	Comm    string
	Reason  string // why a core was written; ""
	Maps    *unwind.Maps
	Threads []Thread
	Notes   []string // about what is not as it should be
}
