//go:build linux && amd64

package main

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// way is the code through which control can come from an entry to a finding.
type way struct {
	entry  uint64
	next   map[uint64][]uint64 // by address: where control goes on; a call's landing pads, too
	tables map[uint64][]uint64 // jump tables by address: where they lead
	wide   map[uint64]bool     // those with 8 bytes an entry
	goal   map[uint64]int      // instructions to the finding
	exit   map[uint64]int      // instructions to a return or another function
}

// mostCode bounds the instructions of a way.
const mostCode = 60_000

// ways returns ways to pc: from the entry before it, or from functions that jump to its part.
func (f *forced) ways(pc uint64) (list []*way) {
	seen, parts := map[int]bool{}, []int{f.part(pc)}
	for len(parts) > 0 && len(list) < 4 && len(seen) < 500 {
		i := parts[0]
		parts = parts[1:]
		if i < 0 || seen[i] {
			continue
		}
		seen[i] = true
		for _, start := range f.starts(i, pc) {
			w := f.explore(start)
			if w.goal = w.distances(func(x uint64) bool { return x == pc }); len(w.goal) > 0 {
				if _, ok := w.goal[w.entry]; ok {
					w.exit = w.distances(func(x uint64) bool { return len(w.next[x]) == 0 && f.leavesAt(x) })
					list = append(list, w)
				}
			}
		}
		parts = append(parts, f.jumpers(i)...)
	}
	return list
}

// starts returns where a part is called: at entries; else at targets of calls, and where it begins, if nothing jumps
// into it, or at the endbr64 before pc.
func (f *forced) starts(i int, pc uint64) (list []uint64) {
	p, into := &f.parts[i], f.jumpers(i)
	inside := func(sorted []uint64) []uint64 {
		lo, _ := slices.BinarySearch(sorted, p.Lo)
		hi, _ := slices.BinarySearch(sorted, p.Hi)
		return sorted[lo:hi]
	}
	list = slices.Concat(inside(f.entries), inside(f.called))
	slices.Sort(list)
	if list = slices.Compact(list); len(list) == 0 && len(into) == 0 {
		list = append(list, p.Lo)
	}
	for start := pc; start >= p.Lo && start+4096 > pc; start-- {
		if in := f.inst(start); in != nil && in.Op == x86.OpENDBR64 {
			return append(list, start)
		}
	}
	return list
}

// leavesAt reports whether the instruction at pc returns or jumps elsewhere.
func (f *forced) leavesAt(pc uint64) bool {
	in := f.inst(pc)
	return in != nil && (in.Op == x86.OpRET || in.Op == x86.OpJMP)
}

// part returns the index of the FDE's range that holds pc, -1 if none does.
func (f *forced) part(pc uint64) int {
	i, _ := slices.BinarySearchFunc(f.parts, pc, func(p codeflow.Function, pc uint64) int {
		if p.Hi <= pc {
			return -1
		}
		return 1
	})
	if i < len(f.parts) && f.parts[i].Lo <= pc {
		return i
	}
	return -1
}

// jumpers returns the parts from which jumps, tables and landing pads lead to a part.
func (f *forced) jumpers(to int) []int {
	if f.jumps == nil {
		f.jumps = map[int][]int{}
		add := func(from int, pc uint64) {
			if to := f.part(pc); to >= 0 && to != from && !slices.Contains(f.jumps[to], from) {
				f.jumps[to] = append(f.jumps[to], from)
			}
		}
		var in x86.Inst
		for i := range f.parts {
			p := &f.parts[i]
			for pc := p.Lo; pc < p.Hi; {
				code := f.c.code(pc)
				if code == nil || x86.Decode(code, &in) != nil {
					pc++
					continue
				}
				if t, ok := in.RelTarget(pc); ok && (in.Op == x86.OpJMP || in.Op == x86.OpJCC) {
					add(i, t)
				} else if ok && in.Op == x86.OpCALL {
					f.called = append(f.called, t)
				}
				pc += uint64(in.Len)
			}
			for _, s := range p.Sites {
				add(i, s.Pad)
			}
			switch in.Op {
			case x86.OpJMP, x86.OpJCC, x86.OpCALL, x86.OpLEA, x86.OpRET, x86.OpRETF, x86.OpIRET, x86.OpNOP, x86.OpUD2,
				x86.OpUD1, x86.OpUD0, x86.OpHLT, x86.OpINT3:
			default: // it falls into the next
				add(i, p.Hi)
			}
		}
		slices.Sort(f.called)
		f.called = slices.Compact(f.called)
	}
	return f.jumps[to]
}

