package check

import (
	"cmp"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
)

// This file evaluates DWARF expressions on abstract states. The operations are those that package dwarfcfa decodes to;
// a result that depends on anything the state does not know is unknown, which no finding is made of.

// word is a value of an expression: a number, or a state's value. The zero word is one of which nothing is known.
type word struct {
	isNum bool
	num   int64
	v     codeflow.Value
	read  bool // v is Unknown, and was read at a known place of the stack
}

func num(n int64) word { return word{isNum: true, num: n} }

// known reports whether a word is a number, or a value that the state knows.
func (w word) known() bool { return w.isNum || w.v.Kind != codeflow.Unknown }

// plus returns w + n. The sum is unknown for an entry value, since no place holds it, and for an address farther from
// its base than an offset can say.
func (w word) plus(n int64) word {
	switch {
	case w.isNum:
		w.num += n
	case w.v.Kind == codeflow.Base:
		w.v = w.v.Plus(n)
	case n != 0:
		return word{read: w.read}
	}
	return w
}

// words is the stack of an expression. What is taken from an empty one is not known: the row's program is wrong then,
// which an unwinder would report in its own way. It is passed by value: a pointer to it would put it on the heap.
type words []word

// pop returns the last word and the others.
func (st words) pop() (word, words) {
	if n := len(st); n > 0 {
		return st[n-1], st[:n-1]
	}
	return word{}, st
}

// evaluate runs an expression (DWARF 5, 2.5.1) on a state at pc. With pushed, it begins with the CFA on the stack, as
// expressions of registers do. Each operation either pushes a word that is known, or one that is not, so that a wrong
// result is no worse than none. Jumps lead forward only, which the decoder sees to.
func evaluate(e dwarfcfa.Expr, s *codeflow.State, pc uint64, pushed bool) word {
	var buf [8]word
	st := words(buf[:0])
	if pushed {
		st = append(st, word{v: codeflow.Value{Kind: codeflow.Base}})
	}
	var w word
	for i := 0; i < len(e.Ops); i++ {
		op := &e.Ops[i]
		switch op.Code {
		case dwarfcfa.OpBranch:
			w, st = st.pop()
			if !w.isNum {
				return word{} // where it goes on depends on what is not known
			}
			if w.num != 0 {
				i = op.Jump - 1
			}
		case dwarfcfa.OpSkip:
			i = op.Jump - 1
		default:
			st = st.execute(op, s, pc)
		}
	}
	w, _ = st.pop()
	return w
}

// execute runs an operation that is no jump.
func (st words) execute(op *dwarfcfa.ExprOp, s *codeflow.State, pc uint64) words {
	var a, b word
	switch op.Code {
	case dwarfcfa.OpConst:
		return append(st, num(op.Arg))
	case dwarfcfa.OpReg:
		switch {
		case op.Reg == 16: // rip is the pc that the row is looked up for
			return append(st, num(int64(pc)+op.Arg))
		case op.Reg < 16:
			return append(st, word{v: s.Regs[hardware[op.Reg]]}.plus(op.Arg))
		}
		return append(st, word{})
	case dwarfcfa.OpDup:
		a, st = st.pop()
		return append(st, a, a)
	case dwarfcfa.OpDrop:
		_, st = st.pop()
		return st
	case dwarfcfa.OpSwap:
		b, st = st.pop()
		a, st = st.pop()
		return append(st, b, a)
	case dwarfcfa.OpDeref:
		a, st = st.pop()
		return append(st, load(a, op.Arg, s))
	}
	pops, pushes := op.Effect()
	if pops == 2 && pushes == 1 {
		b, st = st.pop()
		a, st = st.pop()
		return append(st, binary(op.Code, a, b))
	}
	for range pops {
		_, st = st.pop()
	}
	for range pushes {
		st = append(st, word{}) // an operation that no row of a compiler has
	}
	return st
}

// load reads size bytes at an address. Only whole words of the stack are known: DW_OP_deref_size of less would need the
// word's own bytes.
func load(a word, size int64, s *codeflow.State) (w word) {
	if !a.isNum && a.v.Kind == codeflow.Base && size == 8 {
		w.v = s.Slot(a.v.Reg, a.v.Off)
		w.read = w.v.Kind == codeflow.Unknown
	}
	return w
}

// binary returns the result of an operation on a, which was pushed first, and b. An address plus or minus a number is
// an address; all other operations want numbers. Comparisons are signed and give 0 or 1, and shifts by 64 and more give
// 0.
func binary(code dwarfcfa.ExprCode, a, b word) word {
	switch code {
	case dwarfcfa.OpPlus:
		if b.isNum {
			return a.plus(b.num)
		}
		if a.isNum {
			return b.plus(a.num)
		}
		return word{}
	case dwarfcfa.OpMinus:
		if b.isNum {
			return a.plus(-b.num)
		}
		return word{}
	}
	if !a.isNum || !b.isNum {
		return word{}
	}
	c := cmp.Compare(a.num, b.num)
	switch code {
	case dwarfcfa.OpAnd:
		return num(a.num & b.num)
	case dwarfcfa.OpOr:
		return num(a.num | b.num)
	case dwarfcfa.OpXor:
		return num(a.num ^ b.num)
	case dwarfcfa.OpMul:
		return num(a.num * b.num)
	case dwarfcfa.OpShl:
		return num(a.num << uint64(b.num))
	case dwarfcfa.OpShr:
		return num(int64(uint64(a.num) >> uint64(b.num)))
	}
	holds, ok := map[dwarfcfa.ExprCode]bool{dwarfcfa.OpEq: c == 0, dwarfcfa.OpNe: c != 0, dwarfcfa.OpLt: c < 0,
		dwarfcfa.OpLe: c <= 0, dwarfcfa.OpGt: c > 0, dwarfcfa.OpGe: c >= 0}[code]
	if holds {
		return num(1)
	}
	if ok {
		return num(0)
	}
	return word{}
}
