// Package builder makes the eh_elfs of many inputs, several at a time: below a folder, beside the objects, or in the
// cache, where libehunwind finds them by build-id. It prints nothing: see Progress.
package builder

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// Options are the settings of a build.
type Options struct {
	Code     compile.Options
	Cache    string // the folder of the cache, with jobs of NewCacheJobs; else ""
	Workers  int    // files that are compiled at a time
	Force    bool   // write files that are up to date, too
	Strict   bool   // what cannot be compiled is a failure, not left out
	Unproven bool   // do not prove the code against the tables

	// Also makes what else the cache has of an object; nil: nothing.
	Also func(context.Context, *dwarfcfa.File)

	Remote *Remote // with Cache: where eh_elfs are taken from that it has; nil: all are made here
}

// Progress is told what a build does. Note and Done may be called by several goroutines at a time.
type Progress interface {
	// Note tells something of a file that is not a failure of the build.
	Note(name string, err error)
	// Begin tells the number of files, and the sum of their Work.
	Begin(files int, work int64)
	// Done tells that a file is done, or has failed.
	Done(*Outcome)
	// End is called after the last Done. err says how far a build came that was interrupted; else it is nil.
	End(err error)
}

// Build makes the eh_elfs. It returns nil if ctx ended before all were done; from then on nothing
// is written. A deadline of ctx is no interruption for Progress.End.
func Build(ctx context.Context, jobs []*Job, opt Options, p Progress) []*Outcome {
	work := int64(0)
	for _, j := range jobs {
		work += j.Work()
	}
	p.Begin(len(jobs), work)
	var gate publisher
	var current atomic.Int64
	outcomes := make([]*Outcome, len(jobs))
	forEach(ctx, jobs, opt.Workers, func(i int) {
		o := compileJob(ctx, jobs[i], &opt, &gate, p)
		outcomes[i] = o
		if o.Status == Current {
			current.Add(1)
		}
		p.Done(o)
	})
	gate.close() // from here on nothing is written, also by workers that ctx has left behind
	switch {
	case ctx.Err() == nil:
		opt.Remote.end(p)
		p.End(nil)
		return outcomes
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		p.End(nil) // the caller set this deadline
	default:
		p.End(fmt.Errorf("%d of %d files are built", gate.written.Load()+current.Load(), len(jobs)))
	}
	return nil
}
