// Package ondemand supplies what unwinds objects while a program is recorded or a recording is read: rows on demand,
// and for an object with many steps an eh_elf.
package ondemand

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/analysis/synth"
	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/profile/jit"
	"github.com/ehasm/ehasm/prove"
	"github.com/ehasm/ehasm/unwind"
)

// Maker supplies script and record with what unwinds objects: rows on demand, and for
// an object with many steps an eh_elf, which is prepared meanwhile: the one of the cache
// if it is proven, otherwise one compiled in memory.
type Maker struct {
	opt Options

	making sync.Mutex  // held to make rows from code, which takes memory: one object at a time
	ended  atomic.Bool // no more rows are made from code
	made   int64       // bytes of the files for which rows were made; with Background; making is held
	begun  time.Time
	limits *jit.Limits

	mu     sync.Mutex
	spent  time.Duration    // making rows from code
	waited time.Time        // when a step last began to wait for rows
	wants  map[string]error // objects to add to the cache, by path, with why the cached eh_elf is not used, or nil
}

// Options are the settings of a Maker.
type Options struct {
	Source dwarfcfa.Source // the cache has only tables of SourceAuto
	Keep   bool            // remember what the cache lacks, for FillCache; only with SourceAuto
	Symfs  string          // the folder in which recorded paths are looked up; "": /
	// TablesOnly makes no rows from the code of files. The cache has only eh_elfs with such rows, and is not used.
	TablesOnly bool
	// Background has rows made from code in the background, and bounds what is made.
	Background bool
	// AtOnce is the size in bytes of the largest file whose rows are made from code at once, with Background.
	AtOnce int64
	// Wait returns how long a step may wait for rows that are made in the background; nil: not at all.
	Wait func() time.Duration
	// Proof checks code that this process has not made; nil: prove.Image.
	Proof func(image []byte, table *dwarfcfa.Table) error
}

// New returns a Maker.
func New(opt Options) *Maker {
	_, err := builder.CacheFolder(os.Getenv)
	opt.Keep = opt.Keep && opt.usual() && err == nil
	if opt.Proof == nil {
		opt.Proof = func(image []byte, table *dwarfcfa.Table) error {
			_, err := prove.Image(image, table)
			return err
		}
	}
	return &Maker{opt: opt, wants: map[string]error{}, begun: time.Now(), limits: jit.NewLimits(0)}
}

// usual reports whether the rows are those that eh_elfs of the cache have.
func (o *Options) usual() bool { return o.Source == dwarfcfa.SourceAuto && !o.TablesOnly }

// End says that unwinding is over: no more rows are made from code.
func (d *Maker) End() { d.ended.Store(true) }

// Prepare is unwind.Options.Prepare.
func (d *Maker) Prepare(name string, file io.ReaderAt, size int64) ([]byte, unwind.Stepper, error) {
	object, err := dwarfcfa.NewObject(name, file, size)
	if err != nil {
		return nil, nil, err
	}
	var parts *synth.GoRows
	if !d.opt.TablesOnly {
		parts = synth.OpenGoRows(object)
	}
	// Elsewhere frame pointers are followed, which Go's functions without rows (parts) keep.
	makes := parts == nil && !d.opt.TablesOnly && !(d.opt.Background && size > largestMade)
	s := &rowStepper{note: func() { d.want(object, file, nil) }}
	rows, err := dwarfcfa.NewLazyTableMade(object, d.opt.Source, func() *dwarfcfa.Section {
		d.making.Lock()
		defer d.making.Unlock()
		if !makes || s.released || d.ended.Load() || d.opt.Background && d.made+size > mostMade {
			return nil
		}
		d.made += size
		s.release = func() { d.made -= size }
		defer d.spend(time.Now())
		return madeSection(object)
	})
	if err != nil {
		return nil, nil, err
	}
	if makes && d.opt.Background && size > d.opt.AtOnce {
		const bytesPerMiss = 256 << 10 // what is made of a large object for a few frames would take more memory than all else
		misses := 1 + size/bytesPerMiss
		if rows.EstimatedRows() == 0 { // each of its frames needs them
			misses = 1
		}
		var missed atomic.Int64
		rows.MakeInBackground(func() (bool, time.Duration) {
			if missed.Add(1) < misses || !d.affords() {
				return false, 0
			}
			return true, d.patience(size)
		})
	}
	estimated := rows.EstimatedRows()
	if parts != nil {
		rows.MakeParts(parts.At)
		estimated += parts.EstimatedRows()
	}
	if d.opt.usual() {
		s.code = &jit.File{Limits: d.limits, Read: func(addr uint64, b []byte) int { return object.ReadImage(dwarfcfa.Addr(addr), b) }}
	}
	steps := stepsPerRow
	if d.opt.Background {
		steps = stepsPerRowCold
	}
	s.making, s.rows, s.worth = &d.making, rows, int64(steps*cmp.Or(estimated, madeRows))
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

// Bounds on the time for which rows are made from code in the background: so much at once, and one part in so many of the
// recording.
const (
	leastTime = 2 * time.Second
	timeParts = 200
)

// affords reports whether there is time to make more rows from code.
func (d *Maker) affords() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.spent < leastTime+time.Since(d.begun)/timeParts
}

