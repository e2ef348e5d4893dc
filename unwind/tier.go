package unwind

import (
	"fmt"
	"io"
	"os"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/files/input"
)

// Stepper takes steps in an object that has no eh_elf yet: slower than an
// eh_elf, but available at once. Its methods must be safe for concurrent use.
type Stepper interface {
	// Step does what the object's eh_elf would do, see ehelf.EhElf.Step.
	Step(regs *abi.Regs, mem *ehelf.Memory, bias uint64) abi.Status
	// Took counts steps, including those without a result. It returns true
	// once: when all steps together have taken as long as compiling the object
	// would.
	Took(steps int) bool
}

// Ready chooses what unwinds the object's frames, its eh_elf or a Stepper.
// Only the first call does work, and the first after Release. The error says why there is
// neither.
func (o *Object) Ready() error {
	o.needed.Store(true)
	o.mu.RLock()
	ready, err := o.ready, o.codeErr
	o.mu.RUnlock()
	if ready {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ready {
		o.codeErr = o.prepare()
		o.ready = true
	}
	return o.codeErr
}

// prepare makes or finds the eh_elf or the Stepper. The caller holds o.mu, so others wait for it: it may read a large
// file.
func (o *Object) prepare() error {
	from := o.set.opt.Compile
	if o.set.opt.Prepare != nil {
		from = o.prepareFile
	}
	code, err := o.load(from)
	o.set.keep(o, code)
	return err
}

// Needed reports whether a walk has needed the object since it was met or released.
func (o *Object) Needed() bool { return o.needed.Load() }

// Need makes the object needed: a walk elsewhere has met it.
func (o *Object) Need() { o.needed.Store(true) }

// Release frees what walks through the object need: it is prepared again if one does. met holds the link-time
// addresses at which it was met; of those SignalFrame still knows the answer. No walk may be in progress, and each
// Walker must forget the object before.
func (o *Object) Release(met []uint64) {
	signals := make(map[uint64]bool)
	for _, addr := range met {
		if o.SignalFrame(addr) {
			signals[addr] = true
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if s, ok := o.stepper.(interface{ Release() }); ok {
		s.Release()
	}
	o.ready, o.codeErr, o.stepper, o.signals = false, nil, nil, signals
	o.round++
	o.set.keep(o, nil)
	o.file.codeParts.release()
	o.needed.Store(false)
}

// prepareFile returns the eh_elf that Prepare returns, or sets the Stepper.
func (o *Object) prepareFile(name string, file io.ReaderAt, size int64) (image []byte, err error) {
	if f, ok := file.(*os.File); ok {
		kept, err := keepFile(f)
		if err != nil {
			return nil, err
		}
		defer func() { kept.open = nil }() // a Stepper that keeps reading opens the file again
		file = kept
	}
	image, o.stepper, err = o.set.opt.Prepare(name, file, size)
	return image, err
}

// load loads the eh_elf that a function makes from the object's file. The result
// is nil if the function makes none.
func (o *Object) load(from func(name string, file io.ReaderAt, size int64) ([]byte, error)) (*ehelf.EhElf, error) {
	if from == nil {
		return nil, errNoMaker
	}
	file, size, err := o.Open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	image, err := from(o.Name, file, size)
	if err != nil || image == nil {
		return nil, err
	}
	return ehelf.FromBytes(image)
}

// keep sets the eh_elf of an object, or nil if there is none, and unloads the one before.
func (s *Objects) keep(o *Object, code *ehelf.EhElf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && code != nil { // nothing may be loaded after Close
		code.Close()
		return
	}
	if old := o.code.Swap(code); old != nil {
		old.Close()
	}
}

// walk is ehelf.Spans.Walk that goes on in objects with a Stepper. There must be room
// for a pc.
func (v *view) walk(regs *abi.Regs, mem *ehelf.Memory, pcs []uint64) (steps, last int) {
	for {
		n, i := v.spans.Walk(regs, mem, pcs[steps:])
		steps += n
		if steps == len(pcs) || i < 0 || v.state[i] != stepping {
			return steps, i
		}
		if v.load(i) {
			continue
		}
		// Copies, since a Stepper's arguments escape: the caller's would be
		// allocated in each walk.
		v.regs, v.mem = *regs, *mem
		n = v.maps.list[i].Object.step(&v.regs, &v.mem, v.bias[i], pcs[steps:])
		*regs, v.mem = v.regs, ehelf.Memory{}
		steps += n
		if steps == len(pcs) || n == 0 || regs.Status != abi.StatusNoInfo {
			return steps, i
		}
	}
}

// step takes steps in the object for as long as its Stepper has rows, and returns
// their number; see ehelf.EhElf.Walk. Once compiling pays, the object is compiled in
// the background; if that fails, or Options has no Compile, the Stepper goes on. Stepper and eh_elf give the same
// results.
func (o *Object) step(regs *abi.Regs, mem *ehelf.Memory, bias uint64, pcs []uint64) int {
	n := 0
	for n < len(pcs) && o.stepper.Step(regs, mem, bias) == abi.StatusOK {
		pcs[n] = regs.Reg[abi.RIP]
		n++
	}
	if o.stepper.Took(n + 1) { // the last step, without a result, took time, too
		go o.compile(o.round) // round: a result for an object that was released meanwhile is dropped
	}
	return n
}

// compile sets the eh_elf of an object that has a Stepper, unless it was released since.
func (o *Object) compile(round int) {
	o.set.compiling.Lock()
	defer o.set.compiling.Unlock()
	o.mu.RLock()
	still := o.round == round
	o.mu.RUnlock()
	if !still {
		return // of a round before: the object may have another file by now
	}
	code, err := o.load(o.set.opt.Compile)
	if err != nil {
		return
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	if o.round == round {
		o.set.keep(o, code)
	} else if code != nil {
		code.Close()
	}
}

// SignalFrame reports whether the row at the link-time address addr belongs to a
// signal frame, whose caller was interrupted at its pc. addr is looked up
// unchanged: one is not subtracted.
func (o *Object) SignalFrame(addr uint64) bool {
	o.mu.RLock()
	ready, signals := o.ready, o.signals
	o.mu.RUnlock()
	if !ready && signals != nil {
		return signals[addr]
	}
	p := o.probe(addr)
	return p.status == abi.StatusOK && p.exact
}

// probed is the result of a step from made-up registers over zeroed memory.
type probed struct {
	status abi.Status
	exact  bool // the caller was interrupted
}

// probe takes a step at a link-time address. What the row does with registers and memory is of no interest, only
// whether there is one and of what kind of frame; the step must not fail for want of a value.
func (o *Object) probe(addr uint64) probed {
	for {
		if o.Ready() != nil {
			return probed{status: abi.StatusNoInfo}
		}
		o.mu.RLock()
		if o.ready {
			break
		}
		o.mu.RUnlock() // released meanwhile
	}
	defer o.mu.RUnlock()
	if o.codeErr != nil {
		return probed{status: abi.StatusNoInfo}
	}
	regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
	for i := range regs.Reg { // far from 0, so that no address of a row wraps around
		regs.Reg[i] = 1 << 32
	}
	regs.Reg[abi.RIP] = addr
	zeros := ehelf.Memory{Read: func(uint64) (uint64, bool) { return 0, true }}
	var status abi.Status
	if o.stepper != nil {
		status = o.stepper.Step(&regs, &zeros, 0)
	} else {
		status = o.code.Load().Step(&regs, &zeros, 0)
	}
	return probed{status, regs.Exact == 1}
}

// keptFile is an object's file that may be read at any time. It stays open
// only while the object is prepared, since there may be more objects than open
// files are allowed.
type keptFile struct {
	open *os.File // nil: as path
	path string
	info os.FileInfo
}

// keepFile remembers which file f is, to open it again later.
func keepFile(f *os.File) (*keptFile, error) {
	info, err := f.Stat()
	return &keptFile{open: f, path: f.Name(), info: info}, err
}

// Name returns the path at which the file was found.
func (k *keptFile) Name() string { return k.path }

// ReadAt reads from the open file; once it is closed, it opens the file again, and fails if that is
// another one by now.
func (k *keptFile) ReadAt(b []byte, off int64) (int, error) {
	if k.open != nil {
		return k.open.ReadAt(b, off)
	}
	f, err := input.Open(k.path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return 0, err
	} else if !input.Same(info, k.info) {
		return 0, fmt.Errorf("%s: %w", k.path, ErrChanged)
	}
	return f.ReadAt(b, off)
}
