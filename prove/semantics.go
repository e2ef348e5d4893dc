package prove

import "fmt"

// This file is what the proof takes the processor to do: each decoded instruction as terms over
// registers and memory. Flags are kept as what made them, see flags.

// effect applies the meaning of the instructions that are no jumps to s (Intel SDM volume 2):
// the whole of what this package takes the processor to do. TestProcessor compares
// it with the processor.
func (x *exec) effect(s *state, i *inst) error {
	t := x.t
	switch i.op {
	// The source may be smaller than the destination: sw bytes, extended.
	case iMov, iMovzx, iMovsx:
		size := i.w
		if i.op != iMov {
			size = i.sw
		}
		v, err := x.read(s, i, i.src, size)
		if err != nil {
			return err
		}
		if i.op == iMovsx {
			v = t.low(t.sext(v, size), i.w)
		}
		return x.write(s, i.dst, i.w, v)
	// lea computes in 8 bytes and keeps the low ones.
	case iLea:
		return x.write(s, i.dst, i.w, t.low(x.address(s, i.src), i.w))
	case iPush:
		v, err := x.read(s, i, i.src, 8)
		if err != nil {
			return err
		}
		return x.push(s, v)
	case iPop:
		v, err := x.pop(s)
		if err != nil {
			return err
		}
		return x.write(s, i.dst, 8, v)
	// Only the carry is known afterwards.
	case iClc, iStc:
		s.fl = flags{kind: flCarry, cf: t.bool(i.op == iStc)}
		return nil
	// cqo fills rdx with the sign of rax.
	case iCqo:
		s.reg[rDX] = t.shift(tSar, s.reg[rAX], t.con(63))
		return nil
	case iDiv, iIdiv:
		return x.divide(s, i)
	case iCmov, iSet:
		return x.conditional(s, i)
	case iMovups, iMovlps, iMovhps, iMovd, iMovdq, iPshufd0, iPminub, iPcmpeqb, iPmovmskb:
		return x.vector(s, i)
	}
	// The rest sets flags from its operands.
	return x.arithmetic(s, i)
}

// arithmetic does an instruction that sets flags. The destination is read first, also by cmp and
// test, which do not write it.
func (x *exec) arithmetic(s *state, i *inst) error {
	a, err := x.read(s, i, i.dst, i.w)
	if err != nil {
		return err
	}
	switch i.op {
	case iNot, iNeg, iInc, iDec:
		return x.unary(s, i, a)
	}
	b, err := x.read(s, i, i.src, i.w)
	if err != nil {
		return err
	}
	switch i.op {
	case iAdd, iSub, iCmp, iSbb:
		return x.sum(s, i, a, b)
	case iAnd, iOr, iXor, iTest:
		return x.logic(s, i, a, b)
	// imul's flags are not modelled: nothing may test them.
	case iMul, iMul3:
		if i.op == iMul3 {
			a, b = b, x.t.low(x.t.con(uint64(i.imm)), i.w)
		}
		err := x.write(s, i.dst, i.w, x.t.low(x.t.mul(a, b), i.w))
		s.fl = flags{}
		return err
	case iShl, iShr, iSar:
		return x.shift(s, i, a, b)
	case iBt, iBts, iBtr:
		return x.bitTest(s, i, a, b)
	case iBsf, iTzcnt:
		// The result of bsf for 0 is not defined, and older processors run tzcnt as bsf.
		if truth, known := x.decide(s, x.t.eq(b, x.t.con(0))); !known || truth {
			return fmt.Errorf("the lowest bit of %s, which may be 0", x.t.text(b))
		}
		s.fl = flags{}
		return x.write(s, i.dst, i.w, x.t.firstBit(b))
	}
	return fmt.Errorf("an instruction without a meaning here")
}

// result writes v, what an instruction has computed, to its destination. The flags are those of the
// result, and carry, which is noTerm if it is not known.
func (x *exec) result(s *state, i *inst, v, carry term) error {
	// Carries above the operand's size are lost.
	v = x.t.low(v, i.w)
	s.fl = flags{kind: flValue, w: i.w, a: v, cf: carry}
	return x.write(s, i.dst, i.w, v)
}

// unary returns the meaning of not, neg, inc and dec.
func (x *exec) unary(s *state, i *inst, a term) error {
	t := x.t
	switch i.op {
	case iNot:
		// not leaves all flags alone.
		return x.write(s, i.dst, i.w, t.low(t.not(a), i.w))
	case iNeg:
		// neg sets the carry unless the operand is 0.
		return x.result(s, i, t.neg(a), literal(x.t, t.eq(a, t.con(0)), true).term(x.t))
	}
	by := int64(1)
	if i.op == iDec {
		by = -1
	}
	carry := noTerm // inc and dec keep it
	if l, ok := s.fl.condition(x.t, 2); ok {
		carry = l.term(x.t)
	}
	return x.result(s, i, t.plus(a, by), carry)
}

