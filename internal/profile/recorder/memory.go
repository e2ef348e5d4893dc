//go:build linux && amd64

package recorder

import (
	"os"
	"runtime"
	"runtime/debug"
)

// This file sets the Go run-time for a process that must read rings in time: samples that are not read before the
// kernel needs their place are lost. It trades memory and spare threads for that.

// Bytes of memory up to which a recording leaves garbage. Most garbage is from the first second, in which objects are
// prepared. A collection stops the reader until all other threads have been stopped, each of which may first have to
// wait for a processor: on a busy machine that took half a second, in which a real-time reader lost a third of its
// samples.
const (
	firstCollection         = 32 << 20
	firstCollectionRealtime = 256 << 20
)

// Percent of the live heap that may be garbage before it is collected; less if the recording goes on for long.
const (
	usualGarbage  = 100
	littleGarbage = 40
)

// postponeCollection makes the first garbage collection wait until the heap has a number of bytes. From then on, and
// from when the returned function is called, they come when garbage is a percentage of what is live. It does nothing
// if GOGC is set: the user has chosen.
//
// The run-time has no such setting: a memory limit would collect all the time near it. So the percentage is large
// until the first collection runs the finalizer of an object that nothing holds.
func postponeCollection(heap, percent int) (end func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	const least = 4 << 20           // the heap at which the run-time collects first with the usual percentage
	type sentinel struct{ _ *byte } // a pointer: the finalizer of a tiny object may never run
	back := func() { debug.SetGCPercent(percent) }
	runtime.SetFinalizer(new(sentinel), func(*sentinel) { back() })
	debug.SetGCPercent(heap / least * usualGarbage)
	return back
}

// spareProcessors lets more goroutines run at once than there are processors, until the returned function is called. A
// goroutine that compiles keeps its place also while its thread waits for a processor; with none left, the reader would
// wait for that thread, whatever its own priority.
func spareProcessors() (end func()) {
	const spare = 4 // what may compute meanwhile: compiling, rows from code, writing of parts, garbage collection
	was := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(was + spare)
	return func() { runtime.GOMAXPROCS(was) }
}
