package dwarfcfa

import (
	"encoding/binary"

	"github.com/ehasm/ehasm/abi"
)

// sframeCFI rewrites an SFrame section as a section of CIEs and FDEs, for code that shows or judges
// rows of FDEs. A function has an FDE for each stretch with rows; a function with a bad row has
// none.
//
// There are at most as many rows as bytes in the section and in the code: a row takes 3 bytes, and
// rows that repeat, as those of a PLT, do so over code. Functions beyond have none, so a hostile
// section cannot make the result large.
func (o *File) sframeCFI() (*Section, error) {
	s, err := o.sframe()
	if err != nil || s == nil {
		return nil, err
	}
	source := &sframeSource{s, o.name}
	in := NewInterp()
	w := cfiWriter{exprs: &in.exprs}
	w.cie("zR")
	w.signal = len(w.b)
	w.cie("zRS")
	left := uint64(s.Size())
	for _, c := range o.code {
		left += uint64(c.end - c.start)
	}
	spans := source.collect(new(Report))
	for i := range spans {
		b, err := source.block(&spans[i], in, left)
		n := b.rows(&spans[i])
		if err == nil && n <= left {
			b.write(&spans[i], &w)
			w.finish()
			left -= n
		} else {
			left -= uint64(len(b.states)) // reading them took time, too
		}
	}
	sec := NewSection(o.name, SourceEHFrame, 0, w.b, Bases{})
	sec.Name = SFrameName
	return sec, nil
}

// cfiWriter writes rows as FDEs. It is a rowSink.
type cfiWriter struct {
	b      []byte
	exprs  *exprPool
	signal int  // offset of the CIE of signal frames; the other begins at 0
	fde    int  // offset of the FDE being written, 0: none
	start  Addr // of the FDE
	last   Addr // of its last row
	end    Addr
	flags  RowFlags
	rbp    RegRule // in the row before
}

// cie writes a CIE in which all callee-saved registers but rbp are undefined. SFrame does not say where the others
// are, which does not mean that they are unchanged.
func (w *cfiWriter) cie(augmentation string) {
	const pointers = 0x00 // DW_EH_PE_absptr
	off := len(w.b)
	w.b = append(w.b, 0, 0, 0, 0, 0, 0, 0, 0, 1) // length, id, version
	w.b = append(w.b, augmentation...)
	w.b = append(w.b, 0, 1, 0x7f, abi.RIP, 1, pointers) // factors 1 and -1, return address, augmentation data
	for reg := range uint8(abi.RIP) {
		if abi.CalleeSaved>>reg&1 != 0 && reg != abi.RBP && reg != abi.RSP {
			w.b = append(w.b, byte(CFAUndefinedReg), reg)
		}
	}
	w.close(off)
}

// close pads the entry at an offset and writes its length.
func (w *cfiWriter) close(off int) {
	for len(w.b)%8 != 0 {
		w.b = append(w.b, byte(CFANop))
	}
	binary.LittleEndian.PutUint32(w.b[off:], uint32(len(w.b)-off-4))
}

// finish completes the FDE being written, if there is one, with its size and length.
func (w *cfiWriter) finish() {
	if w.fde != 0 {
		binary.LittleEndian.PutUint64(w.b[w.fde+16:], uint64(w.end-w.start))
		w.close(w.fde)
	}
	w.fde = 0
}

// row writes a row: as the next of the FDE, or of a new one if it does not follow the row before.
func (w *cfiWriter) row(start, end Addr, st *state) {
	le := binary.LittleEndian
	if w.fde == 0 || start != w.end || st.row.Flags != w.flags {
		w.finish()
		cie := 0
		if st.row.Flags&RowSignal != 0 {
			cie = w.signal
		}
		w.fde, w.start, w.flags, w.rbp = len(w.b), start, st.row.Flags, RegRule{}
		w.b = le.AppendUint32(w.b, 0)
		w.b = le.AppendUint32(w.b, uint32(len(w.b)-cie))
		w.b = le.AppendUint64(w.b, uint64(start))
		// length, CIE pointer, begin; then the size, set by finish, and no augmentation data
		w.b = append(le.AppendUint64(w.b, 0), 0)
	} else {
		w.b = le.AppendUint32(append(w.b, byte(CFAAdvanceLoc4)), uint32(start-w.last))
	}
	w.last, w.end = start, end
	cfa, regs := &st.row.CFA, &st.row.Regs
	if regs[abi.RIP].Kind == RuleUnspecified {
		w.b = append(w.b, byte(CFAUndefinedReg), abi.RIP)
		return
	}
	if cfa.Kind == CFAExpr {
		w.b = w.block(append(w.b, byte(CFADefCFAExpression)), cfa.Expr)
	} else {
		w.b = AppendSLEB(append(w.b, byte(CFADefCFASF), byte(cfa.Reg)), -cfa.Offset)
	}
	w.rule(abi.RIP, regs[abi.RIP])
	if w.rbp != regs[abi.RBP] { // a rule that stands on is not set again: see tableBuilder.popped
		w.rule(abi.RBP, regs[abi.RBP])
		w.rbp = regs[abi.RBP]
	}
}

// rule writes the rule of a register. Offsets are factored by -1.
func (w *cfiWriter) rule(reg uint8, rule RegRule) {
	switch rule.Kind {
	case RuleSameValue:
		w.b = append(w.b, byte(CFASameValue), reg)
	case RuleOffset:
		w.b = AppendSLEB(append(w.b, byte(CFAOffsetExtendedSF), reg), -rule.Offset)
	case RuleValOffset:
		w.b = AppendSLEB(append(w.b, byte(CFAValOffsetSF), reg), -rule.Offset)
	case RuleExpression:
		w.b = w.block(append(w.b, byte(CFAExpression), reg), rule.Expr)
	case RuleValExpression:
		w.b = w.block(append(w.b, byte(CFAValExpression), reg), rule.Expr)
	}
}

// block appends an expression with its length.
func (w *cfiWriter) block(b []byte, id ExprID) []byte {
	raw := w.exprs.entries[id].expr.Raw
	return append(binary.AppendUvarint(b, uint64(len(raw))), raw...)
}
