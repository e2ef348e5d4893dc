package codeflow

import (
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file prepares a program: a linear sweep over every function finds where instructions begin, what is called and
// what leaves, and from these which functions never return. The sets of addresses are shared by all workers.

// Function is a range of code with one start, such as an FDE's.
type Function struct {
	Lo, Hi   uint64
	Sites    []Site    // calls with landing pads
	ArgSizes []ArgSize // ascending
	Signal   bool      // a signal frame, or code that Image.Foreign names: not analysed
	// Shared says that other code may jump to, or run into, Lo in a state that a call does not leave. The state at Lo is
	// then the join of both.
	Shared bool
	// Entry says that code outside the given functions calls it or takes its address.
	Entry bool
}

// Site says that an exception from a call in [Lo, Hi) continues at Pad.
type Site struct{ Lo, Hi, Pad uint64 }

// ArgSize is DW_CFA_GNU_args_size: from PC on, calls have Bytes of arguments on the stack, which are gone at a landing
// pad.
type ArgSize struct {
	PC    uint64
	Bytes int32
}

// Basis says what a state rests on.
type Basis uint8

// Values of Basis, each weaker than the one before.
const (
	FromEntry Basis = iota // follows from the function's entry
	Assumed                // follows from a state that Options.Begin gave
	Guessed                // follows from a choice that the code does not prove
)

// Options are options of New.
type Options struct {
	// Begin, if not nil, makes the source of states for addresses to which no flow leads, such as a table. Each worker
	// has its own.
	Begin func() Beginner
	// Workers bounds the goroutines; 0 means one per processor.
	Workers int
	// Progress, if not nil, is called with how many more functions a step has seen, also concurrently.
	Progress func(more int)
}

// Beginner returns the states at addresses to which no flow leads. One worker uses
// it.
type Beginner interface {
	Begin(pc uint64) (State, bool)
}

// Program holds the functions of an image and what is known across them.
type Program struct {
	img *Image
	fns []Function
	opt Options

	sum      []summary
	boundary *addrSet // instruction starts, in executable segments
	called   *addrSet
	lea      *addrSet        // addresses that lea takes, in the whole image
	noReturn *addrSet        // functions that never return
	tailIn   map[uint64]bool // jumped to in entry state
	ext      map[uint64]*external
	extOf    map[int][]uint64 // by function: the addresses in ext, ascending
	breaks   map[uint64]breach
	returns  sync.Map // callee: whether it comes back, with the breaches known

	flows []*flow // of the workers, reused

	group  []int32         // by function: the first of its group
	more   map[int32][]int // by first: the group, if it has more than one function
	joined *addrSet        // the first addresses of parts that jumps of their group lead to
	stray  *addrSet        // the first addresses of parts to which other code has a jump that is never taken
}

// external is a state that flows into a function from others.
type external struct {
	s     State
	basis Basis
	from  int // the function that it came from first
	// other functions jump here with another frame: a cold label without code, after which the next part lies
	contested bool
}

// summary is the result of a linear pass over a function.
type summary struct {
	callees, outs []uint64 // targets of calls; of jumps that leave
	endCall       uint64   // target of a direct call that ends the range; 0 if none
	ret           bool     // may return: has ret, an indirect jump, undecodable bytes, or runs on past its end
	falls         bool
}

// New prepares functions, which must be sorted by Lo and disjoint, for Run.
func New(img *Image, fns []Function, opt Options) *Program {
	if opt.Workers <= 0 {
		opt.Workers = runtime.GOMAXPROCS(0)
	}
	p := &Program{img: img, fns: fns, opt: opt, tailIn: map[uint64]bool{}, ext: map[uint64]*external{},
		breaks: map[uint64]breach{}}
	p.sum = make([]summary, len(fns))
	p.extOf = map[int][]uint64{}
	p.boundary, p.called, p.noReturn = newAddrSet(img.lo, img.hi), newAddrSet(img.lo, img.hi), newAddrSet(img.lo, img.hi)
	lo, hi := ^uint64(0), uint64(0)
	for _, s := range img.segs {
		lo, hi = min(lo, s.lo), max(hi, s.hi)
	}
	// A header may put data far from code: then only lea of code counts.
	if hi < lo || hi-lo > maxSpan {
		lo, hi = img.lo, img.hi
	}
	p.lea = newAddrSet(lo, hi)
	p.called.set(img.entry)
	for i := range fns {
		if fns[i].Entry {
			p.called.set(fns[i].Lo)
		}
	}
	p.each(nil, func(f *flow, i int) { p.sum[i] = f.sweep(&p.fns[i]) })
	p.findNoReturn()
	p.findGroups()
	return p
}

// each runs do on the workers for the functions, or groups, of list; nil means all
// functions.
func (p *Program) each(list []int, do func(f *flow, i int)) {
	n := len(list)
	if list == nil {
		n = len(p.fns)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	// A worker takes 16 functions at a time: the counter is shared.
	const step = 16
	for w := range min(p.opt.Workers, n/step+1) {
		if w == len(p.flows) {
			var rows Beginner
			if p.opt.Begin != nil {
				rows = p.opt.Begin()
			}
			p.flows = append(p.flows, newFlow(p, rows))
		}
		f := p.flows[w]
		wg.Go(func() {
			for {
				first := int(next.Add(step)) - step
				if first >= n {
					return
				}
				for k := first; k < min(first+step, n); k++ {
					i := k
					if list != nil {
						i = list[k]
					}
					do(f, i)
				}
				if p.opt.Progress != nil {
					p.opt.Progress(min(step, n-first))
				}
			}
		})
	}
	wg.Wait()
}

// sweep decodes a function from first byte to last, also data in it, which it takes for code.
func (f *flow) sweep(fn *Function) (sm summary) {
	p := f.p
	callees, outs := f.callees[:0], f.outs[:0]
	code := p.img.Code(fn.Lo)
	if uint64(len(code)) > fn.Hi-fn.Lo {
		code = code[:fn.Hi-fn.Lo]
	}
	var in x86.Inst
	last := x86.OpUnknown
	starts := batch{s: p.boundary}
	defer starts.flush()
	for off := 0; off < len(code); {
		if n := x86.Zeros(code[off:]); n > 0 {
			off, last, sm.endCall = off+n, x86.OpADD, 0
			continue
		}
		pc := fn.Lo + uint64(off)
		if x86.Decode(code[off:], &in) != nil {
			sm.ret = true
			off++
			last = x86.OpUnknown
			continue
		}
		starts.set(pc)
		off += int(in.Len)
		// Padding behind a call does not change that the function ends with it.
		if in.Op != x86.OpNOP || last != x86.OpCALL {
			last = in.Op
		}
		if in.Op != x86.OpNOP {
			sm.endCall = 0
		}
		switch in.Op {
		case x86.OpRET, x86.OpIRET, x86.OpRETF:
			sm.ret = true
		case x86.OpJMP, x86.OpJCC:
			t, ok := in.RelTarget(pc)
			if !ok {
				sm.ret = true
				break
			}
			if t = p.img.through(t); t < fn.Lo || t >= fn.Hi {
				outs = append(outs, t)
			}
		case x86.OpCALL:
			t, ok := in.RelTarget(pc)
			if t = p.img.through(t); ok && (in.Imm != 0 || t == fn.Hi || !p.img.TakesAddress(t)) &&
				!(t > fn.Lo && t < fn.Hi && p.img.replacesReturn(t)) {
				p.called.set(t)
				callees = append(callees, t)
				sm.endCall = t
			}
		case x86.OpLEA:
			if t, ok := in.RelTarget(pc); ok {
				p.lea.set(t)
			}
		}
	}
	// An end after anything else runs on into what follows.
	switch last {
	case x86.OpCALL, x86.OpRET, x86.OpJMP, x86.OpUD2, x86.OpHLT, x86.OpINT3, x86.OpUD0, x86.OpUD1, x86.OpNOP:
	default:
		sm.ret, sm.falls = true, true
	}
	slices.Sort(outs)
	f.callees, f.outs = callees, outs
	if len(callees) > 0 {
		sm.callees = slices.Clone(callees)
	}
	if len(outs) > 0 {
		sm.outs = slices.Clone(outs)
	}
	return sm
}

// find returns the index of the function that holds pc, or -1 if none does.
func (p *Program) find(pc uint64) int {
	i := sort.Search(len(p.fns), func(i int) bool { return p.fns[i].Hi > pc })
	if i < len(p.fns) && p.fns[i].Lo <= pc {
		return i
	}
	return -1
}

// findNoReturn computes a fixed point: a function never returns if it has no return and all its jumps out lead to
// functions that never return. It begins with known names (neverReturns). Functions of other files count if calls of
// them often end a function.
func (p *Program) findNoReturn() {
	for a := range p.img.called.noReturn {
		p.noReturn.set(a)
	}
	// Of a function of another file that does not return, many calls end the function that they are in; a single one
	// may stand where the compiler knew that nothing comes.
	const fewEnds = 16
	total, ends := map[uint64]int{}, map[uint64]int{}
	for i := range p.fns {
		if t := p.sum[i].endCall; t != 0 {
			ends[t]++
		}
	}
	for i := range p.fns {
		for _, t := range p.sum[i].callees {
			if ends[t] > 0 {
				total[t]++
			}
		}
	}
	for i := range p.fns {
		// a call that ends a function: the callee does not return, unless the function is split
		if t := p.sum[i].endCall; t != 0 && !p.img.called.exitsIf[t] {
			g := p.find(t)
			if strings.HasPrefix(p.img.SectionOf(t), ".plt") && ends[t]*fewEnds >= total[t] || g >= 0 && g != i &&
				p.fns[g].Lo == t && !p.sum[g].ret {
				p.noReturn.set(t)
			}
		}
	}
	for changed := true; changed; {
		changed = false
		for i := range p.fns {
			lo := p.fns[i].Lo
			if p.sum[i].ret || p.noReturn.has(lo) || strings.HasPrefix(p.img.SectionOf(lo), ".plt") {
				continue
			}
			all := true
			for _, t := range p.sum[i].outs {
				if !p.noReturn.has(t) && !p.coldOf(i, t) {
					all = false
					break
				}
			}
			if all {
				p.noReturn.set(lo)
				changed = true
			}
		}
	}
}

// coldOf reports whether t is in a part of function i that never returns.
func (p *Program) coldOf(i int, t uint64) bool {
	g := p.find(t)
	return g >= 0 && g != i && p.noReturn.has(p.fns[g].Lo)
}

// referred reports whether something takes or calls this address.
func (p *Program) referred(pc uint64) bool {
	return p.called.has(pc) || p.img.starts[pc] || p.img.relText[pc] || p.lea.has(pc)
}

// unused reports whether nothing but a symbol, and jumps, refer to pc.
func (p *Program) unused(pc uint64) bool {
	return !p.called.has(pc) && !p.img.relText[pc] && !p.lea.has(pc)
}

// goesInto reports whether function i jumps into the middle of one that calls lead to, as a moved part does.
func (p *Program) goesInto(i int) bool {
	return slices.ContainsFunc(p.sum[i].outs, func(t uint64) bool {
		g := p.find(t)
		return g >= 0 && g != i && t != p.fns[g].Lo && p.isEntry(p.fns[g].Lo)
	})
}

// isCalled reports whether a call or a function's symbol names pc. A label, whose address other code or a table may
// hold, has neither.
func (p *Program) isCalled(pc uint64) bool { return p.called.has(pc) || p.img.starts[pc] }

// weaklyNamed reports whether no call leads to pc, and no symbol with a size: what names it may be a symbol of an empty
// function before it, or a table of labels.
func (p *Program) weaklyNamed(pc uint64) bool {
	s, ok := p.img.Symbol(pc)
	return p.opt.Begin != nil && !p.called.has(pc) && !(ok && s.Addr == pc && s.Size > 0)
}

// callsOnly reports whether function g begins in an entry's state whatever jumps to it: a call or a symbol names it,
// and a table says what its state is. Without a table, what jumps to it counts as much as its name.
func (p *Program) callsOnly(g int) bool {
	return p.opt.Begin != nil && !p.fns[g].Shared && p.isCalled(p.fns[g].Lo)
}

// isEntry reports whether calls lead to pc, so that the state there is an entry's whatever a table says: it is called,
// or a symbol or pointer names it, and it is not a moved part of a function, or a label in a table of labels.
func (p *Program) isEntry(pc uint64) bool {
	return p.called.has(pc) || (p.img.starts[pc] || p.img.pointed(pc) || p.lea.has(pc)) && !p.isPart(pc)
}

// keeps reports whether the function at pc does not change a register: it has at most mostKept instructions up to its
// first ret, calls nothing, does not write the register, and its jumps stay before that ret.
func (p *Program) keeps(pc uint64, reg x86.Reg) bool {
	code := p.img.Code(pc)
	var in x86.Inst
	var far uint64
	for addr, n := pc, 0; n < mostKept && addr-pc < uint64(len(code)); n++ {
		if x86.Decode(code[addr-pc:], &in) != nil || in.Op == x86.OpUnknown || in.Writes&reg.Mask() != 0 {
			return false
		}
		switch {
		case in.Op == x86.OpRET:
			return far <= addr
		case in.Op == x86.OpCALL, in.Op == x86.OpSYSCALL, ends(in.Op):
			return false
		case in.Args[0].Kind == x86.KRel:
			t := in.Target(addr)
			if t < pc {
				return false
			}
			far = max(far, t)
		case in.Op == x86.OpJMP:
			return false
		}
		addr += uint64(in.Len)
	}
	return false
}

// mostKept bounds the instructions that keeps looks at: the functions in question are helpers of hand-written code, of
// a few dozen.
const mostKept = 256

// isPart reports whether the symbol at pc names a part of a function, to which jumps lead with a frame: GCC's and
// clang's .cold, BOLT's .warm and .cold.N, clang's .__part.N.
func (p *Program) isPart(pc uint64) bool {
	s, ok := p.img.Symbol(pc)
	return p.img.parts[pc] || ok && s.Addr == pc && partName(s.Name)
}

// Targets returns the targets of calls and jumps to code that is in no
// function, ascending.
func (p *Program) Targets() []uint64 {
	seen := map[uint64]bool{}
	var out []uint64
	for i := range p.sum {
		for _, l := range [][]uint64{p.sum[i].callees, p.sum[i].outs} {
			for _, t := range l {
				if !seen[t] && p.find(t) < 0 && p.img.Code(t) != nil {
					seen[t] = true
					out = append(out, t)
				}
			}
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i] < out[j] })
	return out
}

// Inner reports whether only calls and jumps of this file lead to the function at pc, and some do: a private calling
// convention is possible, since each caller is seen. relText and lea count as references, since what takes an address
// may hand it to anyone.
func (p *Program) Inner(pc uint64) bool {
	return (p.called.has(pc) || p.tailIn[pc] || p.ext[pc] != nil) && pc != p.img.entry &&
		!p.img.exported[pc] && !p.img.relText[pc] && !p.lea.has(pc)
}

// Broken returns the mask of callee-saved registers, by processor number, that the function at pc does not restore: a
// private calling convention.
func (p *Program) Broken(pc uint64) uint16 { return p.breaks[pc].lost }

// IsBoundary reports whether an instruction of a linear pass begins at pc.
func (p *Program) IsBoundary(pc uint64) bool { return p.boundary.has(pc) }

// addrSet is a set of addresses, a bit each, in pages that are allocated on demand; set is safe for concurrent use.
// Ranges are up to maxSpan, of which most pages stay empty.
type addrSet struct {
	lo, hi uint64
	pages  []atomic.Pointer[addrPage]
}

const pageBits = 12 // addresses in a page, as a power of two

type addrPage [1 << pageBits / 64]uint64

func newAddrSet(lo, hi uint64) *addrSet {
	return &addrSet{lo, hi, make([]atomic.Pointer[addrPage], (hi-lo)>>pageBits+1)}
}

func (b *addrSet) set(a uint64) {
	if a >= b.lo && a < b.hi {
		b.or((a-b.lo)/64, 1<<((a-b.lo)%64))
	}
}

// or adds the addresses from lo + 64 w on for which bits are set.
func (b *addrSet) or(w, bits uint64) {
	page := &b.pages[w*64>>pageBits]
	p := page.Load()
	if p == nil {
		p = new(addrPage)
		if !page.CompareAndSwap(nil, p) {
			p = page.Load()
		}
	}
	if x := &p[w%uint64(len(p))]; atomic.LoadUint64(x)&bits != bits {
		atomic.OrUint64(x, bits)
	}
}

// batch adds ascending addresses to a set, a word at a time.
type batch struct {
	s       *addrSet
	w, bits uint64
}

// set adds an address, which is not below the one before. Words that are done go to the shared set by one atomic
// operation for 64 addresses, since workers sweep neighbouring code at the same time.
func (t *batch) set(a uint64) {
	if a < t.s.lo || a >= t.s.hi {
		return
	}
	k := a - t.s.lo
	if k/64 != t.w {
		t.flush()
		t.w = k / 64
	}
	t.bits |= 1 << (k % 64)
}

// flush adds the word in hand; it must follow the last set.
func (t *batch) flush() {
	if t.bits != 0 {
		t.s.or(t.w, t.bits)
		t.bits = 0
	}
}

// has reports whether a is in the set. It may run while others add: it then sees a state before or after.
func (b *addrSet) has(a uint64) bool {
	if a < b.lo || a >= b.hi {
		return false
	}
	k := a - b.lo
	p := b.pages[k>>pageBits].Load()
	k &= 1<<pageBits - 1
	return p != nil && p[k/64]>>(k%64)&1 != 0
}
