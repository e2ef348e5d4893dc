// Package frame is the data of a named frame: what symbolizing makes and formats write.
package frame

import "github.com/ehasm/ehasm/unwind"

// Source is a place in the source; if File is "" it is not known.
type Source struct {
	File string
	Line int
}

// Inlined is a function that is inlined at a frame's address.
type Inlined struct {
	Name       string
	Parameters string // as those of Frame
	Source
}

// Frame is a place in the code. A worker's frames do not change after stackfmt.Worker's Render.
type Frame struct {
	IP   uint64 // as perf prints it: a file offset, or a run-time address
	Name string // "" if unknown
	// Parameters of the function as C declares them, in parentheses; "" if unknown or
	// not wanted.
	Parameters string
	Offset     uint64 // from the start of the function
	NoSymbol   bool   // Name is made of the object's name and the function's start
	DSO        string // path of the object, or a name such as [kernel.kallsyms]
	Kernel     bool
	JIT        bool           // of no file: compiled at run time
	PerfMap    string         // with JIT: perf's name for the object, though there is no such file; "": DSO
	Object     *unwind.Object // nil for the kernel's, and where nothing is mapped
	Source
	Inlined []Inlined // at this address, innermost first

	Text []byte // what Worker.Render made, for that worker's Add
}

// Shown is the name with the parameters.
func (f *Frame) Shown() string { return f.Name + f.Parameters }

// OffsetOf returns the offset of a run-time pc in the function. The frame is of the pc or, if it is a return address,
// of the byte before it.
func (f *Frame) OffsetOf(pc uint64) uint64 {
	const page = 4096 // a file offset and a run-time address differ by pages
	return f.Offset + (pc-f.IP)%page
}

// Shown is the name with the parameters.
func (in *Inlined) Shown() string { return in.Name + in.Parameters }
