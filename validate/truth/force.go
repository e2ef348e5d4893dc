//go:build linux && amd64

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/check"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/synth"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// Bounds of a run of a function.
const (
	runSteps = 1500
	runDepth = 3   // calls that it goes into
	freshRun = 200 // runs of a process; what they write to its data stays
)

// forced is a file whose functions are started with any registers and memory.
type forced struct {
	*forcedReport
	c       *child
	o       *object
	mem     memory
	rng     *rand.Rand
	entries []uint64             // link-time addresses, ascending
	sites   []codeflow.Site      // calls with landing pads, ascending
	insts   map[uint64]*x86.Inst // by link-time address; nil: none
	found   []shown              // findings of check
	about   map[uint64][]*shown  // of them, those about a pc that ran
	only    bool                 // functions with errors and warnings are started, no others
	back    map[uint64]bool      // functions that have returned

	// for findings that are drawn
	fdes   []*dwarfcfa.FDE
	parts  []codeflow.Function        // their ranges, ascending
	jumps  map[int][]int              // by part: those that jump into it
	called []uint64                   // what calls lead to, ascending
	rows   map[uint64]*dwarfcfa.Table // by address: the row of its FDE
}

// activation is a call that has not returned.
type activation struct {
	frame
	all    abi.Regs // at the call
	pc     uint64   // link-time address of what is called
	claims []claim  // about its frame
	right  []uint64 // where the row of a finding was right
}

// claim is a wrong row. It counts if the function then returns as it should: a store through a wild pointer or past an
// array, which overwrites a saved register, shows in what returns, and so do most ways that no real run takes.
type claim struct {
	table   int
	pc      uint64
	verdict verdict
	text    string
}

// attempt is a run of a function.
type attempt struct {
	*forced
	r      unix.PtraceRegs
	calls  []activation
	wild   bool // conditional jumps go any way
	astray bool // one of them did, and may have been the bound of a jump table

	way              *way // not nil: conditional jumps go to a finding
	finding          *shown
	arrived          bool
	rightly, wrongly int // steps at which the finding's row was right, and wrong as it says
}

