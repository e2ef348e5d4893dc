// Package ondemand supplies what unwinds objects while a program is recorded or a recording is read: rows on demand,
// and for an object with many steps an eh_elf.
package ondemand

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/rows"
	"github.com/ehasm/ehasm/prove"
	"github.com/ehasm/ehasm/unwind"
)

// Maker supplies script and record with what unwinds objects: rows on demand, and for
// an object with many steps an eh_elf, which is prepared meanwhile: the one of the cache
// if it is proven, otherwise one compiled in memory.
type Maker struct {
	*rows.Maker
	opt Options

	mu    sync.Mutex
	wants map[string]error // objects to add to the cache, by path, with why the cached eh_elf is not used, or nil
}

// Options are the settings of a Maker. The cache has only tables of SourceAuto with rows made from code: it is not used
// for others.
type Options struct {
	rows.Options        // without Worth
	Keep         bool   // remember what the cache lacks, for FillCache
	Symfs        string // the folder in which recorded paths are looked up; "": /
	// Proof checks code that this process has not made; nil: prove.Image.
	Proof func(image []byte, table *dwarfcfa.Table) error
}

// New returns a Maker.
func New(opt Options) *Maker {
	_, err := builder.CacheFolder(os.Getenv)
	opt.Keep = opt.Keep && opt.Usual() && err == nil
	if opt.Proof == nil {
		opt.Proof = func(image []byte, table *dwarfcfa.Table) error {
			_, err := prove.Image(image, table)
			return err
		}
	}
	d := &Maker{opt: opt, wants: map[string]error{}}
	opt.Worth = func(object *dwarfcfa.File, file io.ReaderAt) { d.want(object, file, nil) }
	d.Maker = rows.New(opt.Options)
	return d
}

// largestCompiled is the size in bytes of the largest file that a recording compiles meanwhile: compiling takes about
// ten times as much memory. Rows of larger ones are interpreted.
const largestCompiled = 16 << 20

// ErrBounded says why an object is not compiled: its eh_elf would lack rows that
// the table on demand has.
var ErrBounded = errors.New("too many rows for one eh_elf")

// ErrLarge says why a recording does not compile an object meanwhile.
var ErrLarge = errors.New("too large to be compiled meanwhile")

// EhElf, for unwind.Options.Compile, returns the eh_elf of the cache if it is proven to mean the object's table.
// Otherwise it compiles the object quickly, with packed dispatch and without a proof.
func (d *Maker) EhElf(ctx context.Context, name string, file io.ReaderAt, size int64) ([]byte, error) {
	if d.opt.Background && size > largestCompiled {
		return nil, ErrLarge
	}
	object, err := dwarfcfa.NewFile(name, file, size)
	if err != nil {
		return nil, err
	}
	opt := d.code()
	target := compile.Target{Unproven: true, Transient: true}
	table, err := compile.NewTable(ctx, object, opt, target)
	if err != nil {
		return nil, err
	}
	if table.Report.Bounded {
		return nil, ErrBounded
	}
	image, info, ok := []byte(nil), elfout.Info{}, false
	if d.opt.Usual() {
		image, info, ok = cached(object)
	}
	if ok {
		err := d.opt.Proof(image, table.Table)
		asWanted := compile.MadeWith(info, cacheCode()) && compile.StatsOf(info).Verified
		if err == nil && asWanted {
			d.has(object, file)
		}
		if err == nil {
			return image, nil
		}
		if asWanted { // else it may mean another table
			d.want(object, file, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	made, err := table.Compile(ctx, compile.Identify(object, opt, target))
	if err != nil {
		return nil, err
	}
	return made.Image.Bytes(), nil
}

// want remembers to add an object's eh_elf to the cache, if possible; err says why the cached one is not used, and may
// be nil. Nothing is built yet: a recording has other work.
func (d *Maker) want(object *dwarfcfa.File, file io.ReaderAt, err error) {
	path := pathOf(object, file)
	if !d.opt.Keep || path == "" || len(builder.NamesOf(object)) == 0 || !d.believed(object.Name(), path) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wants[path] = err
}

// believed reports whether the eh_elf of the file at path, recorded as name, may go into the
// cache. The cache is looked up by build-id alone, and the writer of a file chooses its
// build-id, which may be another object's. So the file must be at its recorded path, and no user
// but root and the user may have been able to write it. Files that perf and debuginfod keep by
// build-id may come from anywhere.
func (d *Maker) believed(name, path string) bool {
	if path == unwind.VDSOName {
		return true
	}
	place := name
	if d.opt.Symfs != "" {
		place = filepath.Join(d.opt.Symfs, name)
	}
	if path != place && path != strings.TrimSuffix(place, " (deleted)") {
		return false
	}
	return input.CheckTrusted(path) == nil
}

// has undoes want: the cached eh_elf is good. It was wanted as soon as its object was worth one, before the cache was
// read.
func (d *Maker) has(object *dwarfcfa.File, file io.ReaderAt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.wants, pathOf(object, file))
}

// pathOf returns where an object is read from, or "" if it has no path: its image is from memory. The vDSO is known by
// name.
func pathOf(object *dwarfcfa.File, file io.ReaderAt) string {
	if f, ok := file.(interface{ Name() string }); ok {
		return f.Name()
	}
	if object.Name() == unwind.VDSOName {
		return unwind.VDSOName
	}
	return ""
}
