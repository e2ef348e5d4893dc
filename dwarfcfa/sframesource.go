package dwarfcfa

import (
	"debug/elf"
	"errors"
	"fmt"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/sframe"
)

// sframeSource is an SFrame section as a source. Rows of the format say where the CFA,
// the return address and rbp are; the other callee-saved registers are lost.
type sframeSource struct {
	s    *sframe.Section
	file string // name of the object, for errors
}

// SFrameName is the name of the section, and Report.Source of tables that are made from it.
const SFrameName = ".sframe"

func (s *sframeSource) header() sourceHeader {
	return sourceHeader{name: SFrameName, size: int64(s.s.Size())}
}

// collect returns the functions in order of the section. Bad ones are counted in rep.
func (s *sframeSource) collect(rep *Report) []span {
	spans := make([]span, 0, s.s.Len())
	// One function after the other; a bad one costs only its own rows.
	for i := range s.s.Len() {
		rep.Entries.FDEs++
		sp, err := s.span(i)
		if err != nil {
			rep.lose(s.errorOf(&sp, err))
			continue
		}
		spans = append(spans, sp)
	}
	return spans
}

// span returns the span of a function by its number in the section.
func (s *sframeSource) span(i int) (span, error) {
	const perRow, most = 4, 32 // about the bytes of a row, and a bound of what a hostile section has allocated
	f, err := s.s.Function(i)
	start, end := Addr(f.Start), Addr(f.Start)+Addr(f.Size)
	if err == nil && end < start {
		err = fmt.Errorf("%w: address range overflows 64 bits", sframe.ErrMalformed)
	}
	return span{start: start, end: end, fullEnd: end, offset: f.Offset, pos: i, size: int(min(f.Rows, most)) * perRow}, err
}

func (s *sframeSource) named(Addr) (uint64, bool) { return 0, false }

func (s *sframeSource) position(sp *span) uint32 { return uint32(sp.pos) }

func (s *sframeSource) again(position uint32) span {
	sp, _ := s.span(int(position)) // collect has read it without an error
	return sp
}

// returnColumn returns rip: SFrame has no column numbers, the return address is a field of the row.
func (s *sframeSource) returnColumn(*span) int { return abi.RIP }

// errorOf replaces sentinels of package sframe by those of this package.
func (s *sframeSource) errorOf(sp *span, err error) *DecodeError {
	// Callers test for this package's errors only.
	for from, to := range map[error]error{
		sframe.ErrTruncated: ErrTruncated, sframe.ErrMalformed: ErrBadEncoding, sframe.ErrUnsupported: ErrUnsupported,
	} {
		if errors.Is(err, from) {
			err = cause(to, "%v", err)
		}
	}
	return &DecodeError{File: s.file, Section: SFrameName, Offset: sp.offset, HasFDE: true, Start: sp.start,
		End: sp.fullEnd, Err: err}
}

// interpret hands the rows of a function to sink.
func (s *sframeSource) interpret(sp *span, in *Interp, sink rowSink) error {
	b, err := s.block(sp, in, MaxRowsPerFDE)
	if err != nil {
		return err
	}
	// Blocks that repeat are few rows for much code: the bound is on what the sink gets.
	if b.rows(sp) > MaxRowsPerFDE {
		return cause(ErrUnsupported, "more than %d rows", MaxRowsPerFDE)
	}
	b.write(sp, sink)
	return nil
}

// sframeBlock is the rows of a function, which repeat every size bytes.
type sframeBlock struct {
	size   Addr    // bytes of code; the function's size if nothing repeats
	states []state // rows of one block
	starts []Addr  // from the block's beginning, by state
}

// rows returns how many rows there are at most in the function.
func (b *sframeBlock) rows(sp *span) uint64 {
	if b.size == 0 || sp.end <= sp.start {
		return 0
	}
	return (uint64(sp.end-sp.start-1)/uint64(b.size) + 1) * uint64(len(b.states))
}

// block reads the rows of a function's block, of which there must be no more than most. With an error it also returns
// those that were read.
func (s *sframeSource) block(sp *span, in *Interp, most uint64) (b sframeBlock, err error) {
	f, err := s.s.Function(sp.pos)
	if err != nil {
		return b, err
	}
	// Functions of a procedure linkage table have a block that repeats.
	if b.size = sp.end - sp.start; f.Repeat != 0 {
		b.size = Addr(f.Repeat)
	}
	// A function begins without a row before it.
	in.state, in.stack, in.settled = state{}, in.stack[:0], 0
	var last sframe.Rule // of rbp, in the row before
	for row, err := range s.s.All(&f) {
		if err != nil {
			return b, err
		}
		// Rows behind the function's end do not concern it.
		if Addr(row.Start) >= b.size {
			break // so do those after it
		}
		if uint64(len(b.states)) == most {
			return b, cause(ErrUnsupported, "more than %d rows", most)
		}
		if err := in.sframeRow(&row, f.Signal, row.FP != last); err != nil {
			return b, err
		}
		last = row.FP
		b.states, b.starts = append(b.states, in.state), append(b.starts, Addr(row.Start))
	}
	return b, nil
}

