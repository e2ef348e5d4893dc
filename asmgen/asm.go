package asmgen

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/ehasm/ehasm/asmgen/goenv" // must be initialised before golang-asm

	"github.com/twitchyliquid64/golang-asm/obj"
	"github.com/twitchyliquid64/golang-asm/obj/x86"
	"github.com/twitchyliquid64/golang-asm/objabi"
)

// This file is the only one that drives golang-asm; the others build its
// instructions through it.

// Package goenv has hidden the environment while golang-asm was initialised; it is put back here.
func init() { goenv.Restore() }

// ErrAssemble is wrapped by errors of golang-asm or of the layout of jumps. It
// means a defect in this package, never bad input.
var ErrAssemble = errors.New("assembling failed")

// label is a place in the text that may be used before it is bound.
type label int32

// ref asks for the rel32 field at off to lead to a label.
type ref struct {
	off int32
	to  label
}

// progRef is a ref of the current chunk, whose offset golang-asm decides.
type progRef struct {
	p  *obj.Prog
	to label
}

// chunkProgs bounds the instructions assembled at once: an obj.Prog takes about
// 350 bytes, too much to hold a browser's tables as a whole.
const chunkProgs = 4096

// assembler collects instructions, runs golang-asm over them chunk by chunk and
// resolves the jumps between chunks itself.
//
// golang-asm does not support conditional jumps to a symbol, and its relaxation
// of short jumps ends the process after 20 passes. So every jump is either
// short, to a label of the same chunk that the caller knows to be near, or
// long: then its target is a dummy after the chunk, too far for a short form,
// and the displacement is filled in when all labels are known.
type assembler struct {
	ctxt  *obj.Link
	arena []obj.Prog // instructions of the current chunk, used again for the next one
	used  int        // of arena
	first *obj.Prog  // of the chunk's list; nil: the chunk is empty
	last  *obj.Prog
	diag  []string // what golang-asm reports; any of it is a defect here

	text    []byte              // of the chunks that are assembled
	where   []int32             // by label: offset in text, -1: not yet known
	bound   []label             // labels waiting for the next instruction
	here    []progRef           // labels bound in the chunk
	near    []progRef           // short jumps
	local   []progRef           // jumps whose size golang-asm chooses
	far     []progRef           // long jumps
	syms    map[*obj.LSym]label // labels that calls and leas name, by symbol
	bySym   map[label]*obj.LSym // the inverse of syms
	dataSym *obj.LSym           // stands for the data in relocations
	refs    []ref               // displacements to be filled in by finish
	fixups  []Fixup             // displacements to the data, for the linker of the file
}

// tables guards the set-up of golang-asm's instruction tables and its global
// choice of jump padding.
var tables sync.Once

// newAssembler returns an assembler without code. The tables of golang-asm are initialised once in a process.
func newAssembler() *assembler {
	a := &assembler{
		ctxt:    obj.Linknew(&x86.Linkamd64),
		arena:   make([]obj.Prog, chunkProgs+64),
		syms:    map[*obj.LSym]label{},
		bySym:   map[label]*obj.LSym{},
		dataSym: &obj.LSym{Name: "data"},
	}
	a.ctxt.Headtype = objabi.Hlinux
	a.ctxt.IsAsm = true // hand-written code: no padding of jumps
	a.ctxt.DiagFunc = func(format string, args ...any) {
		a.diag = append(a.diag, fmt.Sprintf(format, args...))
	}
	tables.Do(func() {
		objabi.GOAMD64 = "normaljumps"
		x86.Linkamd64.Init(a.ctxt)
	})
	return a
}

// newLabel returns a label without a place.
func (a *assembler) newLabel() label {
	a.where = append(a.where, -1)
	return label(len(a.where) - 1)
}

// bind binds a label to the place of the next instruction.
func (a *assembler) bind(l label) { a.bound = append(a.bound, l) }

// bindNew is bind for a label made on the spot.
func (a *assembler) bindNew() label {
	l := a.newLabel()
	a.bind(l)
	return l
}

