// Package rows supplies the rows by which objects are unwound before they have an eh_elf: each is interpreted when it
// is first needed, and where an object has none, they are made from its code.
package rows

import (
	"cmp"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/analysis/synth"
	"github.com/ehasm/ehasm/internal/rows/jit"
	"github.com/ehasm/ehasm/unwind"
)

// This file weighs costs: rows interpreted on demand at once, rows from code when an object has none and there is time,
// and a hint when an eh_elf would be worth its making. RATIONALE's "Two ways to take a step in a recording" has the
// figures.

// Maker supplies rows on demand. Prepare is for unwind.Options.
type Maker struct {
	opt    Options
	limits *jit.Limits
	begun  time.Time

	making sync.Mutex  // held to make rows from code, which takes memory: one object at a time
	ended  atomic.Bool // no more rows are made from code
	bytes  int64       // bytes of the files for which rows were made; with Background; making is held

	mu     sync.Mutex
	spent  time.Duration // making rows from code
	waited time.Time     // when a step last began to wait for rows
}

// Options are the settings of a Maker.
type Options struct {
	Source dwarfcfa.Source
	// TablesOnly makes no rows from the code of files.
	TablesOnly bool
	// Background has rows made from code in the background, and bounds what is made.
	Background bool
	// AtOnce is the size in bytes of the largest file whose rows are made from code at once, with Background.
	AtOnce int64
	// Wait returns how long a step may wait for rows that are made in the background; nil: not at all.
	Wait func() time.Duration
	// Worth is called, once, when an object has taken as many steps as an eh_elf is worth. May be nil.
	Worth func(object *dwarfcfa.File, file io.ReaderAt)
}

// New returns a Maker.
func New(opt Options) *Maker {
	if opt.Worth == nil {
		opt.Worth = func(*dwarfcfa.File, io.ReaderAt) {}
	}
	return &Maker{opt: opt, begun: time.Now(), limits: jit.NewLimits(0)}
}

// Usual reports whether the rows are those that eh_elfs have by default.
func (o *Options) Usual() bool { return o.Source == dwarfcfa.SourceAuto && !o.TablesOnly }

// End says that unwinding is over: no more rows are made from code.
func (d *Maker) End() { d.ended.Store(true) }

// Prepare is unwind.Options.Prepare: it gives a Stepper for the file, never an image. file must stay readable until the
// Stepper is released. The error is about the file's ELF headers or sections; an object without rows is none.
func (d *Maker) Prepare(name string, file io.ReaderAt, size int64) ([]byte, unwind.Stepper, error) {
	object, err := dwarfcfa.NewFile(name, file, size)
	if err != nil {
		return nil, nil, err
	}
	var parts *synth.GoRows
	if !d.opt.TablesOnly {
		parts = synth.OpenGoRows(object)
	}
	// Elsewhere frame pointers are followed, which Go's functions without rows (parts) keep.
	makes := parts == nil && !d.opt.TablesOnly && !(d.opt.Background && size > LargestMade)
	s := &rowStepper{note: func() { d.opt.Worth(object, file) }}
	rows, err := dwarfcfa.NewLazyTableMade(object, d.opt.Source, func() *dwarfcfa.Section {
		d.making.Lock()
		defer d.making.Unlock()
		if !makes || s.released || d.ended.Load() || d.opt.Background && d.bytes+size > mostMade {
			return nil
		}
		d.bytes += size
		s.release = func() { d.bytes -= size }
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
	if d.opt.Usual() {
		s.code = &jit.File{Limits: d.limits,
			Read: func(addr uint64, b []byte) int { return object.ReadImage(dwarfcfa.Addr(addr), b) }}
	}
	steps := stepsPerRow
	if d.opt.Background {
		steps = stepsPerRowCold
	}
	s.making, s.rows, s.worth = &d.making, rows, int64(steps*cmp.Or(estimated, madeRows))
	return nil, s, nil
}

// Bounds on what a recording does for objects meanwhile, in bytes of their files. The analysis of code takes ten times
// as much memory, compiling about as much, and rows made from code are kept; on a machine that builds programs, each is
// another file. Beyond these bounds frame pointers are followed, and rows interpreted.
const (
	LargestMade = 32 << 20 // a file
	mostMade    = 64 << 20 // in all
)

// Bounds on the time for which rows are made from code in the background: two seconds at once, and 0.5 % of the
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

// patience returns how long a step waits for the rows of a file of size bytes: not at all if they would take longer, or
// if a step has just waited.
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
func madeSection(object *dwarfcfa.File) *dwarfcfa.Section {
	made, err := synth.Of(object, synth.Options{Mode: synth.Missing})
	if err != nil {
		return nil
	}
	return made.Section(object.Name())
}

// stepsPerRow is how many steps by rows on demand (about 100 ns each) take as long as compiling a row (about 250 ns).
// While a program is recorded, it has filled the processor's caches since the last sample, and a step takes 0.5 to 1
// us.
const stepsPerRow, stepsPerRowCold = 3, 1

// madeRows is the estimated number of rows of an object that has no rows: the true
// number is known only once they are made.
const madeRows = 1000

// rowStepper takes steps by rows on demand.
type rowStepper struct {
	rows *dwarfcfa.LazyTable
	// for pcs without a row, also while rows are made from code; nil: a section was asked for, or tables only
	code  *jit.File
	worth int64  // steps
	note  func() // called when it has taken as many
	taken atomic.Int64

	making   *sync.Mutex // for what is below
	released bool
	release  func() // nil: no rows were made from code
}

// Release gives back what made rows count for: see mostMade. It does not wait for rows that are being made.
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

// Step steps by the table's row, and where it has none by rows made from code. A row that refuses ends the walk: made
// rows only fill gaps.
func (s *rowStepper) Step(regs *abi.Regs, mem *ehelf.Memory, bias uint64) abi.Status {
	status := s.rows.Step(regs, mem, bias)
	if status != abi.StatusNoInfo || s.code == nil {
		return status
	}
	return s.code.Step(regs, mem, bias)
}

// Took counts steps, and reports once that compiling pays: to the one call that crosses the border, whatever others
// count at the same time.
func (s *rowStepper) Took(steps int) bool {
	n := s.taken.Add(int64(steps))
	if n < s.worth || n-int64(steps) >= s.worth {
		return false
	}
	s.note()
	return true
}
