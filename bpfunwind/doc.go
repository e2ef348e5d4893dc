// Package bpfunwind unwinds user stacks in the Linux kernel, at the event that samples them. A BPF program reads the
// tables of the objects, so that stacks of any depth are whole and nothing of them but return addresses leaves the
// kernel.
//
// Data flows one way:
//
//	dwarfcfa.Table -Make-> Tables -AddTables-> Loaded -MapProcess-> a process -Program, an event-> Sample
//
// Make encodes each row as a record of 16 bytes, and proves from the bytes that they mean the table at every pc
// (Tables.Prove). Load makes the maps. NewProgram loads a program, which Attach gives to a perf event, and
// AttachTracepoint to a tracepoint. Read returns the samples.
//
// A program walks only in processes that MapProcess or Fork has told of, and forgets their code at an exec; Follow has
// the kernel note forks, for programs that leave out other processes. Times are nanoseconds of
// CLOCK_MONOTONIC, addresses run-time ones, process numbers those of the first PID namespace.
//
// # Outcomes
//
// A walk ends with one Outcome. EndOfStack, NoRow and Unreadable are those of dwarfcfa.Table.Step. For the outcomes in
// NeedsCopy the caller falls back: the program asks perf to write its own sample, perhaps with a copy of the stack, for
// just this event.
//
// A record follows the callee-saved registers, rsp and the pc. It has a CFA at any register plus an offset, entries of
// procedure linkage tables, frames whose CFA is dereferenced, such as those with an aligned stack, and signal frames.
// Rows that say more have no record and end with NoRecord: other expressions, registers saved more than 104 bytes from
// each other, an rsp from another register. A register that calls may change is taken to have survived where a row
// needs it; Sample.Kept says so.
//
// # Rights and limits
//
// Load needs Linux 5.17 (bpf_loop), CAP_BPF and CAP_PERFMON, else it returns ErrKernel or ErrRights. Maps and programs
// end with the process. A walk reads memory that is present, and stops after Options.MaxFrames and Options.MaxTime.
// Four walks may be nested on a CPU; what is beyond, and samples for which a ring is full, are counted (Stats).
//
// Not supported: 32-bit code (Foreign), code that is compiled at run time (NoRegion), .sframe without a Table, other
// processors.
package bpfunwind
