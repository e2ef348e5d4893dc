package dwarfcfa

import (
	"math"

	"github.com/ehasm/ehasm/abi"
)

// This file is the definition of a step: what generated code must do, in the plainest form (docs/abi.md, section 2).
// Tests compare all other ways to take a step with it.

// WordReader is the memory of a target: 8-byte little-endian words at any
// address, aligned or not. ok is false if the word is unreadable.
type WordReader interface {
	ReadWord(addr uint64) (word uint64, ok bool)
}

// Step is the reference evaluator: it replaces the registers of a frame by
// those of its caller, as one step of _eh_elf_walk does (abi.SymbolWalk). bias
// is the object's load bias. If it returns abi.StatusOK, regs are the caller's;
// otherwise only regs.Status has changed.
func (t *Table) Step(regs *abi.Regs, mem WordReader, bias uint64) abi.Status {
	return takeStep(t, regs, bias, mem)
}

// rowAt returns the row for a pc, or nil if there is none, and the pool of its
// expressions.
func (t *Table) rowAt(pc Addr) (*Row, []Expr) {
	r, ok := t.Lookup(pc)
	if !ok {
		return nil, nil
	}
	return &t.Rows[r.Row], t.Exprs
}

// rowSource is Table or LazyTable.
type rowSource interface {
	rowAt(pc Addr) (*Row, []Expr)
}

// takeStep replaces the registers by the caller's. If there is no caller, only the status changes.
func takeStep(t rowSource, regs *abi.Regs, bias uint64, mem WordReader) abi.Status {
	var next abi.Regs
	status := stepTo(&next, t, regs, bias, mem)
	if status == abi.StatusOK {
		*regs = next
	}
	regs.Status = status
	return status
}

// stepTo leaves the caller's registers in next, which is zero before.
func stepTo(next *abi.Regs, t rowSource, regs *abi.Regs, bias uint64, mem WordReader) abi.Status {
	const needed = 1<<abi.RIP | 1<<abi.RSP
	if regs.Valid&needed != needed {
		return abi.StatusBadRegister
	}
	row, exprs := t.rowAt(Addr(regs.LookupPC() - bias))
	switch {
	case row == nil:
		return abi.StatusNoInfo
	case row.Regs[abi.RIP].Kind == RuleUndefined:
		return abi.StatusOutermost
	case row.Flags&RowNotCompiled != 0:
		return abi.StatusNotCompiled
	}
	// The CFA first: all rules may count from it. Then the return address, without which there is
	// no caller.
	e := evaluator{exprs: exprs, regs: regs, bias: bias, mem: mem}
	if status := e.setCFA(row.CFA); status != abi.StatusOK {
		return status
	}
	pc, status := e.column(abi.RIP, row.Regs[abi.RIP])
	if status != abi.StatusOK {
		return status
	}
	next.Reg = regs.Reg // registers without a value keep their old word, but lose their bit
	next.Reg[abi.RIP], next.Valid = pc, 1<<abi.RIP
	for i := range abi.RIP {
		if v, status := e.column(i, row.Regs[i]); status == abi.StatusOK {
			next.Reg[i] = v
			next.Valid |= 1 << i
		}
	}
	if row.Flags&RowSignal != 0 {
		next.Exact = 1 // behind a signal frame the pc is exact, no return address
	}
	return abi.StatusOK
}

// evaluator holds what the rules of a row are evaluated on: the registers
// before the step, and the CFA.
type evaluator struct {
	exprs []Expr
	regs  *abi.Regs // before the step
	bias  uint64    // load bias of the object
	mem   WordReader
	cfa   uint64 // set by setCFA, before any rule
}

// setCFA computes the CFA of the frame.
func (e *evaluator) setCFA(rule CFARule) (status abi.Status) {
	switch rule.Kind {
	case CFARegOffset:
		e.cfa, status = e.reg(rule.Reg)
		e.cfa += uint64(rule.Offset)
		return status
	case CFAExpr:
		e.cfa, status = e.expr(rule.Expr)
		return status
	}
	return abi.StatusNotCompiled
}

// reg returns a register, or StatusBadRegister if it is not valid.
func (e *evaluator) reg(reg uint16) (uint64, abi.Status) {
	if e.regs.Valid&(1<<reg) == 0 {
		return 0, abi.StatusBadRegister
	}
	return e.regs.Reg[reg], abi.StatusOK
}

// word returns a word of memory, or StatusUnreadable if it is unreadable.
func (e *evaluator) word(addr uint64) (uint64, abi.Status) {
	if w, ok := e.mem.ReadWord(addr); ok {
		return w, abi.StatusOK
	}
	return 0, abi.StatusUnreadable
}

// column evaluates the rule of register i. Any status but StatusOK means that
// the caller's value is not known, and why.
func (e *evaluator) column(i int, rule RegRule) (uint64, abi.Status) {
	switch rule.Kind {
	case RuleSameValue:
		return e.reg(uint16(i))
	case RuleRegister:
		return e.reg(rule.Reg)
	case RuleOffset:
		return e.word(e.cfa + uint64(rule.Offset))
	case RuleValOffset:
		return e.cfa + uint64(rule.Offset), abi.StatusOK
	case RuleExpression:
		addr, status := e.expr(rule.Expr)
		if status != abi.StatusOK {
			return 0, status
		}
		return e.word(addr)
	case RuleValExpression:
		return e.expr(rule.Expr)
	}
	return 0, abi.StatusBadRegister // undefined
}

// expr evaluates an expression (DWARF 5 §2.5.1). The first operation that
// fails decides the status; a division by zero has no value, which is
// StatusUnreadable.
func (e *evaluator) expr(id ExprID) (uint64, abi.Status) {
	x := &e.exprs[id]
	var stack [MaxExprStack + 1]uint64
	n := 0
	if x.Pushed {
		stack[0] = e.cfa
		n = 1
	}
	for pc := 0; pc < len(x.Ops); pc++ {
		op := &x.Ops[pc]
		switch op.Code {
		case OpConst:
			stack[n] = uint64(op.Arg)
			n++
		case OpAddr:
			stack[n] = uint64(op.Arg) + e.bias
			n++
		case OpReg:
			v, status := e.reg(op.Reg)
			if status != abi.StatusOK {
				return 0, status
			}
			stack[n] = v + uint64(op.Arg)
			n++
		case OpDup:
			stack[n] = stack[n-1]
			n++
		case OpPick:
			stack[n] = stack[n-1-int(op.Arg)]
			n++
		case OpDrop:
			n--
		case OpSwap:
			stack[n-1], stack[n-2] = stack[n-2], stack[n-1]
		case OpRot:
			stack[n-1], stack[n-2], stack[n-3] = stack[n-2], stack[n-3], stack[n-1]
		// The whole word must be readable, also for DW_OP_deref_size of 1, 2 or 4: eh_elf_memory_t reads words.
		case OpDeref:
			w, status := e.word(stack[n-1])
			if status != abi.StatusOK {
				return 0, status
			}
			stack[n-1] = w & (math.MaxUint64 >> (64 - 8*uint(op.Arg)))
		// Jump is the next operation; the loop adds 1.
		case OpBranch:
			n--
			if stack[n] != 0 {
				pc = op.Jump - 1
			}
		case OpSkip:
			pc = op.Jump - 1
		default:
			o := &operations[op.Code]
			v, ok := o.value(stack[max(n-2, 0)], stack[n-1])
			if !ok {
				return 0, abi.StatusUnreadable
			}
			n -= o.pops - 1
			stack[n-1] = v
		}
	}
	return stack[n-1], abi.StatusOK
}