// force starts the functions of files.
func force(paths []string, opt options, seed uint64, times, drawn int, only bool) (*report, error) {
	began := time.Now()
	r := &report{Command: paths, Forced: &forcedReport{}}
	for _, path := range paths {
		f, s, err := newForced(path, seed)
		if err != nil {
			return nil, err
		}
		f.forcedReport, f.only = r.Forced, only
		if drawn > 0 {
			err = f.draw(r, drawn)
		} else {
			err = f.all(times, opt.steps, opt.limit)
		}
		f.c.end()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		r.add(s)
		f.judge(r)
		r.Steps, r.Judged = r.Steps+f.o.steps, r.Judged+f.o.steps
		r.Forced.Functions += len(f.entries)
	}
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// newForced opens a file.
func newForced(path string, seed uint64) (*forced, *space, error) {
	f := &forced{forcedReport: &forcedReport{}, rng: rand.New(rand.NewPCG(seed, 0)), insts: map[uint64]*x86.Inst{},
		about: map[uint64][]*shown{}, back: map[uint64]bool{}, rows: map[uint64]*dwarfcfa.Table{}}
	s := &space{source: madeTables(f.look), objects: map[string]*object{}}
	var err error
	if f.c, err = newChild(path); err == nil {
		f.o = s.open(path, 0, 0)
	}
	return f, s, err
}

// look notes the entries, where a row is as after a call, and the landing pads.
func (f *forced) look(o *dwarfcfa.File, made *synth.Result) {
	for i := range made.Functions {
		if g := &made.Functions[i]; g.Ranges[0].Row == synth.Entry {
			f.entries = append(f.entries, uint64(g.Start()))
		}
	}
	if subject, err := check.Open(o.Name(), o.File(), o.FileSize()); err == nil {
		for i := range subject.Functions {
			if g := &subject.Functions[i]; len(g.ArgSizes) == 0 {
				f.sites = append(f.sites, g.Sites...)
			}
		}
		f.parts = subject.Functions
		f.check(subject)
	}
	sections, _ := o.Sections(dwarfcfa.SourceAuto)
	for _, s := range sections {
		for e, err := range s.Entries() {
			if err == nil && e.FDE != nil {
				f.fdes = append(f.fdes, e.FDE)
			}
		}
	}
}

// all starts each function some times, until enough steps are compared.
func (f *forced) all(times, steps int, limit time.Duration) error {
	began, runs := time.Now(), 0
	for n := range times {
		for _, i := range f.rng.Perm(len(f.entries)) {
			if f.o.steps >= steps || limit > 0 && time.Since(began) > limit {
				return nil
			}
			if f.only && !f.questioned(i) {
				continue
			}
			if f.c.err != nil || runs%freshRun == 0 {
				if err := f.c.start(f.rng); err != nil {
					return err
				}
				f.mem.pid = f.c.pid
			}
			runs++
			q := attempt{forced: f, wild: n%2 != 0}
			q.run(f.entries[i])
			if f.c.err != nil && !errors.Is(f.c.err, errEnded) {
				return f.c.err
			}
		}
	}
	return nil
}

// begin calls the function at a link-time address.
func (q *attempt) begin(pc uint64) {
	q.Runs++
	q.r = q.c.regs()
	r := &q.r
	q.clobber(0xffff &^ (1 << x86.RSP))
	// Each register that a callee saves points to a different place, where no other pointer does.
	for i, p := range []*uint64{&r.Rbx, &r.Rbp, &r.R12, &r.R13, &r.R14, &r.R15} {
		*p = arenaAt + areaLen/2 + q.rng.Uint64N(areaLen/32)*16 + uint64(i) + 1
	}
	r.Rip, r.Eflags, r.Fs_base, r.Gs_base = pc+q.c.bias, 0x202, arenaAt+areaLen/2, arenaAt+areaLen/2
	r.Rsp = stackAt + areaLen/2 + q.rng.Uint64N(1024)*16 + 8
	q.c.write(r.Rsp, binary.LittleEndian.AppendUint64(nil, sentinel))
	q.enter(r, sentinel)
	q.c.setRegs(r)
}

// run starts the function at a link-time address and executes instructions until it returns or goes where it can't be
// followed.
func (q *attempt) run(pc uint64) {
	q.begin(pc)
	for range runSteps {
		pc := q.r.Rip - q.c.bias
		in := q.inst(pc)
		if in == nil {
			break
		}
		q.compare(pc)
		if !q.execute(pc, in) || q.c.err != nil {
			break
		}
		if len(q.calls) == 0 {
			q.Returned++
			return
		}
	}
	for i := range q.calls {
		q.Open += len(q.calls[i].claims)
	}
}

// enter adds the frame of a call that has pushed its return address; before are the registers before it.
func (q *attempt) enter(before *unix.PtraceRegs, ra uint64) {
	regs := abiRegs(before)
	q.calls = append(q.calls, activation{frame: newFrame(q.r.Rsp+8, ra, &regs), all: regs, pc: q.r.Rip - q.c.bias})
}

// inst returns the instruction at a link-time address, nil if there is none.
func (f *forced) inst(pc uint64) *x86.Inst {
	in, ok := f.insts[pc]
	if !ok {
		in = new(x86.Inst)
		if x86.Decode(f.c.code(pc), in) != nil {
			in = nil
		}
		f.insts[pc] = in
	}
	return in
}

// compare compares the tables with the frame.
func (q *attempt) compare(pc uint64) {
	q.mem.at(q.r.Rsp)
	now, top := abiRegs(&q.r), &q.calls[len(q.calls)-1]
	q.o.steps++
	q.o.pcs[pc] = struct{}{}
	for i, t := range q.o.tables {
		v, text, _ := judge(t, q.c.bias, &now, &top.frame, &q.mem)
		switch v {
		case wrongCFA, wrongReg, outmost:
			top.claims = append(top.claims, claim{i, pc, v, text()})
		default:
			q.o.sums[i].steps[v]++
			if i == 0 && v == right && q.claimed(pc) != nil {
				top.right = append(top.right, pc)
			}
		}
	}
}

// execute executes an instruction, or does in its place what is as good. It reports whether the run goes on.
func (q *attempt) execute(pc uint64, in *x86.Inst) bool {
	r, kind := &q.r, kindOf(q.c.code(pc))
	before, next := *r, r.Rip+uint64(in.Len)
	switch {
	case in.Op == x86.OpUD2 || in.Op == x86.OpINT3 || in.Op == x86.OpHLT || in.Op == x86.OpINT:
		return false
	case kind == systemCall:
		return q.goOn(next, 1<<x86.RAX|1<<x86.RCX|1<<x86.R11)
	case kind == indirectJump && q.astray && q.way == nil:
		return false
	case q.way != nil:
		q.steer(pc, in)
	case in.Op == x86.OpJCC && q.wild && q.rng.IntN(3) == 0:
		q.astray = true
		r.Eflags ^= uint64(q.rng.Uint32()) & 0x8d5 // CF, PF, AF, ZF, SF, OF
	}
	if in.Prefix&(x86.PrefixF3|x86.PrefixF2) != 0 && in.Writes>>x86.RCX&1 != 0 {
		r.Rcx %= 16 // rep
	}
	if *r != before {
		q.c.setRegs(r)
	}
	sig := q.c.step()
	*r = q.c.regs()
	if sig != unix.SIGTRAP { // it faulted; what moves the stack can't be left out
		stack := in.Writes>>x86.RSP&1 != 0 || in.Stack != 0 || in.Mem.Base == x86.RSP
		return kind == call && q.goOn(next, callerSaved) ||
			!stack && in.Op != x86.OpJMP && r.Rip == before.Rip && q.goOn(next, in.Writes)
	}
	if kind == call {
		q.enter(&before, next)
	}
	to := r.Rip - q.c.bias
	switch {
	case r.Rip == outside || kind == call && (q.c.code(to) == nil && r.Rip != never ||
		(q.back[to] || q.way != nil && q.way.next[to] == nil) && q.rng.IntN(6) != 0):
		return q.calleeReturns()
	case kind == call:
		return len(q.calls) <= runDepth
	case kind == ret:
		q.rets(pc, &before)
		return q.leaves()
	case kind == indirectJump:
		return q.leads(pc, to)
	}
	return true
}

// goOn goes on elsewhere, with any values in some registers.
func (q *attempt) goOn(to uint64, clobbered uint16) bool {
	q.clobber(clobbered)
	q.r.Rip = to
	q.c.setRegs(&q.r)
	return true
}

// leads reports whether a jump through a register or memory can be real: it goes to an entry, or to an instruction of
// the same function, as counted from the entry. Any number may be an index that the function does not compare with a
// bound.
func (f *forced) leads(from, to uint64) bool {
	i, _ := slices.BinarySearch(f.entries, to+1)
	if i == 0 {
		return false
	}
	pc := f.entries[i-1]
	own := pc <= from && (i == len(f.entries) || from < f.entries[i])
	for own && pc < to && f.inst(pc) != nil {
		pc += uint64(f.inst(pc).Len)
	}
	return pc == to
}

// callerSaved are the registers that a call may change (x86-64 psABI figure 3.4).
const callerSaved = 1<<x86.RAX | 1<<x86.RCX | 1<<x86.RDX | 1<<x86.RSI | 1<<x86.RDI | 0x0f00

// calleeReturns does what a function that begins may do up to its return: it changes registers and the memory below the
// stack. Now and then an exception leaves it for its caller's landing pad. Where code of another function or none
// follows the call, it does not come back.
func (q *attempt) calleeReturns() bool {
	var b [256]byte
	if q.mem.read(q.r.Rsp, b[:8]) != 8 {
		return false
	}
	q.r.Rip, q.r.Rsp = binary.LittleEndian.Uint64(b[:]), q.r.Rsp+8
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], q.rng.Uint64())
	}
	q.c.write(q.r.Rsp-uint64(len(b)), b[:])
	if !q.leaves() {
		return false
	}
	pc := q.r.Rip - q.c.bias
	pad, ok := q.pad(pc)
	switch {
	case q.way != nil && len(q.calls) == 1:
		if to, leads := q.choose([]uint64{pc, pad}); ok && leads {
			pc = to
		}
	case ok && q.rng.IntN(4) == 0:
		pc = pad
	}
	_, entry := slices.BinarySearch(q.entries, pc)
	in := q.inst(pc)
	ends := in == nil || entry || in.Op == x86.OpNOP || in.Op == x86.OpINT3 || in.Op == x86.OpUD2
	return len(q.calls) == 0 || !ends && q.goOn(pc+q.c.bias, callerSaved)
}