// add appends an instruction to the chunk. Labels that were bound before name it.
func (a *assembler) add(as obj.As) *obj.Prog {
	var p *obj.Prog
	if a.used < len(a.arena) {
		p = &a.arena[a.used]
		*p = obj.Prog{}
		a.used++
	} else {
		p = new(obj.Prog) // the caller grouped more than a chunk; correct, if slower
	}
	p.Ctxt = a.ctxt
	p.As = as
	if a.first == nil {
		a.first = p
	} else {
		a.last.Link = p
	}
	a.last = p
	for _, l := range a.bound {
		a.here = append(a.here, progRef{p, l})
	}
	a.bound = a.bound[:0]
	return p
}

// op adds an instruction in golang-asm's operand order: source, destination;
// CMP and TEST as written in Intel's manual.
func (a *assembler) op(as obj.As, from, to obj.Addr) {
	p := a.add(as)
	p.From, p.To = from, to
}

// divide adds a division of rdx:rax by a register, which is a source to golang-asm.
func (a *assembler) divide(as obj.As, r int16) { a.add(as).From = reg(r) }

// op3 adds an instruction with a constant before source and destination.
func (a *assembler) op3(as obj.As, c, from, to obj.Addr) {
	p := a.add(as)
	p.From, p.To = c, to
	p.RestArgs = []obj.Addr{from}
}

// op1 adds an instruction with a destination only.
func (a *assembler) op1(as obj.As, to obj.Addr) { a.add(as).To = to }

// push adds the push of a register or constant, which is a source to golang-asm.
func (a *assembler) push(v obj.Addr) { a.add(x86.APUSHQ).From = v }

// op0 adds an instruction without operands.
func (a *assembler) op0(as obj.As) { a.add(as) }

// jump adds a jump with a 32-bit displacement to a label anywhere.
func (a *assembler) jump(as obj.As, l label) {
	p := a.add(as)
	p.To.Type = obj.TYPE_BRANCH
	a.far = append(a.far, progRef{p, l})
}

// jumpShort adds a jump with an 8-bit displacement; the label must be bound in
// the same chunk, at most 127 bytes away. flush checks it.
func (a *assembler) jumpShort(as obj.As, l label) {
	p := a.add(as)
	p.To.Type = obj.TYPE_BRANCH
	a.near = append(a.near, progRef{p, l})
}

// branch adds a jump to a label of the same chunk and leaves its size to
// golang-asm. It is for the fixed code, whose jumps do not need more than 20
// passes of relaxation.
func (a *assembler) branch(as obj.As, l label) {
	p := a.add(as)
	p.To.Type = obj.TYPE_BRANCH
	a.local = append(a.local, progRef{p, l})
}

// call adds a call of a label anywhere.
func (a *assembler) call(l label) {
	p := a.add(obj.ACALL)
	p.To = obj.Addr{Type: obj.TYPE_BRANCH, Name: obj.NAME_EXTERN, Sym: a.symbol(l)}
}

// symbol returns the symbol that stands for a label in relocations.
func (a *assembler) symbol(l label) *obj.LSym {
	s := a.bySym[l]
	if s == nil {
		s = &obj.LSym{Name: fmt.Sprintf("l%d", l)}
		a.bySym[l] = s
		a.syms[s] = l
	}
	return s
}

// leaLabel loads the address of a label.
func (a *assembler) leaLabel(l label, r int16) {
	a.op(x86.ALEAQ, obj.Addr{Type: obj.TYPE_MEM, Name: obj.NAME_EXTERN, Sym: a.symbol(l)}, reg(r))
}

// leaData loads the address of a place in the data.
func (a *assembler) leaData(off uint32, r int16) {
	a.op(x86.ALEAQ, obj.Addr{Type: obj.TYPE_MEM, Name: obj.NAME_EXTERN, Sym: a.dataSym, Offset: int64(off)}, reg(r))
}

// pad adds n bytes that trap.
func (a *assembler) pad(n int) {
	for range n {
		a.add(x86.ABYTE).From = imm(0xcc)
	}
}

// align assembles the pending instructions and fills the text up to a multiple
// of n.
func (a *assembler) align(n int) error {
	if err := a.flush(); err != nil {
		return err
	}
	for len(a.text)%n != 0 {
		a.text = append(a.text, 0xcc)
	}
	return nil
}