// sum returns the meaning of add, sub, cmp and sbb. Only add keeps its carry: as v < a. After sub
// and cmp the flags stay a comparison of a and b, from which condition makes any test.
func (x *exec) sum(s *state, i *inst, a, b term) error {
	t := x.t
	switch i.op {
	case iAdd:
		// A sum below one of its operands has wrapped.
		v := t.low(t.add(a, b), i.w)
		return x.result(s, i, v, t.ult(v, a))
	// sbb subtracts the carry as well.
	case iSbb:
		carry, ok := s.fl.condition(x.t, 2)
		if !ok || i.w < 4 {
			return fmt.Errorf("sbb with a carry that is not known")
		}
		err := x.result(s, i, t.sub(t.sub(a, b), carry.term(x.t)), noTerm)
		s.fl = flags{} // the emitter uses none of its flags
		return err
	}
	// cmp is sub without the result.
	var err error
	if i.op == iSub {
		err = x.write(s, i.dst, i.w, t.low(t.sub(a, b), i.w))
	}
	s.fl = flags{kind: flCmp, w: i.w, a: a, b: b, cf: noTerm}
	return err
}

// logic returns the meaning of and, or, xor and test, which clear the carry.
func (x *exec) logic(s *state, i *inst, a, b term) error {
	t := x.t
	zero := t.con(0)
	switch i.op {
	case iAnd:
		return x.result(s, i, t.and(a, b), zero)
	case iOr:
		return x.result(s, i, t.or(a, b), zero)
	case iXor:
		return x.result(s, i, t.xor(a, b), zero)
	}
	// test is and without the result.
	s.fl = flags{kind: flValue, w: i.w, a: t.and(a, b), cf: zero}
	return nil
}

// bitTest returns the meaning of bt, bts and btr. The bit number of a register operand counts
// modulo its size.
func (x *exec) bitTest(s *state, i *inst, a, b term) error {
	t := x.t
	if i.w == 4 {
		b = t.and(b, t.con(31))
	} else if i.w != 8 {
		return fmt.Errorf("a bit of %d bytes", i.w)
	}
	s.fl = flags{kind: flCarry, cf: t.bit(a, b)}
	switch i.op {
	case iBts:
		return x.write(s, i.dst, i.w, t.low(t.setBit(a, b), i.w))
	case iBtr:
		return x.write(s, i.dst, i.w, t.low(t.clearBit(a, b), i.w))
	}
	return nil
}

// shift returns the meaning of shl, shr and sar. By cl, a shift by 0 keeps the flags, so
// that nothing is known of them.
func (x *exec) shift(s *state, i *inst, a, b term) error {
	t := x.t
	op := [...]termOp{tShl, tShr, tSar}[i.op-iShl]
	constant := i.src.kind == opImm
	if !constant {
		// Counts are taken modulo 64, or 32, which the terms have no operation for.
		if i.w != 8 {
			return fmt.Errorf("a shift of %d bytes by cl", i.w)
		}
		b = t.and(b, t.con(63))
	}
	// The upper half of a 4-byte operand is 0; its sign bit is bit 31.
	if op == tSar && i.w < 8 {
		a = t.sext(a, i.w)
	}
	v := t.low(t.shift(op, a, b), i.w)
	s.fl = flags{}
	if constant {
		s.fl = flags{kind: flValue, w: i.w, a: v, cf: noTerm}
	}
	return x.write(s, i.dst, i.w, v)
}

// conditional returns the meaning of cmov and set. set writes 0 or 1; cmov reads its source in any
// case.
// Flags that are not known make both values possible: refuse.
func (x *exec) conditional(s *state, i *inst) error {
	l, ok := s.fl.condition(x.t, i.cc)
	if !ok {
		return fmt.Errorf("a condition that is not known")
	}
	if i.op == iSet {
		return x.write(s, i.dst, 1, l.term(x.t))
	}
	a, err := x.read(s, i, i.src, i.w)
	if err != nil {
		return err
	}
	b, err := x.read(s, i, i.dst, i.w)
	if err != nil {
		return err
	}
	// ite chooses a if the condition's term is true; a negated literal swaps.
	if l.neg {
		a, b = b, a
	}
	return x.write(s, i.dst, i.w, x.t.ite(l.t, a, b))
}