// pad returns the landing pad of the call that ends at pc.
func (f *forced) pad(pc uint64) (pad uint64, ok bool) {
	i := sort.Search(len(f.sites), func(i int) bool { return f.sites[i].Hi > pc-1 })
	if ok = i < len(f.sites) && f.sites[i].Lo <= pc-1; ok {
		pad = f.sites[i].Pad
	}
	return pad, ok
}

// leaves handles a return. It reports whether the run goes on: the return was to where the call came from, or to code
// that the function had pushed the address of.
func (q *attempt) leaves() bool {
	top, now := &q.calls[len(q.calls)-1], abiRegs(&q.r)
	switch {
	case q.r.Rsp < top.cfa:
		return true
	case q.r.Rip != top.ra || q.r.Rsp != top.cfa:
		return false
	case newFrame(0, 0, &now).regs != top.regs:
		q.Odd++
		q.unrestored(top)
		return false
	}
	for _, pc := range top.right {
		q.note(pc, right, "")
	}
	for _, c := range top.claims {
		if c.table == 0 {
			q.note(c.pc, c.verdict, c.text)
		}
		s := &q.o.sums[c.table]
		s.steps[c.verdict]++
		s.addWrong(c.pc, c.verdict, func() string { return c.text })
	}
	q.back[top.pc] = q.back[top.pc] || !q.astray
	q.calls = q.calls[:len(q.calls)-1]
	return true
}

// clobber gives registers, by the processor's numbers, any values.
func (q *attempt) clobber(mask uint16) {
	for i, p := range general(&q.r) {
		if mask>>i&1 != 0 {
			*p = anyValue(q.rng)
		}
	}
}
