package builder

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/preload"
	"github.com/ehasm/ehasm/internal/files/shown"
	"github.com/ehasm/ehasm/internal/files/trust"
)

// The cache holds an eh_elf per build-id, whatever the name of the object. It is
// one of the places where libehunwind looks.

// ErrNoBuildID says why an object cannot go into the cache.
var ErrNoBuildID = errors.New("no build-id to find it by in the cache")

// CacheFolder returns the user's cache of eh_elfs, by XDG_CACHE_HOME or HOME.
func CacheFolder(getenv func(string) string) (string, error) {
	base := getenv("XDG_CACHE_HOME")
	if base == "" {
		home := getenv("HOME")
		if home == "" {
			return "", errors.New("--cache: neither XDG_CACHE_HOME nor HOME is set")
		}
		base = filepath.Join(home, ".cache")
	}
	if !filepath.IsAbs(base) {
		return "", fmt.Errorf("--cache: %s: not an absolute path", shown.Name(base))
	}
	return filepath.Join(base, "ehasm", ".build-id"), nil
}

// KernelCopy returns the path of the cache's copy of the kernel's symbols, or "" if there is no cache.
func KernelCopy(getenv func(string) string) string {
	folder, err := CacheFolder(getenv)
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(folder), "kallsyms")
}

// CacheName returns the path, relative to the cache folder, of the eh_elf for a
// build-id.
func CacheName(buildID []byte) (string, error) {
	if len(buildID) < 2 { // the first byte names a folder
		return "", ErrNoBuildID
	}
	id := hex.EncodeToString(buildID)
	return filepath.Join(id[:2], id[2:]+abi.Suffix), nil
}

// NewCacheJobs makes a job for every input; the build-id, read later, gives the
// target. Objects with the same build-id share an eh_elf, so targets cannot
// clash.
func NewCacheJobs(inputs []*find.Input) []*Job {
	jobs := make([]*Job, len(inputs))
	for i, in := range inputs {
		jobs[i] = &Job{Input: in, Name: in.Names[0].Path}
	}
	return jobs
}

// intoCache gives the job its target.
func (j *Job) intoCache(cache string, buildID []byte) error {
	name, err := CacheName(buildID)
	if err != nil {
		return err
	}
	j.Target, j.cached = filepath.Join(cache, name), true
	return nil
}

// Fill builds the eh_elfs that the cache of opt lacks, for the paths and for what from adds to them. Files that cannot
// be compiled are told to p. It returns false if ctx ended before all were done.
func Fill(ctx context.Context, paths []string, from find.Options, opt Options, p Progress) bool {
	found := find.Find(ctx, paths, from)
	for _, problem := range slices.Concat(found.Problems, found.Notes) {
		p.Note(problem.Path, problem.Err)
	}
	return Build(ctx, NewCacheJobs(found.Inputs), opt, p) != nil
}

// FillForPrograms fills the user's cache for programs, and the libraries that they load when others are preloaded.
// Without a place for a cache it tells so and builds nothing. It returns false if ctx ended before all was done.
func FillForPrograms(ctx context.Context, paths, libraries []string, vdso bool, opt Options, p Progress) bool {
	var err error
	if opt.Cache, err = CacheFolder(os.Getenv); err == nil {
		err = trust.MkdirAll(opt.Cache)
	}
	if err != nil {
		p.Note("no eh_elf is built", err)
		return true
	}
	from := find.Options{Deps: true, VDSO: vdso, Loader: find.HostLoader(os.Getenv)}
	from.Loader.Preload = append(libraries, preload.Split(os.Getenv("LD_PRELOAD"))...)
	return Fill(ctx, paths, from, opt, p)
}
