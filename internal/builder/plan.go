package builder

import (
	"context"

	"github.com/ehasm/ehasm/internal/files/find"
)

// Plan is what a build is to do.
type Plan struct {
	Jobs    []*Job         // an input each, with its target
	Failed  []find.Problem // what the caller named and cannot be built, and two inputs with one target
	Notes   []find.Problem // what else is left out and deserves a line
	Skipped []find.Skip    // files of folders that have no unwind tables
}

// NewPlan finds the inputs at paths, and what from adds to them. The eh_elfs go into the cache; if cache is "", below
// the folder out; if that is "", too, beside their objects.
func NewPlan(ctx context.Context, paths []string, from find.Options, out, cache string) *Plan {
	found := find.Find(ctx, paths, from)
	p := &Plan{Failed: found.Problems, Notes: found.Notes, Skipped: found.Skipped}
	if cache == "" {
		var clashes []find.Problem
		p.Jobs, clashes = NewJobs(found.Inputs, out)
		p.Failed = append(p.Failed, clashes...)
		return p
	}
	if cache == SystemCache {
		// Root runs code from the cache of all users, so files that others can write stay out.
		var given, refused []find.Problem
		found.Inputs, given, refused = ForSystem(found.Inputs)
		p.Failed, p.Notes = append(p.Failed, given...), append(p.Notes, refused...)
	}
	p.Jobs = NewCacheJobs(found.Inputs)
	return p
}

// MakeTarget makes the folder that NewPlan gets as out or cache, if either is given.
func MakeTarget(out, cache string) error {
	switch {
	case cache != "":
		return MakeCache(cache)
	case out != "":
		return MakeFolder(out)
	}
	return nil
}