// write hands the rows of a function to a sink.
func (b *sframeBlock) write(sp *span, sink rowSink) {
	if len(b.states) == 0 {
		return
	}
	// Block by block to the function's end.
	for base := sp.start; base < sp.end; base += b.size {
		for i := range b.states {
			end := b.size
			if i+1 < len(b.states) {
				end = min(end, b.starts[i+1])
			}
			// The last block may be cut off by the function's end.
			from, to := base+b.starts[i], min(base+end, sp.end)
			if from >= to {
				break
			}
			sink.row(from, to, &b.states[i])
		}
		// Another block would begin behind the end: base must not wrap.
		if sp.end-base <= b.size {
			break
		}
	}
}

// sframeRow turns the state of the row before into the state of r. newFP says that the rule of
// rbp differs from the one there.
func (in *Interp) sframeRow(r *sframe.Row, signal, newFP bool) error {
	st := &in.state
	above := st.above
	st.row = Row{}
	if signal {
		st.row.Flags = RowSignal
	}
	if r.Outermost {
		st.above = 0
		return nil // without a rule for the return address
	}
	// SFrame keeps no rules for the other callee-saved registers.
	for i := range st.row.Regs {
		if abi.CalleeSaved>>i&1 != 0 {
			st.row.Regs[i].Kind = RuleUndefined
		}
	}
	var err error
	if st.row.CFA, err = in.sframeCFA(r.CFA); err != nil {
		return err
	}
	// rsp is the CFA in all rows.
	st.row.Regs[abi.RSP] = RegRule{Kind: RuleValOffset}
	if st.row.Regs[abi.RIP], err = in.sframeRule(r.RA); err != nil {
		return err
	}
	if st.row.Regs[abi.RBP], err = in.sframeRule(r.FP); err != nil {
		return err
	}
	// Only a new rule of rbp may be popped: see tableBuilder.popped.
	if st.fresh = 0; newFP {
		st.fresh = 1 << abi.RBP
	} else {
		st.above = above
	}
	in.settle()
	return nil
}

// sframeExpr returns the expression of a register plus an offset; with deref, of the word at that address. Expressions
// are interned as bytes of DWARF, so that those of both formats are one.
func (in *Interp) sframeExpr(r sframe.Rule, deref, pushed bool) (ExprID, error) {
	// DW_OP_bregN with the offset, then DW_OP_deref if need be.
	raw := AppendSLEB([]byte{dwOpBreg0 + r.Reg}, int64(r.Offset))
	if deref {
		raw = append(raw, dwOpDeref)
	}
	return in.exprs.intern(raw, pushed, false)
}

// sframeCFA converts the rule of a CFA: a register plus an offset, or the word there.
func (in *Interp) sframeCFA(r sframe.Rule) (CFARule, error) {
	if !r.Deref {
		return CFARule{Kind: CFARegOffset, Reg: uint16(r.Reg), Offset: int64(r.Offset)}, nil
	}
	id, err := in.sframeExpr(r, true, false)
	return CFARule{Kind: CFAExpr, Expr: id}, err
}

// sframeRule converts the rule of a saved register.
func (in *Interp) sframeRule(r sframe.Rule) (RegRule, error) {
	switch {
	// Base and Deref tell the four kinds of rules apart.
	case r.Base == sframe.NotSaved:
		return RegRule{Kind: RuleSameValue}, nil
	case r.Base == sframe.OnCFA && r.Deref:
		return RegRule{Kind: RuleOffset, Offset: int64(r.Offset)}, nil
	case r.Base == sframe.OnCFA:
		return RegRule{Kind: RuleValOffset, Offset: int64(r.Offset)}, nil
		// A register other than the CFA's: an expression.
	}
	kind := RuleValExpression
	if r.Deref {
		kind = RuleExpression
	}
	id, err := in.sframeExpr(r, false, true)
	return RegRule{Kind: kind, Expr: id}, err
}

// sframe finds .sframe, by its section header or through PT_GNU_SFRAME. It returns nil if the object has none. The
// error is ErrTruncated, of reading, or of a section that a loader changes: its bytes in memory are not known.
func (o *File) sframe() (*sframe.Section, error) {
	const ptGNUSFrame = elf.PT_LOOS + 0x474e554 // from binutils, include/elf/common.h
	var addr Addr
	var data []byte
	// By name first: stripped files have only the program header.
	for _, sec := range o.file.Sections {
		if sec.Name == SFrameName && hasBytes(sec) && data == nil {
			b, err := o.contents(sec)
			if err != nil {
				return nil, err
			}
			addr, data = Addr(sec.Addr), b
		}
	}
	for _, p := range o.file.Progs {
		if p.Type == ptGNUSFrame && p.Filesz > 0 && data == nil {
			if !o.holds(p.Off, p.Filesz) {
				return nil, cause(ErrTruncated, "truncated: %s ends at %#x, the file at %#x", SFrameName, p.Off+p.Filesz, o.size)
			}
			b, err := o.read(p.Off, p.Filesz)
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", SFrameName, err)
			}
			data = b
			addr = Addr(p.Vaddr)
		}
	}
	if data == nil {
		return nil, nil
	}
	rewrites, err := o.loaded(addr, data)
	if err == nil && len(rewrites) > 0 {
		err = errLoader
	}
	if err != nil {
		return nil, err
	}
	// Rows are decoded function by function, later.
	s, err := sframe.Parse(uint64(addr), data)
	if err != nil {
		return nil, (&sframeSource{file: o.name}).errorOf(&span{}, err).Err
	}
	return s, nil
}
