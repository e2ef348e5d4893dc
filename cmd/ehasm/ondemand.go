package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/analysis/synth"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/trust"
	"github.com/ehasm/ehasm/prove"
	"github.com/ehasm/ehasm/unwind"
)

// onDemand supplies script and record with what unwinds objects: rows on demand, and for
// an object with many steps an eh_elf, which is prepared meanwhile: the one of the cache
// if it is proven, otherwise one compiled in memory.
type onDemand struct {
	source     dwarfcfa.Source                                 // the cache has only tables of SourceAuto
	keep       bool                                            // fill the cache
	symfs      string                                          // the folder in which recorded paths are looked up; "": /
	background bool                                            // rows are made from code in the background
	proof      func(image []byte, table *dwarfcfa.Table) error // of code that this process has not made

	making sync.Mutex  // held to make rows from code, which takes memory: one object at a time
	ended  atomic.Bool // no more rows are made from code
	made   int64       // bytes of the files for which rows were made; with background; making is held

	mu    sync.Mutex
	wants map[string]error // objects to add to the cache, by path, with why the cached eh_elf is not used, or nil
}

func newOnDemand(keep bool) *onDemand {
	return &onDemand{keep: keep, wants: map[string]error{}, proof: func(image []byte, table *dwarfcfa.Table) error {
		_, err := prove.Image(image, table)
		return err
	}}
}

// prepare is unwind.Options.Prepare.
func (d *onDemand) prepare(name string, file io.ReaderAt, size int64) ([]byte, unwind.Stepper, error) {
	object, err := dwarfcfa.NewObject(name, file, size)
	if err != nil {
		return nil, nil, err
	}
	s := &rowStepper{note: func() { d.want(object, file, nil) }}
	rows, err := dwarfcfa.NewLazyTableMade(object, d.source, func() *dwarfcfa.Section {
		d.making.Lock()
		defer d.making.Unlock()
		if s.released || d.ended.Load() || d.background && (size > largestMade || d.made+size > mostMade) {
			return nil // frame pointers are followed there
		}
		d.made += size
		s.release = func() { d.made -= size }
		return madeSection(object)
	})
	if err != nil {
		return nil, nil, err
	}
	if d.background {
		const bytesPerMiss = 256 << 10 // what is made of a large object for a few frames would take more memory than all else
		rows.MakeInBackground(1 + size/bytesPerMiss)
	}
	s.making, s.rows, s.worth = &d.making, rows, stepsPerRow*int64(cmp.Or(rows.EstimatedRows(), madeRows))
	return nil, s, nil
}

// Bounds on what a recording does for objects meanwhile, in bytes of their files. The analysis of code takes ten times as
// much memory, compiling about as much, and rows made from code are kept; on a machine that builds programs, each is another
// file. Beyond these bounds frame pointers are followed, and rows interpreted.
const (
	largestMade     = 32 << 20
	mostMade        = 64 << 20 // in all
	largestCompiled = 16 << 20
)

// madeSection makes rows for the code of an object that has none; nil if none can be
// made, which leaves the object's own.
func madeSection(object *dwarfcfa.Object) *dwarfcfa.Section {
	made, err := synth.Of(object, synth.Options{Mode: synth.Missing})
	if err != nil {
		return nil
	}
	return made.Section(object.Name())
}

// stepsPerRow is how many steps by rows on demand (about 100 ns each) take as long as
// compiling a row (about 250 ns).
const stepsPerRow = 3

// madeRows is the estimated number of rows of an object that has no rows: the true
// number is known only once they are made.
const madeRows = 1000

// rowStepper takes steps by rows on demand.
type rowStepper struct {
	rows  *dwarfcfa.LazyTable
	worth int64  // steps
	note  func() // called when it has taken as many
	taken atomic.Int64

	making   *sync.Mutex // for what is below
	released bool
	release  func() // nil: no rows were made from code
}

// Release gives back what made rows count for: see mostMade.
func (s *rowStepper) Release() {
	go func() { // they may be made right now
		s.making.Lock()
		defer s.making.Unlock()
		s.released = true
		if s.release != nil {
			s.release()
		}
	}()
}

func (s *rowStepper) Step(regs *abi.Regs, mem *ehelf.Memory, bias uint64) abi.Status {
	return s.rows.Step(regs, mem, bias)
}

func (s *rowStepper) Took(steps int) bool {
	n := s.taken.Add(int64(steps))
	if n < s.worth || n-int64(steps) >= s.worth {
		return false
	}
	s.note()
	return true
}

// errBounded says why an object is not compiled: its eh_elf would lack rows that
// the table on demand has.
var errBounded = errors.New("too many rows for one eh_elf")

// errLarge says why a recording does not compile an object meanwhile.
var errLarge = errors.New("too large to be compiled meanwhile")