// breakChunk assembles the pending instructions if the chunk is full. Short
// jumps do not reach across it.
func (a *assembler) breakChunk() error {
	if a.used < chunkProgs {
		return nil
	}
	return a.flush()
}

// flush assembles the chunk and appends it to the text.
func (a *assembler) flush() error {
	if a.first == nil && len(a.bound) == 0 {
		return nil
	}
	// More than 127 bytes of filler, then the dummy target of long jumps.
	end := a.add(x86.AMOVQ)
	end.From, end.To = imm(1<<62), reg(x86.REG_AX)
	for range 14 {
		a.op(x86.AMOVQ, imm(1<<62), reg(x86.REG_AX))
	}
	dummy := a.add(x86.AINT)
	dummy.From = imm(3)

	for _, f := range a.far {
		f.p.To.SetTarget(dummy)
	}
	target := make(map[label]*obj.Prog, len(a.here))
	if len(a.near)+len(a.local) > 0 {
		for _, h := range a.here {
			target[h.to] = h.p
		}
	}
	for _, refs := range [][]progRef{a.near, a.local} {
		for _, n := range refs {
			t := target[n.to]
			if t == nil {
				return fmt.Errorf("%w: jump out of its chunk", ErrAssemble)
			}
			n.p.To.SetTarget(t)
		}
	}

	sym := &obj.LSym{Func: &obj.FuncInfo{Text: a.first}}
	x86.Linkamd64.Assemble(a.ctxt, sym, a.ctxt.NewProg)
	if len(a.diag) > 0 || a.ctxt.Errors > 0 {
		return fmt.Errorf("%w: %v", ErrAssemble, a.diag)
	}
	base := int32(len(a.text))
	a.text = append(a.text, sym.P[:end.Pc]...)
	for _, h := range a.here {
		a.where[h.to] = base + int32(h.p.Pc)
	}
	// The last 4 bytes of a long jump are its displacement.
	for _, f := range a.far {
		a.refs = append(a.refs, ref{base + int32(f.p.Pc) + int32(f.p.Isize) - 4, f.to})
	}
	for _, n := range a.near {
		if n.p.Isize != 2 {
			return fmt.Errorf("%w: short jump at %#x to %#x is too far", ErrAssemble, base+int32(n.p.Pc),
				base+int32(n.p.To.Target().Pc))
		}
	}
	for i := range sym.R {
		r := &sym.R[i]
		if r.Type == objabi.R_CALLIND {
			continue // marks an indirect call; nothing to fill in
		}
		if r.Sym == a.dataSym {
			a.fixups = append(a.fixups, Fixup{TextOff: uint32(base + r.Off), DataOff: uint32(r.Add)})
		} else if l, ok := a.syms[r.Sym]; ok {
			a.refs = append(a.refs, ref{base + r.Off, l})
		} else {
			return fmt.Errorf("%w: relocation against %q", ErrAssemble, r.Sym.Name)
		}
	}
	a.first, a.last, a.used = nil, nil, 0
	a.here, a.near, a.local, a.far = a.here[:0], a.near[:0], a.local[:0], a.far[:0]
	return nil
}

// finish assembles the rest and fills in all displacements.
func (a *assembler) finish() error {
	if err := a.flush(); err != nil {
		return err
	}
	for _, r := range a.refs {
		to := a.where[r.to]
		if to < 0 {
			return fmt.Errorf("%w: label %d is not bound", ErrAssemble, r.to)
		}
		binary.LittleEndian.PutUint32(a.text[r.off:], uint32(to-(r.off+4)))
	}
	return nil
}

// reg, imm, mem and memIndex make operands: a register, a constant, and memory at base +
// index*scale + off.
func reg(r int16) obj.Addr { return obj.Addr{Type: obj.TYPE_REG, Reg: r} }

func imm(v int64) obj.Addr { return obj.Addr{Type: obj.TYPE_CONST, Offset: v} }

func mem(base int16, off int64) obj.Addr {
	return obj.Addr{Type: obj.TYPE_MEM, Reg: base, Offset: off}
}

func memIndex(base, index int16, scale int16, off int64) obj.Addr {
	return obj.Addr{Type: obj.TYPE_MEM, Reg: base, Index: index, Scale: scale, Offset: off}
}
