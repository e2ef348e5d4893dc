package ondemand

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/unwind"
)

// This file builds, after a run, the eh_elfs that the run would have liked to find in the cache.

// cacheCode returns the options with which script and record fill the cache: tree
// dispatch, proven.
func cacheCode() compile.Options { return compile.Options{Synth: compile.SynthMissing} }

// Wants returns the paths of the objects that FillCache would add to the cache, each with why the eh_elf that is there
// is not used; nil: there is none.
func (d *Maker) Wants() map[string]error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.wants)
}

// FillCache builds the eh_elfs of compiled objects into the user's cache, proven, as build --cache
// does. It is for after the output is written. Eh_elfs that cannot be kept go to p and
// made again the next time. It ends with ctx.
func (d *Maker) FillCache(ctx context.Context, workers int, p builder.Progress) {
	wants := d.Wants()
	if len(wants) == 0 {
		return
	}
	folder, err := builder.CacheFolder(os.Getenv)
	if err == nil {
		err = WritableFolder(folder)
	}
	if err != nil {
		p.Note("no eh_elf is kept", err) // once, not for each object
		return
	}
	opt := builder.Options{Code: cacheCode(), Cache: folder, Workers: workers}
	// Those that are missing first; those that are there and not used must be written over, by Force.
	for _, again := range []bool{false, true} {
		var from find.Options
		var paths []string
		opt.Force = again
		for _, path := range slices.Sorted(maps.Keys(wants)) {
			switch err := wants[path]; {
			case (err != nil) != again:
				continue
			case err != nil:
				p.Note(path, fmt.Errorf("its eh_elf in the cache is not used, and made again: %w", err))
			}
			if path == unwind.VDSOName {
				from.VDSO = true
			} else {
				paths = append(paths, path)
			}
		}
		light, heavy := splitBySize(paths)
		for _, part := range [][]string{light, heavy} { // ctx may end it
			if (len(part) > 0 || from.VDSO) && !builder.Fill(ctx, part, from, opt, p) {
				return
			}
			from.VDSO = false
		}
	}
}

// splitBySize separates files that are compiled in a moment from larger ones: the small ones go first, since time may
// be short and most objects are small.
func splitBySize(paths []string) (light, heavy []string) {
	const most = 1 << 20 // bytes
	for _, path := range paths {
		if st, err := os.Stat(path); err == nil && st.Size() <= most {
			light = append(light, path)
		} else {
			heavy = append(heavy, path)
		}
	}
	return light, heavy
}

// WritableFolder makes a folder for this user alone and reports whether files can be
// made in it.
func WritableFolder(path string) error {
	if err := input.MkdirAll(path); err != nil {
		return err
	}
	f, err := os.CreateTemp(path, ".try")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
