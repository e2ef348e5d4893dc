package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/files/ehcache"
	"github.com/ehasm/ehasm/internal/files/jsonout"
	"github.com/ehasm/ehasm/internal/inspect"

	"github.com/spf13/pflag"
)

const cacheHelp = `Show how large the user's cache of eh_elfs is, or remove what was not used lately.

Usage:
  ehasm cache [flags]
`

const cacheMore = `build --cache, preload, record and script keep eh_elfs there, one for each build-id, so each
release of a library adds one. Only --prune removes them. Running programs keep what they
have loaded; record, script and preload make again what they miss later.

A file counts as used when it is read, to within a day. File systems that are mounted with
noatime do not record that: there its age counts, and the first line says so.

Examples:
  ehasm cache
  ehasm cache --prune
  ehasm cache --prune --unused 7 --max-size 200M
`

const day = 24 * time.Hour

// cacheOptions holds the flags of cache.
type cacheOptions struct {
	prune  bool
	json   bool
	limits ehcache.Limits
}

func cacheVerb() verb {
	v := verb{name: "cache", brief: "show or clear the user's cache of eh_elfs", help: cacheHelp, more: cacheMore}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		opt := &cacheOptions{}
		fs.BoolVar(&opt.prune, "prune", false, "remove files not used for --unused, then down to --max-size")
		unused := fs.Uint("unused", 90, "with --prune: remove files not used for `DAYS`; 0: no limit")
		size := fs.String("max-size", "", "with --prune: keep at most `SIZE` bytes, such as 200M")
		fs.BoolVar(&opt.json, "json", false, "print the result as JSON")
		return func(_ context.Context, args []string, c *console) int {
			if len(args) > 0 {
				return v.misuse(c, fmt.Errorf("unexpected argument %q", args[0]))
			}
			if !opt.prune && (fs.Changed("unused") || fs.Changed("max-size")) {
				return v.misuse(c, errors.New("--unused and --max-size need --prune"))
			}
			if *size != "" {
				bytes, err := parseSize(*size)
				if err != nil {
					return v.misuse(c, fmt.Errorf("--max-size %w", err))
				}
				opt.limits.Bytes = int64(bytes)
			}
			const century = 36500
			opt.limits.Unused = time.Duration(min(*unused, century)) * day
			return cache(opt, c)
		}
	}
	return v
}

func cache(opt *cacheOptions, c *console) int {
	path, err := builder.CacheFolder(os.Getenv)
	if err != nil {
		c.fail("cache", err)
		return exitFailed
	}
	r := inspect.Cache{Folder: filepath.Dir(path)}
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
		jsonout.Write(c.out, r)
		return exitDone
	}
	r.Print(c.out, opt.prune)
	return exitDone
}