// ehElf returns the eh_elf of the cache if it is proven to mean the object's table.
// Otherwise it compiles the object quickly, with packed dispatch and without a proof.
func (d *onDemand) ehElf(ctx context.Context, name string, file io.ReaderAt, size int64) ([]byte, error) {
	if d.background && size > largestCompiled {
		return nil, errLarge
	}
	object, err := dwarfcfa.NewObject(name, file, size)
	if err != nil {
		return nil, err
	}
	opt := compile.Options{Dispatch: compile.Packed, Synth: compile.SynthMissing, Source: d.source}
	target := compile.Target{Unproven: true, Transient: true}
	table, err := compile.NewTable(ctx, object, opt, target)
	if err != nil {
		return nil, err
	}
	if table.Report.Bounded {
		return nil, errBounded
	}
	image, info, ok := []byte(nil), elfout.Info{}, false
	if d.source == dwarfcfa.SourceAuto {
		image, info, ok = readCached(cachePath(object.BuildID()), object.BuildID())
	}
	if ok {
		err := d.proof(image, table.Table)
		asWanted := compile.MadeWith(info, cacheOptions().code) && compile.StatsOf(info).Verified
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
	id, err := compile.Identify(object, opt, target)
	if err != nil {
		return nil, err
	}
	made, err := table.Compile(ctx, id)
	if err != nil {
		return nil, err
	}
	return made.Image.Bytes(), nil
}

// cacheOptions returns the options with which script and record fill the cache: tree
// dispatch, proven.
func cacheOptions() *buildOptions {
	return &buildOptions{code: compile.Options{Synth: compile.SynthMissing}}
}

// want remembers to add an object's eh_elf to the cache, if possible; err says why the
// cached one is not used, and may be nil.
func (d *onDemand) want(object *dwarfcfa.Object, file io.ReaderAt, err error) {
	path := pathOf(object, file)
	if !d.keep || path == "" || cachePath(object.BuildID()) == "" || !d.believed(object.Name(), path) {
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
func (d *onDemand) believed(name, path string) bool {
	if path == unwind.VDSOName {
		return true
	}
	place := name
	if d.symfs != "" {
		place = filepath.Join(d.symfs, name)
	}
	if path != place && path != strings.TrimSuffix(place, " (deleted)") {
		return false
	}
	f, err := trust.Open(path)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// has undoes want: the cached eh_elf is good.
func (d *onDemand) has(object *dwarfcfa.Object, file io.ReaderAt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.wants, pathOf(object, file))
}

// pathOf returns where an object is read from, or "" if it has no path.
func pathOf(object *dwarfcfa.Object, file io.ReaderAt) string {
	if f, ok := file.(interface{ Name() string }); ok {
		return f.Name()
	}
	if object.Name() == unwind.VDSOName {
		return unwind.VDSOName
	}
	return ""
}

// fillCache builds the eh_elfs of compiled objects into the cache, proven, as build --cache
// does. It runs after the output is written. Eh_elfs that cannot be kept are reported and
// made again the next time.
func (d *onDemand) fillCache(ctx context.Context, workers int, quiet bool, c *console) {
	d.mu.Lock()
	wants := maps.Clone(d.wants)
	d.mu.Unlock()
	if len(wants) == 0 {
		return
	}
	opt := cacheOptions()
	opt.jobs, opt.quiet = workers, quiet
	tell := opt.teller(c)
	err := opt.useCache(os.Getenv)
	if err == nil {
		err = writableFolder(opt.cache)
	}
	if err != nil {
		tell("no eh_elf is kept", err) // once, not for each object
		return
	}
	for _, again := range []bool{false, true} {
		var paths []string
		opt.force, opt.VDSO = again, false
		for _, path := range slices.Sorted(maps.Keys(wants)) {
			switch err := wants[path]; {
			case (err != nil) != again:
				continue
			case err != nil:
				tell(path, fmt.Errorf("its eh_elf in the cache is not used, and made again: %w", err))
			}
			if path == unwind.VDSOName {
				opt.VDSO = true
			} else {
				paths = append(paths, path)
			}
		}
		light, heavy := splitBySize(paths)
		for _, part := range [][]string{light, heavy} { // ctx may end it
			if (len(part) > 0 || opt.VDSO) && !opt.fillCache(ctx, part, c, tell) {
				return
			}
			opt.VDSO = false
		}
	}
}

// splitBySize separates files that are compiled in a moment from larger ones.
func splitBySize(paths []string) (light, heavy []string) {
	const most = 1 << 20
	for _, path := range paths {
		if st, err := os.Stat(path); err == nil && st.Size() <= most {
			light = append(light, path)
		} else {
			heavy = append(heavy, path)
		}
	}
	return light, heavy
}

// writableFolder makes a folder for this user alone and reports whether files can be
// made in it.
func writableFolder(path string) error {
	if err := trust.MkdirAll(path); err != nil {
		return err
	}
	f, err := os.CreateTemp(path, ".try")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// cachePath returns the path of the cached eh_elf for a build-id, or "" if it
// cannot have one.
func cachePath(buildID []byte) string {
	folder, err := cacheFolder(os.Getenv)
	if err != nil {
		return ""
	}
	name, err := cacheName(buildID)
	if err != nil {
		return ""
	}
	return filepath.Join(folder, name)
}

// readCached reads an eh_elf of the cache if no other user can have written it and its
// note has the build-id of its name.
func readCached(path string, buildID []byte) ([]byte, elfout.Info, bool) {
	none := elfout.Info{}
	if path == "" {
		return nil, none, false
	}
	f, err := trust.Open(path) // its code is run
	if err != nil {
		return nil, none, false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() > maxCached {
		return nil, none, false
	}
	image := make([]byte, st.Size())
	if n, err := f.ReadAt(image, 0); n < len(image) && err != nil {
		return nil, none, false
	}
	info, err := elfout.ReadInfo(bytes.NewReader(image)) // from the bytes that are proven, not from a file that may change
	if err != nil || info.Note.Version != abi.Version || !bytes.Equal(info.Note.BuildID, buildID) {
		return nil, none, false
	}
	return image, info, true
}

// maxCached bounds what readCached reads, in bytes.
const maxCached = 1 << 31

// hostVDSO returns the vDSO of the running kernel.
func hostVDSO(ctx context.Context) ([]byte, error) {
	found := find.Find(ctx, nil, find.Options{VDSO: true})
	for _, in := range found.Inputs {
		if in.Data != nil {
			return bytes.Clone(in.Data), nil
		}
	}
	for _, p := range found.Problems {
		return nil, p.Err
	}
	return nil, errors.New("no vDSO")
}
