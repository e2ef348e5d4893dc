package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/find"
)

// The cache holds an eh_elf per build-id, whatever the name of the object. It is
// one of the places where libehunwind looks.

// errNoBuildID says why an object cannot go into the cache.
var errNoBuildID = errors.New("no build-id to find it by in the cache")

// cacheFolder returns the user's cache of eh_elfs.
func cacheFolder(getenv func(string) string) (string, error) {
	base := getenv("XDG_CACHE_HOME")
	if base == "" {
		home := getenv("HOME")
		if home == "" {
			return "", errors.New("--cache: neither XDG_CACHE_HOME nor HOME is set")
		}
		base = filepath.Join(home, ".cache")
	}
	if !filepath.IsAbs(base) {
		return "", fmt.Errorf("--cache: %s: not an absolute path", quote(base))
	}
	return filepath.Join(base, "ehasm", ".build-id"), nil
}

// useCache sets the options to write the eh_elfs into the cache.
func (opt *buildOptions) useCache(getenv func(string) string) (err error) {
	if opt.out != "" {
		return errors.New("--cache and --output exclude each other")
	}
	opt.cache, err = cacheFolder(getenv)
	return err
}

// teller returns how a verb that does more than fill the cache reports eh_elfs
// that could not be built: not as failures.
func (opt *buildOptions) teller(c *console) func(name string, err error) {
	if opt.quiet {
		return func(string, error) {}
	}
	return c.note
}

// fillCache builds the eh_elfs that the cache lacks for the paths and for what opt
// adds to them. It returns false if it was interrupted.
func (opt *buildOptions) fillCache(ctx context.Context, paths []string, c *console, tell func(name string, err error)) bool {
	found := find.Find(ctx, paths, opt.Options)
	for _, p := range slices.Concat(found.Problems, found.Notes) {
		tell(p.Path, p.Err)
	}
	return compileJobs(ctx, newCacheJobs(found.Inputs), opt, c, tell) != nil
}

// cacheName returns the path, relative to the cache folder, of the eh_elf for a
// build-id.
func cacheName(buildID []byte) (string, error) {
	if len(buildID) < 2 { // the first byte names a folder
		return "", errNoBuildID
	}
	id := hex.EncodeToString(buildID)
	return filepath.Join(id[:2], id[2:]+abi.Suffix), nil
}

// newCacheJobs makes a job for every input; the build-id, read later, gives the
// target. Objects with the same build-id share an eh_elf, so targets cannot
// clash.
func newCacheJobs(inputs []*find.Input) []*job {
	jobs := make([]*job, len(inputs))
	for i, in := range inputs {
		jobs[i] = &job{Input: in, name: in.Names[0].Path}
	}
	return jobs
}

// intoCache gives the job its target.
func (j *job) intoCache(cache string, buildID []byte) error {
	name, err := cacheName(buildID)
	if err != nil {
		return err
	}
	j.target, j.cached = filepath.Join(cache, name), true
	return nil
}
