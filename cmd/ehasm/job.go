package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// compileJob makes the eh_elf of one input, unless it is up to date, and the
// links to it.
func compileJob(ctx context.Context, j *job, opt *buildOptions, gate *publisher) (o *outcome) {
	o = &outcome{job: j}
	begin := time.Now()
	defer func() {
		if p := recover(); p != nil { // a bug must not keep the other files from being built
			o.status, o.err = statusFailed, fmt.Errorf("internal error: %v", p)
		}
		o.time = time.Since(begin)
	}()
	r, size, done, err := j.Open()
	if err != nil {
		return o.failed(err)
	}
	defer done()
	object, err := dwarfcfa.NewObject(j.name, r, size)
	if err != nil {
		return o.refused(err, opt.strict)
	}
	if opt.cache != "" {
		if err := j.intoCache(opt.cache, object.BuildID()); err != nil {
			return o.refused(err, opt.strict)
		}
	}
	target := targetOf(j, opt)
	id, err := compile.Identify(object, opt.code, target)
	if err != nil {
		return o.failed(bare(err))
	}
	if !opt.force {
		if s, ok := upToDate(j, id, opt); ok {
			o.status, o.stats = statusCurrent, s
			return o.linked(gate)
		}
	}
	table, err := compile.NewTable(ctx, object, opt.code, target)
	if err != nil {
		return o.refused(err, opt.strict)
	}
	made, err := table.Compile(ctx, id)
	if err != nil {
		return o.refused(err, opt.strict)
	}
	o.stats, o.details = made.Stats, made.Details
	if err := gate.write(j, made.Image); err != nil {
		return o.failed(err)
	}
	o.status = statusBuilt
	return o.linked(gate)
}

// work returns the job's share of a build: the bytes of its unwind tables plus
// a constant per file.
func (j *job) work() int64 { return j.Weight + 1<<10 }

func (o *outcome) failed(err error) *outcome {
	o.status, o.err = statusFailed, err
	return o
}

func (o *outcome) linked(gate *publisher) *outcome {
	if err := gate.link(o.job); err != nil {
		return o.failed(err)
	}
	return o
}

// refused sets the outcome of an object that cannot be compiled: a failure if the
// user named it or if strict is set, otherwise skipped, as a file that a folder
// happens to hold. A damaged file is named in any case: err says what is wrong with
// it.
func (o *outcome) refused(err error, strict bool) *outcome {
	reason, none := skipReason(err)
	switch {
	case o.Given || reason == "" || strict && !none:
		return o.failed(err)
	case !none:
		o.err = err
	}
	o.status, o.skipped = statusSkipped, reason
	return o
}

// skipReason returns why a file of a folder is skipped, or "" if err is always
// a failure. none reports that the file is of another kind; otherwise it is
// damaged.
func skipReason(err error) (reason string, none bool) {
	var damage *dwarfcfa.DecodeError
	if errors.As(err, &damage) || errors.Is(err, dwarfcfa.ErrTruncated) || errors.Is(err, dwarfcfa.ErrBadEncoding) {
		return "damaged", false
	}
	for _, kind := range []error{dwarfcfa.ErrNotELF, dwarfcfa.ErrNotX86_64, dwarfcfa.ErrNotLoadable, dwarfcfa.ErrNoUnwindInfo, errNoBuildID} {
		if errors.Is(err, kind) {
			return kind.Error(), true
		}
	}
	return "", false
}
