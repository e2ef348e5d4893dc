package main

import (
	"context"
	"errors"

	"github.com/ehasm/ehasm/internal/profile/recorder"

	"github.com/spf13/pflag"
)

// This file is heap: samples of allocations, taken by a library in the program itself. The flags that only events of
// the kernel have are missing.

const heapHelp = `Record what a program allocates, with a library that is preloaded into it. It
takes a sample every 512 KB on average; objects of all sizes count in
proportion.

Usage:
  ehasm heap [flags] [--] COMMAND [ARGUMENT...]
`

const heapMore = `As a heap profile, .pb.gz has what was allocated, and what is live at the end or
after --duration; .svg and .folded have what is live, or with --total all that
was allocated. SIGUSR2 writes another file, with the time in its name.

Processes that COMMAND starts are recorded, too; programs with their own malloc,
or without a dynamic loader, are not. heap unwinds with eh_elfs, and builds
those that the cache lacks first; --with names libraries that are loaded later.

Examples:
  ehasm heap -o heap.pb.gz -- ./server
  ehasm heap --total -o allocated.svg -- python3 work.py
`

// defaultAllocPeriod is the bytes between two samples, on average, as in Go's heap profiles
// (runtime.MemProfileRate), so profiles of both can be compared.
const defaultAllocPeriod = 512 << 10

// heapVerb is the verb heap. --total decides only for formats with one value a stack; .pb.gz has all four.
func heapVerb() verb {
	v := verb{name: "heap", brief: "record what a program allocates", help: heapHelp, more: heapMore, command: true}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		opt := newRecordOptions(v, fs)
		total := fs.Bool("total", false, ".svg and .folded: all that was allocated, not what is live")
		opt.Inside.Period = defaultAllocPeriod
		sizeFlag(fs, "period", "sample an allocation each `SIZE` of bytes, on average (default 512K)", 1,
			func(n uint64) { opt.Inside.Period = n })
		fs.StringArrayVar(&opt.Inside.With, "with", nil, "build an eh_elf for this `PATH`, too; may be repeated")
		fs.VarP((*seconds)(&opt.Run.Limit), "duration", "d", "end the recording after this `TIME`: 5 (seconds), 10m")
		opt.outputFlags()
		fs.IntVar(&opt.Sampling.MaxStack, "max-stack", defaultRecordMax, "at most `N` frames per stack")
		opt.nameFlags()
		return func(ctx context.Context, args []string, c *console) int {
			if len(args) == 0 {
				return v.misuse(c, errors.New("nothing to record: give a command; heap is in the program from its start on"))
			}
			// this makes recorder.Run preload the library in place of opening events
			opt.Inside.Alloc = recorder.HeapLive
			if *total {
				opt.Inside.Alloc = recorder.HeapTotal
			}
			return opt.run(ctx, args, c)
		}
	}
	return v
}