// divide returns the meaning of div and idiv where they cannot trap: the dividend is a
// word extended to two, the divisor is not 0, and for idiv, it is a value that
// cannot be -1 (see divisor). The dividend is rdx:rax. Only a rax that is extended to two words is
// understood.
func (x *exec) divide(s *state, i *inst) error {
	t := x.t
	// The operand is the divisor.
	d, err := x.read(s, i, i.dst, i.w)
	if err != nil {
		return err
	}
	if i.w != 8 {
		return fmt.Errorf("a division of %d bytes", i.w)
	}
	a := s.reg[rAX]
	s.fl = flags{}
	if i.op == iDiv {
		// A divisor of 0 traps.
		if zero, known := x.decide(s, t.eq(d, t.con(0))); !known || zero {
			return fmt.Errorf("a division by %s, which may be 0", t.text(d))
		}
		// A dividend of more than one word may overflow, which traps, too.
		if !t.isZero(s.reg[rDX]) {
			return fmt.Errorf("a division of %s", t.text(s.reg[rDX]))
		}
		s.reg[rAX] = t.variable("quotient", ^uint64(0)) // no caller of this needs it
		s.reg[rDX] = t.umod(a, d)
		return nil
	}
	// cqo must have run before idiv.
	if s.reg[rDX] != t.shift(tSar, a, t.con(63)) {
		return fmt.Errorf("a division of %s", t.text(s.reg[rDX]))
	}
	// A constant divisor other than 0 and -1 cannot trap.
	if cd, ok := t.value(d); ok && cd != 0 && cd != ^uint64(0) {
		s.reg[rAX], s.reg[rDX] = t.sdiv(a, d), t.variable("remainder", ^uint64(0))
		return nil
	}
	// INT64_MIN / -1 overflows; divisor(b) excludes it.
	b, ok := guarded(x.t, d)
	if !ok {
		return fmt.Errorf("a division by %s, which may overflow", t.text(d))
	}
	if zero, known := x.decide(s, t.eq(b, t.con(0))); !known || zero {
		return fmt.Errorf("a division by %s, which may be 0", t.text(b))
	}
	s.reg[rAX] = t.sdiv(a, d)
	s.reg[rDX] = t.variable("remainder", ^uint64(0))
	return nil
}

// guarded reports whether d is divisor(b) of some b.
func guarded(t *terms, d term) (term, bool) {
	if t.isZero(t.eq(d, t.con(^uint64(0)))) { // it cannot be -1: divisor(d) is d
		return d, true
	}
	// divisor(b) is (b ^ m) - m: find b in it.
	// Look through the sum's parts for an xor, and try both of its operands as b.
	for y := d; t.nodes[y].op == tAdd; y = t.nodes[y].b {
		n := t.nodes[t.nodes[y].a]
		if n.op != tXor {
			continue
		}
		for _, b := range [2]term{n.a, n.b} {
			if divisor(t, b) == d {
				return b, true
			}
		}
	}
	return 0, false
}

// sign is -1 if b is -1, else 0; a divided by b is then negated(a) divided by
// divisor(b), which is never -1 and 0 only if b is (TestLemmas).
func sign(t *terms, b term) term { return t.neg(t.eq(b, t.con(^uint64(0)))) }

// negated is -a if b is -1, else a: (a ^ m) - m with m = sign(b).
func negated(t *terms, a, b term) term {
	m := sign(t, b)
	return t.sub(t.xor(a, m), m)
}

// divisor is 1 if b is -1, else b.
func divisor(t *terms, b term) term { return negated(t, b, b) }

// vector does an SSE instruction. An SSE register is two terms, the low 8 bytes first; only xmm0 to
// xmm5 are used.
func (x *exec) vector(s *state, i *inst) error {
	t := x.t
	// Higher registers are not modelled.
	for _, o := range []operand{i.dst, i.src} {
		if o.kind == opXMM && int(o.reg) >= len(s.xmm) {
			return fmt.Errorf("register xmm%d", o.reg)
		}
	}
	// The two halves are separate terms: most instructions work on one.
	switch i.op {
	case iMovlps, iMovhps:
		return x.moveHalf(s, i)
	case iMovups, iMovdq:
		return x.moveVector(s, i)
	case iMovd:
		v, err := x.read(s, i, i.src, 4)
		s.xmm[i.dst.reg] = [2]term{v, t.con(0)}
		return err
	// pshufd with pattern 0: the lowest 4 bytes in all four places.
	case iPshufd0:
		low := t.low(s.xmm[i.src.reg][0], 4)
		both := t.or(low, t.shlConst(low, 32))
		s.xmm[i.dst.reg] = [2]term{both, both}
	case iPminub, iPcmpeqb:
		for k := range 2 {
			s.xmm[i.dst.reg][k] = bytewise(x.t, i.op, s.xmm[i.dst.reg][k], s.xmm[i.src.reg][k])
		}
	// Bit i of the result is the highest bit of byte i.
	case iPmovmskb:
		v := s.xmm[i.src.reg]
		lo, hi := bytewise(x.t, i.op, v[0], 0), bytewise(x.t, i.op, v[1], 0)
		return x.write(s, i.dst, 4, t.or(lo, t.shlConst(hi, 8)))
	}
	return nil
}

