// Package script turns a recording of perf into text: it tracks the processes, unwinds the samples, names
// the frames (package symbolize) and writes them in a format (package stackfmt).
//
// One goroutine reads records, in the order of time, and puts samples into
// batches together with the address space of that moment; workers unwind,
// name and format a batch each; one more writes the batches in their order.
package script
