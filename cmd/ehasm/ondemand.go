package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/find"
	"github.com/ehasm/ehasm/internal/trust"
	"github.com/ehasm/ehasm/synth"
	"github.com/ehasm/ehasm/unwind"
)

// onDemand gives script what the objects of a recording are unwound by: the eh_elf of
// the cache where it has one, else their rows on demand, and where many steps are taken
// in an object, an eh_elf that is compiled meanwhile.
type onDemand struct {
	keep bool // fill the cache

	mu    sync.Mutex
	paths []string // objects that were worth compiling
	vdso  bool     // so was the vDSO
}

// prepare is unwind.Options.Prepare.
func (d *onDemand) prepare(name string, file io.ReaderAt, size int64) ([]byte, unwind.Stepper, error) {
	object, err := dwarfcfa.NewObject(name, file, size)
	if err != nil {
		return nil, nil, err
	}
	if image, ok := readCached(cachePath(object.BuildID()), object.BuildID(), d.keep); ok {
		return image, nil, nil
	}
	rows, err := dwarfcfa.NewLazyTableMade(object, dwarfcfa.SourceAuto, func() *dwarfcfa.Section { return madeSection(object) })
	if err != nil {
		return nil, nil, err
	}
	worth := stepsPerRow * int64(cmp.Or(rows.EstimatedRows(), madeRows))
	return nil, &rowStepper{rows: rows, worth: worth, note: func() { d.note(object, file) }}, nil
}

// madeSection makes rows for the code of an object that has none; nil where none can be
// made, which leaves the object's own.
func madeSection(object *dwarfcfa.Object) *dwarfcfa.Section {
	made, err := synth.Of(object, synth.Options{Mode: synth.Missing})
	if err != nil {
		return nil
	}
	return made.Section(object.Name())
}

// stepsPerRow is how many steps by rows on demand (some 100 ns) take the time in which
// a row is compiled (some 250 ns).
const stepsPerRow = 3

// madeRows is how many rows an object without any of its own is taken to get: that is not known
// before they are made.
const madeRows = 1000

// rowStepper takes steps by rows on demand.
type rowStepper struct {
	rows  *dwarfcfa.LazyTable
	worth int64  // steps
	note  func() // called when it has taken as many
	taken atomic.Int64
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

// errBounded is why an object is not compiled: its eh_elf would have no rows where
// the rows on demand are.
var errBounded = errors.New("too many rows for one eh_elf")

// ehElf compiles an object the quick way, with packed dispatch and without a proof
// against the table.
func (d *onDemand) ehElf(ctx context.Context, name string, file io.ReaderAt, size int64) ([]byte, error) {
	object, err := dwarfcfa.NewObject(name, file, size)
	if err != nil {
		return nil, err
	}
	opt := &buildOptions{noVerify: true, dispatch: plan.DispatchPacked, synth: synth.Missing}
	id := identity{name: filepath.Base(name), buildID: object.BuildID(), size: size, options: opt.describe(), flags: opt.flags()}
	p, err := compile(ctx, object, id, opt)
	if err != nil {
		return nil, err
	}
	if p.bounded {
		return nil, errBounded
	}
	return p.image.Bytes(), nil
}

// note remembers what was worth compiling, if the cache can have it.
func (d *onDemand) note(object *dwarfcfa.Object, file io.ReaderAt) {
	if !d.keep || cachePath(object.BuildID()) == "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if f, ok := file.(interface{ Name() string }); ok {
		d.paths = append(d.paths, f.Name())
	} else if object.Name() == unwind.VDSOName {
		d.vdso = true
	}
}

// fillCache writes what was worth compiling to the cache, as build --cache does: with
// the tree and proven. It is done when the output is written, which need not wait for it. What
// cannot be kept is told and made again the next time.
func (d *onDemand) fillCache(ctx context.Context, workers int, quiet bool, c *console) {
	opt := &buildOptions{Options: find.Options{VDSO: d.vdso}, jobs: workers, quiet: quiet, synth: synth.Missing}
	if len(d.paths) == 0 && !d.vdso {
		return
	}
	tell := opt.teller(c)
	err := opt.useCache(os.Getenv)
	if err == nil {
		err = writableFolder(opt.cache)
	}
	if err != nil {
		tell("no eh_elf is kept", err) // once, not for each object
		return
	}
	opt.fillCache(ctx, d.paths, c, tell)
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

// cachePath is where the cache has the eh_elf for a build-id, "" where it cannot
// have one.
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

// readCached reads an eh_elf of the cache if nobody else can have written it, if it is
// what its name says, and where verified is set, if it says that it has been verified
// against its table.
func readCached(path string, buildID []byte, verified bool) ([]byte, bool) {
	if path == "" {
		return nil, false
	}
	f, err := trust.Open(path) // its code is run
	if err != nil {
		return nil, false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() > maxCached {
		return nil, false
	}
	info, err := elfout.ReadInfo(f)
	if err != nil || info.Note.Version != abi.Version || !bytes.Equal(info.Note.BuildID, buildID) {
		return nil, false
	}
	if verified && !statsOf(info).Verified {
		return nil, false
	}
	image := make([]byte, st.Size())
	if n, err := f.ReadAt(image, 0); n < len(image) && err != nil {
		return nil, false
	}
	return image, true
}

// maxCached bounds what readCached reads, in bytes.
const maxCached = 1 << 31

// hostVDSO is the vDSO of the running kernel.
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
