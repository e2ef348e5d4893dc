package builder

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// Status is the result for a file.
type Status string

// Results.
const (
	Built   Status = "built"
	Fetched Status = "fetched"
	Current Status = "up to date"
	Skipped Status = "skipped"
	Failed  Status = "failed"
)

// Outcome is the result of a job.
type Outcome struct {
	*Job
	Status  Status
	Stats   compile.Stats // if Built, Fetched or Current
	Time    time.Duration // of this job alone
	Reason  string        // Skipped: why
	Err     error         // Failed, and Skipped for damage
	Details []error       // Built: what is left out
}

// compileJob makes the eh_elf of one input, or takes it from the remote cache, unless it is up to date, and the
// links to it.
func compileJob(ctx context.Context, j *Job, opt *Options, gate *publisher, p Progress) (o *Outcome) {
	o = &Outcome{Job: j}
	begin := time.Now()
	defer func() {
		if p := recover(); p != nil { // a bug must not keep the other files from being built
			o.Status, o.Err = Failed, fmt.Errorf("internal error: %v", p)
		}
		o.Time = time.Since(begin)
	}()
	r, size, done, err := j.Open()
	if err != nil {
		return o.fail(err)
	}
	defer done()
	object, err := dwarfcfa.NewFile(j.Name, r, size)
	if err != nil {
		return o.refused(err, opt.Strict)
	}
	if opt.Cache != "" {
		if err := j.intoCache(opt.Cache, object); err != nil {
			return o.refused(err, opt.Strict)
		}
	}
	if opt.Also != nil {
		opt.Also(ctx, object)
	}
	target := targetOf(j, opt)
	id := compile.Identify(object, opt.Code, target)
	if !opt.Force {
		if s, ok := upToDate(j, id, opt); ok {
			o.Status, o.Stats = Current, s
			return o.linked(gate) // up to date, but its links may be missing
		}
	}
	table, err := compile.NewTable(ctx, object, opt.Code, target)
	if err != nil {
		return o.refused(err, opt.Strict)
	}
	if file, stats := opt.Remote.take(ctx, j.inCache, table, id, p); file != nil {
		o.Status, o.Stats = Fetched, stats
		return o.written(gate, file)
	}
	made, err := table.Compile(ctx, id)
	if err != nil {
		return o.refused(err, opt.Strict)
	}
	o.Status, o.Stats, o.Details = Built, made.Stats, made.Details
	return o.written(gate, made.Image.Bytes())
}

// written writes the job's eh_elf, and makes its links.
func (o *Outcome) written(gate *publisher, file []byte) *Outcome {
	if err := gate.write(o.Job, file); err != nil {
		return o.fail(err)
	}
	return o.linked(gate)
}

// Work returns the job's share of a build: the bytes of its unwind tables plus
// a constant per file.
func (j *Job) Work() int64 { return j.Weight + 1<<10 }

// fail makes the job a failure.
func (o *Outcome) fail(err error) *Outcome {
	o.Status, o.Err = Failed, err
	return o
}

// linked makes the job's links, and fails if that is not possible.
func (o *Outcome) linked(gate *publisher) *Outcome {
	if err := gate.link(o.Job); err != nil {
		return o.fail(err)
	}
	return o
}

// refused sets the outcome of an object that cannot be compiled: a failure if the
// user named it or if strict is set, otherwise skipped, as a file that a folder
// happens to hold. A damaged file is named in any case: err says what is wrong with
// it.
func (o *Outcome) refused(err error, strict bool) *Outcome {
	reason, none := skipReason(err)
	switch {
	case o.Given || reason == "" || strict && !none:
		return o.fail(err)
	case !none:
		o.Err = err
	}
	o.Status, o.Reason = Skipped, reason
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
	for _, kind := range []error{dwarfcfa.ErrNotELF, dwarfcfa.ErrNotX86_64, dwarfcfa.ErrNotLoadable,
		dwarfcfa.ErrNoUnwindInfo, compile.ErrNoContent, ErrNoKey} {
		if errors.Is(err, kind) {
			return kind.Error(), true
		}
	}
	return "", false
}
