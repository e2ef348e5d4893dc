package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/files/ehcache"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/inspect"

	"github.com/spf13/pflag"
)

// This file is cache: what the folder of eh_elfs holds, and how it shrinks. What is removed at all is decided by
// package ehcache; names of eh_elfs that stay come from package builder.

const cacheHelp = `Show how large the user's cache of eh_elfs is, or remove what was not used
lately.

Usage:
  ehasm cache [flags]
  ehasm cache --prune --only PATH...
`

const cacheMore = `build --cache, preload, record and script keep eh_elfs there, one for each
build-id (for files without one, each .eh_frame_hdr), so each release of a
library adds one. Only --prune removes them. Running programs keep what they
have loaded; record, script and preload make again what they miss later.

A file counts as used when it is read, to within a day. File systems that are
mounted with noatime do not record that: there its age counts, and the first
line says so.

With --only the cache keeps the eh_elfs of the files at the PATHs and below,
however long unused, and of the running kernel's vDSO; it removes all others. If
a PATH cannot be read, cache removes nothing. So root keeps the cache of all
users in step with installed packages:
  ehasm build --system /usr/bin /usr/lib
  ehasm cache --system --prune --only /usr/bin /usr/lib
That cache also keeps what 'build --system' and 'preload --system' have built,
while the files exist. cache --system lists their paths; the list is
/usr/lib/ehasm/kept, to be edited by hand.

Examples:
  ehasm cache
  ehasm cache --prune
  ehasm cache --prune --unused 7 --max-size 200M
`

// day is the unit of --unused.
const day = 24 * time.Hour

// cacheOptions holds the flags of cache.
type cacheOptions struct {
	prune  bool
	json   bool
	system bool     // the cache of all users
	only   []string // paths of the objects whose eh_elfs stay; nil: all
	limits ehcache.Limits
}

// cacheVerb is the verb cache. Only --prune removes anything; the flags that bound it need it.
func cacheVerb() verb {
	v := verb{name: "cache", brief: "show or clear the user's cache of eh_elfs", help: cacheHelp, more: cacheMore}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		opt := &cacheOptions{}
		fs.BoolVar(&opt.prune, "prune", false, "remove files not used for --unused, then down to --max-size")
		// what is removed too early is made again when it is missed
		unused := fs.Uint("unused", 90, "with --prune: remove files not used for `DAYS`; 0: no limit")
		sizeFlag(fs, "max-size", "with --prune: keep at most `SIZE` bytes, such as 200M", 1,
			func(n uint64) { opt.limits.Bytes = int64(n) })
		only := fs.Bool("only", false, "with --prune: keep only the eh_elfs of files at the PATHs and below")
		fs.BoolVar(&opt.system, "system", false, "the cache of all users, "+builder.SystemCache)
		fs.BoolVar(&opt.json, "json", false, "print the result as JSON")
		return func(ctx context.Context, args []string, c *console) int {
			switch {
			case !*only && len(args) > 0:
				return v.misuse(c, fmt.Errorf("unexpected argument %q", args[0]))
			case *only && len(args) == 0:
				return v.misuse(c, errors.New("--only: want at least one PATH"))
			case !opt.prune && (*only || fs.Changed("unused") || fs.Changed("max-size")):
				return v.misuse(c, errors.New("--only, --unused and --max-size need --prune"))
			}
			if *only {
				// With --only, disuse is no reason to remove a file, unless --unused is given too.
				opt.only = args
				if !fs.Changed("unused") {
					*unused = 0
				}
			}
			// A hundred years: a Duration holds 292, and more days would overflow it.
			const century = 36500
			opt.limits.Unused = time.Duration(min(*unused, century)) * day
			return cache(ctx, opt, c)
		}
	}
	return v
}

// cache runs the verb: it opens the cache, looks, removes if wanted, and prints the result.
func cache(ctx context.Context, opt *cacheOptions, c *console) int {
	// Without --prune, a cache that cannot be found is an error, too: $HOME and $XDG_CACHE_HOME may both be missing.
	path, err := builder.SystemCache, error(nil)
	if !opt.system {
		path, err = builder.CacheFolder(os.Getenv)
	}
	// path ends in .build-id, the folder that gdb and elfutils would name; people know the cache by the one above.
	r := inspect.Cache{Folder: filepath.Dir(path)}
	if err == nil && opt.system {
		r.Kept, err = builder.Kept(path)
	}
	if err == nil && opt.only != nil {
		opt.limits.Only, err = builder.CacheNames(ctx, slices.Concat(opt.only, r.Kept))
	}
	if err != nil {
		c.fail("cache", err)
		return exitFailed
	}
	folder, err := ehcache.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // nothing was ever kept
	case err != nil:
		c.fail(path, err)
		return exitFailed
	default:
		defer folder.Close()
		if err := r.Take(folder, opt.limits, opt.prune); err != nil {
			c.fail(path, err)
		}
	}
	if opt.json {
		output.JSON(c.out, r)
		return exitDone
	}
	r.Print(c.out, opt.prune)
	return exitDone
}
