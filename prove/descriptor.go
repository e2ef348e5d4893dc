package prove

import (
	"fmt"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// This file compares descriptors with rows. A descriptor is data that the slow path interprets (asmgen/descriptor.go
// writes it); slow.go and slowrules.go prove that the code reads it as here.

// descReader reads the bytes of a descriptor in order, as the slow path does.
type descReader struct {
	im   *image
	addr uint64 // an address of the file; moves with each read
	ok   bool   // no read was outside of the data
}

// bytes reads a little-endian number of n bytes, and 0 if they are not in the data.
func (d *descReader) bytes(n uint64) uint64 {
	b := d.im.at(d.addr, n)
	d.addr += n
	if b == nil {
		d.ok = false
		return 0
	}
	v := uint64(0)
	for i := range b {
		v |= uint64(b[i]) << (8 * i)
	}
	return v
}

// descriptor checks that a descriptor is the row. It is read as cfaAt and rulesAt prove that the
// code reads it. If fast, tails lead there too, and the three bytes before it must be right for
// _eh_elf.
func (p *rowProof) descriptor(desc uint64, r *dwarfcfa.Row, fast bool) error {
	d := descReader{p.im, desc, true}
	if err := p.cfaAt(&d, r); err != nil {
		return err
	}
	rules, err := p.rulesAt(&d, r)
	if err != nil {
		return err
	}
	for i := range rules {
		got, want := rules[i], r.Regs[i]
		// A register that is saved in itself means the same value; both sides may say it either
		// way.
		for _, rule := range []*dwarfcfa.RegRule{&got, &want} {
			if rule.Kind == dwarfcfa.RuleRegister && int(rule.Reg) == i {
				*rule = dwarfcfa.RegRule{Kind: dwarfcfa.RuleSameValue}
			}
		}
		if got != want {
			return fmt.Errorf("the rule of %s", abi.RegName(i))
		}
	}
	if fast {
		return p.stepBytes(desc, r)
	}
	return nil
}

// cfaAt reads the head of a descriptor and compares it with the row.
func (p *rowProof) cfaAt(d *descReader, r *dwarfcfa.Row) error {
	head := d.bytes(1)
	if (head&descSignal != 0) != (r.Flags&dwarfcfa.RowSignal != 0) {
		return fmt.Errorf("exact of the caller")
	}
	c := r.CFA
	switch kind := head &^ descSignal; {
	case kind == descCFAGiven && c.Kind == dwarfcfa.CFARegOffset && c.Reg == abi.RSP:
	case kind == descCFAFromBP && c.Kind == dwarfcfa.CFARegOffset && c.Reg == abi.RBP: // the same as in rows.cfaOf
	case kind == descCFAReg:
		reg, off := d.bytes(1), d.bytes(8)
		// slowProof.cfa takes it to be below
		if c.Kind != dwarfcfa.CFARegOffset || reg != uint64(c.Reg) || int64(off) != c.Offset || reg >= numRegs {
			return fmt.Errorf("the CFA is register %d%+d", reg, int64(off))
		}
	case kind == descCFAExpr && c.Kind == dwarfcfa.CFAExpr && !p.table.Exprs[c.Expr].Pushed:
		return p.exprAt(d.bytes(4), c.Expr)
	default:
		return fmt.Errorf("a CFA of kind %d", kind)
	}
	return nil
}

// rulesAt reads the rules of a descriptor: those of registers that it does not name are the usual
// ones. Defaults of a register without a rule in the descriptor: callee-saved ones keep their
// value, rsp becomes the CFA, all others are lost.
func (p *rowProof) rulesAt(d *descReader, r *dwarfcfa.Row) (rules [numRegs]dwarfcfa.RegRule, err error) {
	for i := range rules {
		rules[i].Kind = dwarfcfa.RuleUndefined
		if abi.CalleeSaved&(1<<i) != 0 {
			rules[i].Kind = dwarfcfa.RuleSameValue
		}
	}
	rules[abi.RSP].Kind = dwarfcfa.RuleValOffset
	var given [numRegs]bool
	for {
		b := d.bytes(1)
		if !d.ok {
			return rules, fmt.Errorf("it is not in the data")
		}
		op, reg := b>>5, b&31
		if reg >= numRegs { // the end, too: rule takes the register to be below
			return rules, fmt.Errorf("a rule for register %d", reg)
		}
		if op == ruleEnd {
			break
		}
		// A register given once: a second rule would not undo the first.
		if given[reg] {
			return rules, fmt.Errorf("two rules for register %d", reg)
		}
		given[reg] = true
		rule, err := p.ruleAt(d, op, r.Regs[reg])
		if err != nil {
			return rules, fmt.Errorf("%s: %w", abi.RegName(int(reg)), err)
		}
		// A row without a return address ends the stack and has no descriptor, so the loop need not
		// handle it.
		if rule.Kind == dwarfcfa.RuleUndefined && reg == abi.RIP {
			return rules, fmt.Errorf("no return address")
		}
		rules[reg] = rule
	}
	if !given[abi.RIP] || !d.ok {
		return rules, fmt.Errorf("no return address")
	}
	return rules, nil
}

// ruleAt reads the operand of a rule. The code of an expression says nothing of its id; want, the
// table's rule, gives it, and exprAt owes the proof that the code computes that expression.
func (p *rowProof) ruleAt(d *descReader, op uint64, want dwarfcfa.RegRule) (rule dwarfcfa.RegRule, err error) {
	switch op {
	case ruleOffset8:
		rule.Kind, rule.Offset = dwarfcfa.RuleOffset, 8*int64(int8(d.bytes(1)))
	case ruleOffset:
		rule.Kind, rule.Offset = dwarfcfa.RuleOffset, int64(d.bytes(8))
	case ruleUndefined:
		rule.Kind = dwarfcfa.RuleUndefined
	case ruleSame:
		rule.Kind = dwarfcfa.RuleSameValue
	case ruleValOffset:
		rule.Kind, rule.Offset = dwarfcfa.RuleValOffset, int64(d.bytes(8))
	case ruleRegister:
		rule.Kind, rule.Reg = dwarfcfa.RuleRegister, uint16(d.bytes(1))
		if rule.Reg >= numRegs {
			return rule, fmt.Errorf("in register %d", rule.Reg)
		}
	case ruleExpr:
		rule.Kind = dwarfcfa.RuleExpression
		if d.bytes(1) == 0 { // 0: the value itself; else: saved at that address
			rule.Kind = dwarfcfa.RuleValExpression
		}
		off := d.bytes(4)
		if want.Kind != dwarfcfa.RuleExpression && want.Kind != dwarfcfa.RuleValExpression {
			return rule, fmt.Errorf("an expression")
		}
		rule.Expr = want.Expr
		return rule, p.exprAt(off, want.Expr)
	}
	return rule, nil
}

// stepBytes checks the three bytes before a descriptor, by which _eh_elf asks its
// callback: where the return address, rbp and rbx are saved, in words from the CFA, or
// 0 for the same value. A return address of 0 says that they do not fit.
func (p *rowProof) stepBytes(desc uint64, r *dwarfcfa.Row) error {
	b := p.im.at(desc-3, 3)
	if b == nil {
		return fmt.Errorf("it is not in the data")
	}
	if b[0] == 0 {
		return nil // stepProof.from: a walk of one step does the row
	}
	for i, reg := range [3]int{abi.RIP, abi.RBP, abi.RBX} {
		rule := r.Regs[reg]
		switch {
		case b[i] == 0 && rule.Kind == dwarfcfa.RuleSameValue:
		case b[i] != 0 && rule.Kind == dwarfcfa.RuleOffset && rule.Offset == 8*int64(int8(b[i])):
		default:
			return fmt.Errorf("the byte for %s before it", abi.RegName(reg))
		}
	}
	if rsp := r.Regs[abi.RSP]; rsp.Kind != dwarfcfa.RuleValOffset || rsp.Offset != 0 {
		return fmt.Errorf("the bytes before it know no rsp but the CFA")
	}
	return nil
}

// exprAt records that a descriptor names the code of an expression, by its distance
// from _eh_elf.
func (p *rowProof) exprAt(off uint64, id dwarfcfa.ExprID) error {
	addr := p.im.dynamic.symbols[abi.SymbolStep].Value + off
	if off >= 1<<31 {
		return fmt.Errorf("an expression at %#x", addr)
	}
	p.owed.exprs.add(exprJob{addr, id})
	return nil
}

// descKey says which row a descriptor was compared with.
type descKey struct {
	addr uint64
	row  *dwarfcfa.Row
	fast bool
}

// rowProof proves the heads of rows with their tails, and compares descriptors with rows.
type rowProof struct {
	*proof                    // shared machine, variables, debts
	compared map[descKey]bool // descriptors that are the row
}
