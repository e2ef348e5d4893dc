// Package perfevent opens performance events of the Linux kernel and reads their
// rings in place: perf_event_open(2), include/uapi/linux/perf_event.h.
//
// An Event is opened for a thread, a control group or a CPU; a Ring is the memory that
// the kernel writes its records to. Order reads several rings in the order of time. What
// the records mean is for package perfdata to say. The package is empty but on Linux on
// x86-64.
package perfevent
