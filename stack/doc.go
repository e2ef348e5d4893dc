// Package stack takes the stacks of all threads of a running process or of a core file, as ehasm stack does.
//
// ReadProcess and ReadCore do everything: they find the files, unwind, and name the frames. Live and Core leave names
// to the caller; Live can take the stacks of a process many times.
//
//	process --Live--> Target: threads with pcs
//	core    --OpenCore, Core.Target--> the same
//
// A thread is stopped only while its registers and its stack are copied. Stacks come from unwind tables, which package
// unwind reads, so that no file needs an eh_elf. Processes need Linux on x86-64; cores can be read on any host. Both
// are of 64-bit programs.
//
// Addresses are run-time addresses.
package stack

import (
	"errors"
	"time"

	"github.com/ehasm/ehasm/unwind"
)

// MaxFrames is how many frames of a stack are kept by default.
const MaxFrames = 4096

// walked is how many frames of a stack are looked at, at most: a stack of 8 MB (ulimit -s) holds a million words.
const walked = 1 << 21

// Errors about processes; they are wrapped. Those about rights wrap fs.ErrPermission.
var (
	ErrNoProcess = errors.New("there is no such process")
	ErrEnded     = errors.New("the process has ended")
)

// Options say how stacks are taken. The zero value gives what ehasm stack --no-lines shows.
type Options struct {
	// Objects finds the files of processes or of one core. It needs a way to unwind: see NewObjects. ReadProcess and
	// ReadCore make it if it is nil.
	Objects *unwind.Objects
	// FramePointers says in which code without unwind information frame pointers are followed.
	FramePointers unwind.FramePointers
	// MaxFrames is how many frames of a stack are kept, if it is not 0: of a longer stack half of them from each end.
	MaxFrames int
	// Only says whose stacks Live takes; nil: those of all threads.
	Only func(tid int32) bool
	// Lines adds inlined functions, files and lines to Frames, which takes reading debug information. It has no effect
	// on Live and Core.
	Lines bool
	// Consistent stops all threads of a process together, so that their stacks are of one moment. It has no effect on
	// cores and Live.
	Consistent bool
}

// Target is a process or a core with its threads.
type Target struct {
	PID    int32  // in a core, the PID in the process's own namespace
	Comm   string // name of the process, at most 15 bytes of its choice; "": not known
	Reason string // why a core was written, such as "SIGSEGV at address 0x10"; "": not known
	// Maps has the executable mappings. Once ReadProcess or ReadCore has returned, its objects cannot be opened.
	Maps *unwind.Maps
	// Threads are ordered by TID, those of a core as in the core: Linux writes the one that crashed first.
	Threads []Thread
	Notes   []string // a line about each problem, such as a core that was cut short
}

// named takes the mappings, which say what threads are named after.
func (t *Target) named(maps *unwind.Maps) {
	t.Maps, t.Comm = maps, maps.Name(t.Comm)
	for i := range t.Threads {
		t.Threads[i].Comm = maps.Name(t.Threads[i].Comm)
	}
}

// Thread is a thread with its stack.
type Thread struct {
	TID   int32
	Comm  string // name, as in Target; in a core ""
	State string // just before it was stopped: "running", or what it is blocked in; "": not known
	// Kernel has the functions of the kernel that a blocked thread is in, innermost first, as "name+0x12". It is nil in a
	// core, and without the right to read /proc/PID/stack, which root has.
	Kernel  []string
	PCs     []uint64
	Guessed []int        // which of PCs were found by frame pointer, ascending
	LeftOut int          // frames in the middle of PCs that are not there, see Options.MaxFrames
	End     unwind.Cause // why the stack ends: Outermost and OutermostGuessed if it is complete
	// Missing says why there is no stack; "": there is one.
	Missing string
	Stopped time.Duration // how long it was stopped
	// Frames has a frame for each of PCs after ReadProcess and ReadCore, otherwise none.
	Frames []Frame
}

// Frame is a named frame of a stack.
type Frame struct {
	// PC is the return address. In the first frame, and in one that a signal interrupted, it is the next instruction.
	PC uint64
	// Function is the demangled name of the function. Without a symbol it is the object's name and the function's
	// start in it, as "sleep+0x6420", if unwind information tells that (NoSymbol is set then), else "".
	Function string
	NoSymbol bool
	Offset   uint64 // of PC from the function's start, in bytes
	Object   string // name of the file that is mapped at PC; for other memory the kernel's name
	File     string // of the source; "": not known
	Line     int    // from 1; 0: not known
	// Inlined has the functions that PC is in and that Function has inlined, innermost first.
	Inlined []Inlined
	// Guessed says that the frame was found by frame pointer, for lack of unwind information.
	Guessed bool
}

// Inlined is a function that was inlined.
type Inlined struct {
	Function string
	File     string // the place of PC in it; "": not known
	Line     int    // from 1; 0: not known
}