// moveHalf returns the meaning of movlps and movhps: half of an SSE register, from or to memory.
func (x *exec) moveHalf(s *state, i *inst) error {
	half := func(o operand) *term {
		if o.high {
			return &s.xmm[o.reg][1]
		}
		return &s.xmm[o.reg][0]
	}
	if i.dst.kind == opXMM {
		v, err := x.load(s, x.address(s, i.src), 8)
		// The other half keeps its value.
		*half(i.dst) = v
		return err
	}
	return x.store(s, x.address(s, i.dst), 8, *half(i.src))
}

// moveVector returns the meaning of movups, movdqu and movdqa.
func (x *exec) moveVector(s *state, i *inst) error {
	v, err := x.readVector(s, i)
	if err != nil {
		return err
	}
	if i.dst.kind == opXMM {
		s.xmm[i.dst.reg] = v
		return nil
	}
	addr := x.address(s, i.dst)
	// The low half first, as it lies in memory.
	for k := range v {
		if err := x.store(s, x.t.plus(addr, int64(8*k)), 8, v[k]); err != nil {
			return err
		}
	}
	return nil
}

// readVector reads 16 bytes, from an SSE register or memory.
func (x *exec) readVector(s *state, i *inst) (v [2]term, err error) {
	t := x.t
	if i.src.kind == opXMM {
		return s.xmm[i.src.reg], nil
	}
	addr := x.address(s, i.src)
	// The keys are in the file's data, at an address that depends on the pc: an event, which the
	// lookup's proof compares.
	if i.op == iMovdq { // the keys of a record
		s.event = append(s.event, event{evRead, addr, 16, 0})
		return [2]term{t.load(addr, 8), t.load(t.plus(addr, 8), 8)}, nil
	}
	// movups reads ordinary memory.
	for k := range v {
		if v[k], err = x.load(s, t.plus(addr, int64(8*k)), 8); err != nil {
			return v, err
		}
	}
	return v, nil
}

// bytewise returns the term of iPminub, iPcmpeqb or iPmovmskb on 8 bytes; the last has one operand.
func bytewise(t *terms, op instOp, a, b term) term {
	// pmovmskb gives 8 bits, the others 8 bytes.
	mask := ^uint64(0)
	if op == iPmovmskb {
		mask = 255
	}
	va, ca := t.value(a)
	vb, cb := t.value(b)
	if op == iPmovmskb {
		vb, cb = 0, true
	}
	// Constants are computed; anything else stays an operation without rules.
	if ca && cb {
		return t.con(bytes8(op, va, vb))
	}
	if op != iPmovmskb && a > b { // both operations on two operands are symmetric: one order for equal terms
		a, b = b, a
	}
	return t.make(termNode{op: tVec, a: a, b: b, k: uint64(op)}, mask)
}

// bytes8 computes an operation on the 8 bytes of constants.
func bytes8(op instOp, a, b uint64) (v uint64) {
	for k := 0; k < 64; k += 8 {
		p, q := byte(a>>k), byte(b>>k)
		switch op {
		case iPminub:
			v |= uint64(min(p, q)) << k
		case iPcmpeqb:
			if p == q {
				v |= 255 << k
			}
		case iPmovmskb:
			v |= uint64(p>>7) << (k / 8)
		}
	}
	return v
}

// read returns the value of an operand of size bytes, zero-extended.
func (x *exec) read(s *state, i *inst, o operand, size uint8) (term, error) {
	switch o.kind {
	case opReg:
		return x.t.low(s.reg[o.reg], size), nil
	case opImm:
		return x.t.low(x.t.con(uint64(i.imm)), size), nil
	case opMem, opRIP:
		return x.load(s, x.address(s, o), size)
	}
	return 0, fmt.Errorf("an operand that is not read here")
}

// write sets an operand of size bytes to v: 4 bytes of a register clear the upper half, fewer keep
// what is above them.
func (x *exec) write(s *state, o operand, size uint8, v term) error {
	switch o.kind {
	case opReg:
		if size < 4 {
			// Writes of 1 and 2 bytes keep the register's other bytes.
			v = x.t.or(x.t.and(s.reg[o.reg], x.t.con(^sizeMask(size))), x.t.low(v, size))
		}
		s.reg[o.reg] = v
		return nil
	case opMem, opRIP:
		return x.store(s, x.address(s, o), size, x.t.low(v, size))
	}
	return fmt.Errorf("an operand that is not written here")
}