// explore follows the code from an entry: jumps, falls and landing pads, but no calls and no jumps to other entries.
func (f *forced) explore(entry uint64) *way {
	w := &way{entry: entry, next: map[uint64][]uint64{}, tables: map[uint64][]uint64{}, wide: map[uint64]bool{}}
	var indirect []uint64
	todo := []uint64{entry}
	for len(w.next) < mostCode {
		if len(todo) == 0 {
			if todo = w.leadIndirect(indirect); len(todo) == 0 {
				break
			}
		}
		pc := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if _, seen := w.next[pc]; seen || f.inst(pc) == nil {
			continue
		}
		in := f.inst(pc)
		to := []uint64{}
		add := func(t uint64) {
			if _, other := slices.BinarySearch(f.entries, t); !other || t == entry {
				to = append(to, t)
			}
		}
		end := pc + uint64(in.Len)
		switch {
		case in.Op == x86.OpRET || in.Op == x86.OpUD2 || in.Op == x86.OpHLT || in.Op == x86.OpINT3:
		case in.Op == x86.OpJMP && in.Args[0].Kind == x86.KRel:
			add(in.Target(pc))
		case in.Op == x86.OpJMP:
			indirect = append(indirect, pc)
		default:
			add(end)
			if in.Args[0].Kind == x86.KRel && in.Op != x86.OpCALL {
				add(in.Target(pc))
			}
			if pad, ok := f.pad(end); ok && in.Op == x86.OpCALL {
				to = append(to, pad)
			}
			if t := in.Target(pc); in.Op == x86.OpCALL && in.Args[0].Kind == x86.KRel && f.part(t) == f.part(pc) {
				add(t) // it may drop its return address
			}
		}
		w.next[pc] = to
		todo = append(todo, to...)
		if t, ok := in.MemAddr(pc); ok && in.Op == x86.OpLEA && w.tables[t] == nil {
			f.table(w, pc, t)
		} else if in.Mem.Base == x86.None && in.Mem.Index != x86.None && in.Mem.Scale == 8 {
			f.table(w, pc, uint64(in.Mem.Disp))
		}
	}
	return w
}

// leadIndirect lets indirect jumps lead where any of the tables does, and returns what is new.
func (w *way) leadIndirect(jumps []uint64) (found []uint64) {
	for _, targets := range w.tables {
		for _, t := range targets {
			for _, jump := range jumps {
				if !slices.Contains(w.next[jump], t) {
					w.next[jump] = append(w.next[jump], t)
					found = append(found, t)
				}
			}
		}
	}
	return found
}

// table reads a jump table at t: distances from its start, or addresses, of code of the part that holds pc.
func (f *forced) table(w *way, pc, t uint64) {
	i := f.part(pc)
	if i < 0 || f.part(t) >= 0 || t-f.c.low > uint64(len(f.c.data)-8) {
		return
	}
	data := f.c.data[t-f.c.low:]
	inside := func(to uint64) bool { return to >= f.parts[i].Lo && to < f.parts[i].Hi && f.inst(to) != nil }
	for b := data; len(b) >= 4 && len(w.tables[t]) < 1024; b = b[4:] {
		to := t + uint64(int32(binary.LittleEndian.Uint32(b)))
		if !inside(to) {
			break
		}
		w.tables[t] = append(w.tables[t], to)
	}
	for b := data; len(w.tables[t]) == 0 || w.wide[t]; b = b[8:] {
		if len(b) < 8 || len(w.tables[t]) == 1024 || !inside(binary.LittleEndian.Uint64(b)-f.c.bias) {
			break
		}
		w.tables[t], w.wide[t] = append(w.tables[t], binary.LittleEndian.Uint64(b)-f.c.bias), true
	}
}

