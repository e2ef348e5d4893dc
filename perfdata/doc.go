// Package perfdata reads and rewrites perf.data files, as perf record writes them, in file
// and in pipe mode, plain and compressed with zstd.
//
// The layouts are those of include/uapi/linux/perf_event.h (attributes and
// kernel records), tools/perf/Documentation/perf.data-file-format.txt (headers,
// features, order) and tools/lib/perf/include/perf/event.h (records of perf
// itself) in the Linux sources. Only little-endian files are read, which is
// what x86-64 writes.
//
// A ChainWriter writes a recording again, with call chains instead of copies of
// stacks: small, and readable by programs that do not unwind.
//
// A Reader delivers records one by one, ordered by time. Memory that a record
// refers to is valid until the next call of Next. Memory is bounded by the
// records between two round marks of perf, and by Options.QueueBytes if a file
// has no such marks.
//
// Unless documented otherwise, types are plain values: several goroutines may
// read one at once if none changes it.
package perfdata
