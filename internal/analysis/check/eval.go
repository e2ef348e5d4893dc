package check

import (
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
)

// word is a value of an expression: a number, or a state's value.
type word struct {
	isNum bool
	num   int64
	v     codeflow.Value
	read  bool // v is Unknown, and was read at a known place of the stack
}

func num(n int64) word { return word{isNum: true, num: n} }

func cfaPlus(n int64) word { return word{v: codeflow.Value{Kind: codeflow.Base, Off: int32(n)}} }

func (w word) known() bool { return w.isNum || w.v.Kind != codeflow.Unknown }

func (w word) plus(n int64) word {
	switch {
	case w.isNum:
		w.num += n
	case w.v.Kind == codeflow.Base:
		w.v.Off += int32(n)
	case n != 0:
		return word{read: w.read}
	}
	return w
}

// evaluate runs an expression on a state at pc.
func evaluate(e dwarfcfa.Expr, s *codeflow.State, pc uint64, pushed bool) word {
	var buf [8]word
	st := buf[:0]
	if pushed {
		st = append(st, cfaPlus(0))
	}
	pop := func() word {
		if len(st) == 0 {
			return word{}
		}
		w := st[len(st)-1]
		st = st[:len(st)-1]
		return w
	}
	for at := 0; at < len(e.Ops); at++ {
		op := &e.Ops[at]
		switch op.Code {
		case dwarfcfa.OpConst:
			st = append(st, num(op.Arg))
		case dwarfcfa.OpReg:
			switch {
			case op.Reg == 16:
				st = append(st, num(int64(pc)+op.Arg))
			case op.Reg < 16:
				st = append(st, word{v: s.Regs[hardware[op.Reg]]}.plus(op.Arg))
			default:
				st = append(st, word{})
			}
		case dwarfcfa.OpDup:
			w := pop()
			st = append(st, w, w)
		case dwarfcfa.OpDrop:
			pop()
		case dwarfcfa.OpSwap:
			b, a := pop(), pop()
			st = append(st, b, a)
		case dwarfcfa.OpDeref:
			a := pop()
			w := word{}
			if !a.isNum && a.v.Kind == codeflow.Base && op.Arg == 8 {
				w.v = s.Slot(a.v.Reg, a.v.Off)
				w.read = w.v.Kind == codeflow.Unknown
			}
			st = append(st, w)
		case dwarfcfa.OpBranch:
			if c := pop(); !c.isNum {
				return word{}
			} else if c.num != 0 {
				at = op.Jump - 1
			}
		case dwarfcfa.OpSkip:
			at = op.Jump - 1
		default:
			pops, pushes := op.Effect()
			if pops == 2 && pushes == 1 {
				b := pop()
				a := pop()
				st = append(st, binary(op.Code, a, b))
				continue
			}
			for range pops {
				pop()
			}
			for range pushes {
				st = append(st, word{}) // not known
			}
		}
	}
	return pop()
}

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
	is := func(c bool) word {
		if c {
			return num(1)
		}
		return num(0)
	}
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
		if uint64(b.num) < 64 {
			return num(a.num << uint(b.num))
		}
		return num(0)
	case dwarfcfa.OpShr:
		if uint64(b.num) < 64 {
			return num(int64(uint64(a.num) >> uint(b.num)))
		}
		return num(0)
	case dwarfcfa.OpEq:
		return is(a.num == b.num)
	case dwarfcfa.OpNe:
		return is(a.num != b.num)
	case dwarfcfa.OpLt:
		return is(a.num < b.num)
	case dwarfcfa.OpLe:
		return is(a.num <= b.num)
	case dwarfcfa.OpGt:
		return is(a.num > b.num)
	case dwarfcfa.OpGe:
		return is(a.num >= b.num)
	}
	return word{}
}