// distances returns the number of instructions from each address to the nearest that is wanted.
func (w *way) distances(wanted func(pc uint64) bool) map[uint64]int {
	before, d, list := map[uint64][]uint64{}, map[uint64]int{}, []uint64{}
	for pc, next := range w.next {
		for _, t := range next {
			before[t] = append(before[t], pc)
		}
		if wanted(pc) {
			d[pc] = 0
			list = append(list, pc)
		}
	}
	for ; len(list) > 0; list = list[1:] {
		for _, pc := range before[list[0]] {
			if _, seen := d[pc]; !seen {
				d[pc] = d[list[0]] + 1
				list = append(list, pc)
			}
		}
	}
	return d
}

// choose returns one of the addresses to go on at: mostly the nearest to where the run goes. ok is false if none leads
// there.
func (q *attempt) choose(list []uint64) (pc uint64, ok bool) {
	d := q.way.goal
	if q.arrived {
		d = q.way.exit
	}
	leading := slices.DeleteFunc(slices.Clone(list), func(pc uint64) bool { _, ok := d[pc]; return !ok })
	if len(leading) == 0 {
		return 0, false
	}
	if q.rng.IntN(4) == 0 {
		return leading[q.rng.IntN(len(leading))], true
	}
	return slices.MinFunc(leading, func(a, b uint64) int { return d[a] - d[b] }), true
}

// steer sets flags, or the index of a jump table, so that the instruction at pc leads to where the run goes.
func (q *attempt) steer(pc uint64, in *x86.Inst) {
	if len(q.calls) != 1 {
		return
	}
	if in.Op == x86.OpJCC {
		to, ok := q.choose([]uint64{in.Target(pc), pc + uint64(in.Len)})
		for taken := to == in.Target(pc); ok && holds(in.Cond, q.r.Eflags) != taken; {
			q.r.Eflags ^= uint64(q.rng.Uint32()) & arithmetic
		}
		return
	}
	if !in.MemRead || in.Mem.Index > x86.R15 || in.Mem.VSIB {
		return
	}
	addr := uint64(in.Mem.Disp)
	if in.Mem.Base <= x86.R15 {
		addr += *general(&q.r)[in.Mem.Base] - q.c.bias
	}
	targets, size := q.way.tables[addr], uint8(4)
	if q.way.wide[addr] {
		size = 8
	}
	if to, ok := q.choose(targets); ok && in.Mem.Scale == size {
		*general(&q.r)[in.Mem.Index] = uint64(slices.Index(targets, to))
	}
}

// Arithmetic flags (Intel SDM vol. 1, 3.4.3).
const (
	carry      = 1 << 0
	parity     = 1 << 2
	zero       = 1 << 6
	sign       = 1 << 7
	overflow   = 1 << 11
	arithmetic = carry | parity | zero | sign | overflow
)

// holds reports whether a condition is true (Intel SDM vol. 2, Jcc).
func holds(c x86.Cond, flags uint64) bool {
	less := bits.OnesCount64(flags&(sign|overflow)) == 1
	is := [8]bool{flags&overflow != 0, flags&carry != 0, flags&zero != 0, flags&(carry|zero) != 0,
		flags&sign != 0, flags&parity != 0, less, less || flags&zero != 0}[c>>1]
	return is == (c&1 == 0)
}

// general returns the registers by the processor's numbers.
func general(r *unix.PtraceRegs) [16]*uint64 {
	return [16]*uint64{&r.Rax, &r.Rcx, &r.Rdx, &r.Rbx, &r.Rsp, &r.Rbp, &r.Rsi, &r.Rdi,
		&r.R8, &r.R9, &r.R10, &r.R11, &r.R12, &r.R13, &r.R14, &r.R15}
}