// patience returns how long a step waits for the rows of a file of size bytes: not at all if they would take longer, or if a step has
// just waited.
func (d *Maker) patience(size int64) time.Duration {
	const (
		bytesPerSecond = 4 << 20 // musl's libc, 0.7 MB, takes 60 to 180 ms
		waitParts      = 8       // the part of the time that steps wait
	)
	if d.opt.Wait == nil {
		return 0
	}
	wait := d.opt.Wait()
	if size > int64(wait.Seconds()*bytesPerSecond) {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.waited) < waitParts*wait {
		return 0
	}
	d.waited = time.Now()
	return wait
}

// spend counts the time since then as spent.
func (d *Maker) spend(since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spent += time.Since(since)
}

// madeSection makes rows for the code of an object that has none; nil if none can be
// made, which leaves the object's own.
func madeSection(object *dwarfcfa.Object) *dwarfcfa.Section {
	made, err := synth.Of(object, synth.Options{Mode: synth.Missing})
	if err != nil {
		return nil
	}
	return made.Section(object.Name())
}

// stepsPerRow is how many steps by rows on demand (about 100 ns each) take as long as compiling a row (about 250 ns). While a
// program is recorded, it has filled the processor's caches since the last sample, and a step takes 0.5 to 1 us.
const stepsPerRow, stepsPerRowCold = 3, 1

// madeRows is the estimated number of rows of an object that has no rows: the true
// number is known only once they are made.
const madeRows = 1000

// rowStepper takes steps by rows on demand.
type rowStepper struct {
	rows  *dwarfcfa.LazyTable
	code  *jit.File // for pcs without a row, also while rows are made from code; nil: a section was asked for, or tables only
	worth int64     // steps
	note  func()    // called when it has taken as many
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
	status := s.rows.Step(regs, mem, bias)
	if status != abi.StatusNoInfo || s.code == nil {
		return status
	}
	return s.code.Step(regs, mem, bias)
}

func (s *rowStepper) Took(steps int) bool {
	n := s.taken.Add(int64(steps))
	if n < s.worth || n-int64(steps) >= s.worth {
		return false
	}
	s.note()
	return true
}

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
	object, err := dwarfcfa.NewObject(name, file, size)
	if err != nil {
		return nil, err
	}
	opt := compile.Options{Dispatch: compile.Packed, Synth: compile.SynthMissing, Source: d.opt.Source}
	if d.opt.TablesOnly {
		opt.Synth = compile.SynthOff
	}
	target := compile.Target{Unproven: true, Transient: true}
	table, err := compile.NewTable(ctx, object, opt, target)
	if err != nil {
		return nil, err
	}
	if table.Report.Bounded {
		return nil, ErrBounded
	}
	image, info, ok := []byte(nil), elfout.Info{}, false
	if d.opt.usual() {
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

// want remembers to add an object's eh_elf to the cache, if possible; err says why the
// cached one is not used, and may be nil.
func (d *Maker) want(object *dwarfcfa.Object, file io.ReaderAt, err error) {
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

// has undoes want: the cached eh_elf is good.
func (d *Maker) has(object *dwarfcfa.Object, file io.ReaderAt) {
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
