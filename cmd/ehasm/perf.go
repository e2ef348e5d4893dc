package main

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/ehasm/ehasm/internal/profile/ondemand"
	"github.com/ehasm/ehasm/internal/profile/perfcall"
	"github.com/ehasm/ehasm/internal/profile/script"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/perfdata"
)

// This file is ehasm-perf: perf's command line comes in, and perf's text goes out, unwound by
// eh_elfs. Whatever it does not do the same way, perf itself does.

// perfBrief and perfHelp are for the manual page: --help is perf's.
const (
	perfBrief = "perf, with stacks unwound by ehasm"
	perfHelp  = `ehasm-perf script writes what perf script writes, and unwinds the stacks of
recordings with --call-graph dwarf as 'ehasm script' does: faster, and where
perf cuts them. For all other commands, flags and recordings it runs perf.

Usage:
  ehasm-perf script [-i FILE] [-F FIELDS] [-G] [--header] [--inline]
             [--no-inline] [--max-stack N] [--comm NAMES] [--pid N] [--tid N]
             [--cpu LIST] [--time FROM,TO]
  ehasm-perf COMMAND [ARGUMENT...]

The flags are those of perf-script(1). For tools that always run perf, put the
folder lib/ehasm/perf in front of PATH: it has an ehasm-perf with that name.

Examples:
  ehasm-perf script -i perf.data | stackcollapse-perf.pl | flamegraph.pl >f.svg
  PERF=ehasm-perf cargo flamegraph
`
)

// runPerf is the program under the name of perf. It returns the exit status, unless the process becomes
// perf.
func runPerf(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := newConsole(stdout, stderr)
	// What ehasm-perf does not do in the same way is perf's job: unknown flags here, unsuitable
	// recordings below.
	p, err := perfcall.Parse(args)
	if err != nil {
		return becomePerf(args, c)
	}
	r, err := openRecording(p.Input, false)
	if err != nil {
		return becomePerf(args, c)
	}
	defer r.Close()
	if !p.Suits(r) {
		return becomePerf(args, c)
	}
	if p.Header {
		if err := perfHeader(p.Input, c); err != nil {
			return becomePerf(args, c)
		}
	}
	writePerf(ctx, p, r, c)
	if err := c.out.Flush(); err != nil && !errors.Is(err, syscall.EPIPE) {
		c.fail("standard output", err)
	}
	if c.close() {
		return exitFailed
	}
	return exitDone
}

// writePerf writes the samples.
func writePerf(ctx context.Context, p *perfcall.Script, r *perfdata.Reader, c *console) {
	opt := &scriptOptions{Options: p.Options, input: p.Input, making: ondemand.Options{Keep: true}, quiet: true}
	// perf's --max-stack bounds recorded call chains as well.
	opt.MaxChain = opt.MaxStack
	// as perf script: this machine's kernel, if it is the recorded one
	opt.Names.HostKernel, opt.Names.Kallsyms, opt.Names.KernelNotes = true, "/proc/kallsyms", kernelNotes
	opt.Workers = runtime.GOMAXPROCS(0)
	opt.Format = stackfmt.NewPerf(stackfmt.Options{Inline: opt.Names.Inline}, p.Fields)
	maker := ondemand.New(opt.making)
	compiling, stop := context.WithCancel(ctx)
	opt.prepare(ctx, compiling, maker, c)
	_, err := script.Run(ctx, r, c.out, opt.Options)
	stop()
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		c.fail(p.Input, err)
		return
	}
	// The eh_elfs that were compiled for this run serve the next one from the cache.
	maker.FillCache(ctx, opt.Workers, filling(c, true))
}

// perfHeader writes the header of a recording, as perf does.
func perfHeader(input string, c *console) error {
	perf, err := perfcall.Perf()
	if err != nil {
		return err
	}
	// perf's own text, which differs between releases
	text, err := exec.Command(perf, "script", "--force", "--header-only", "-i", input).Output()
	if err == nil {
		c.out.Write(text)
	}
	return err
}

// becomePerf starts perf in place of this process.
func becomePerf(args []string, c *console) int {
	c.fail("perf", perfcall.Become(args))
	// Become returns only if perf cannot be started.
	c.close()
	return exitFailed
}
