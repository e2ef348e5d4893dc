package main

import (
	"bufio"
	"fmt"
	"io"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// The original project's method: the rows of a table as C, a function that looks
// the pc up with nested ifs and goes to the code of the row, which reads memory
// through a callback. gcc does the rest.

const originalHead = `#include <stdint.h>
typedef struct { uint8_t flags; uintptr_t rip, rsp, rbp, rbx; } unwind_context_t;
typedef uintptr_t (*deref_func_t)(uintptr_t);

unwind_context_t _eh_elf(unwind_context_t ctx, uintptr_t pc, deref_func_t deref) {
	unwind_context_t out;
`

const originalFoot = `row_none:
	out.flags = 128;
	out.rip = out.rsp = out.rbp = out.rbx = 0;
	return out;
}
`

// leaf is a stretch of pcs with one row; row < 0 means none.
type leaf struct {
	start uint64
	row   int
}

// leaves returns what holds from each border on, from 0 to the end of addresses.
func leaves(t *dwarfcfa.Table) []leaf {
	list := []leaf{{0, -1}}
	end := dwarfcfa.Addr(0)
	for _, r := range t.Ranges {
		if r.Start > end && list[len(list)-1].row >= 0 {
			list = append(list, leaf{uint64(end), -1})
		}
		list = append(list, leaf{uint64(r.Start), int(r.Row)})
		end = r.End
	}
	return append(list, leaf{uint64(end), -1})
}

// writeOriginal writes the C of a table.
func writeOriginal(w io.Writer, t *dwarfcfa.Table) error {
	b := bufio.NewWriterSize(w, 1<<20)
	b.WriteString(originalHead)
	writeIfs(b, leaves(t), 1)
	for i := range t.Rows {
		fmt.Fprintf(b, "row_%d:\n", i)
		writeRow(b, t, &t.Rows[i])
	}
	b.WriteString(originalFoot)
	return b.Flush()
}

// writeIfs writes a balanced tree of comparisons.
func writeIfs(b *bufio.Writer, list []leaf, depth int) {
	if len(list) == 1 {
		if list[0].row < 0 {
			b.WriteString("goto row_none;\n")
		} else {
			fmt.Fprintf(b, "goto row_%d;\n", list[0].row)
		}
		return
	}
	mid := len(list) / 2
	fmt.Fprintf(b, "if (pc < %#x) {\n", list[mid].start)
	writeIfs(b, list[:mid], depth+1)
	b.WriteString("} else {\n")
	writeIfs(b, list[mid:], depth+1)
	b.WriteString("}\n")
}

// originalRegs are the registers of the original interface, with their flags.
var originalRegs = map[uint16]string{abi.RBX: "rbx", abi.RBP: "rbp", abi.RSP: "rsp", abi.RIP: "rip"}

// writeRow writes the code of a row: rip, rsp, rbp and rbx of the caller.
func writeRow(b *bufio.Writer, t *dwarfcfa.Table, r *dwarfcfa.Row) {
	if r.Flags&dwarfcfa.RowNotCompiled == 0 && r.Regs[abi.RIP].Kind == dwarfcfa.RuleUndefined {
		b.WriteString("\tout.flags = 0;\n\tout.rip = out.rsp = out.rbp = out.rbx = 0;\n\treturn out;\n")
		return
	}
	cfa, ok := cfaText(t, r)
	if !ok {
		b.WriteString("\tgoto row_none;\n")
		return
	}
	flags := 0
	text := ""
	for i, reg := range []uint16{abi.RIP, abi.RSP, abi.RBP, abi.RBX} {
		rule := r.Regs[reg]
		value := ""
		switch rule.Kind {
		case dwarfcfa.RuleSameValue:
			value = "ctx." + originalRegs[reg]
		case dwarfcfa.RuleOffset:
			value = fmt.Sprintf("deref(cfa + (%d))", rule.Offset)
		case dwarfcfa.RuleValOffset:
			value = fmt.Sprintf("cfa + (%d)", rule.Offset)
		case dwarfcfa.RuleExpression, dwarfcfa.RuleValExpression:
			value, ok = exprText(&t.Exprs[rule.Expr])
			if ok && rule.Kind == dwarfcfa.RuleExpression {
				value = "deref(" + value + ")"
			}
		default:
			ok = false
		}
		if !ok {
			if reg == abi.RIP {
				b.WriteString("\tgoto row_none;\n")
				return
			}
			ok, value = true, "0"
		} else {
			flags |= 1 << i
		}
		text += fmt.Sprintf("\tout.%s = %s;\n", originalRegs[reg], value)
	}
	fmt.Fprintf(b, "\t{ uintptr_t cfa = %s;\n%s\tout.flags = %d;\n\treturn out; }\n", cfa, text, flags)
}

func cfaText(t *dwarfcfa.Table, r *dwarfcfa.Row) (string, bool) {
	switch r.CFA.Kind {
	case dwarfcfa.CFARegOffset:
		name, ok := originalRegs[r.CFA.Reg]
		return fmt.Sprintf("ctx.%s + (%d)", name, r.CFA.Offset), ok
	case dwarfcfa.CFAExpr:
		return exprText(&t.Exprs[r.CFA.Expr])
	}
	return "", false
}

// exprText writes an expression as C, if it is one of the common operations on
// the four registers.
func exprText(x *dwarfcfa.Expr) (string, bool) {
	var stack []string
	if x.Pushed {
		stack = append(stack, "cfa")
	}
	infix := map[dwarfcfa.ExprCode]string{
		dwarfcfa.OpAnd: "&", dwarfcfa.OpOr: "|", dwarfcfa.OpXor: "^", dwarfcfa.OpPlus: "+", dwarfcfa.OpMinus: "-",
		dwarfcfa.OpMul: "*", dwarfcfa.OpShl: "<<", dwarfcfa.OpShr: ">>",
		dwarfcfa.OpEq: "==", dwarfcfa.OpNe: "!=", dwarfcfa.OpLt: "<", dwarfcfa.OpLe: "<=", dwarfcfa.OpGt: ">", dwarfcfa.OpGe: ">=",
	}
	for _, op := range x.Ops {
		n := len(stack)
		switch op.Code {
		case dwarfcfa.OpConst:
			stack = append(stack, fmt.Sprintf("(uintptr_t)%#xu", uint64(op.Arg)))
		case dwarfcfa.OpReg:
			name, ok := originalRegs[op.Reg]
			if !ok {
				return "", false
			}
			stack = append(stack, fmt.Sprintf("(ctx.%s + (%d))", name, op.Arg))
		case dwarfcfa.OpDup:
			stack = append(stack, stack[n-1])
		case dwarfcfa.OpDeref:
			if op.Arg != 8 {
				return "", false
			}
			stack[n-1] = "deref(" + stack[n-1] + ")"
		default:
			sign, ok := infix[op.Code]
			if !ok {
				return "", false
			}
			a, c := stack[n-2], stack[n-1]
			text := fmt.Sprintf("(%s %s %s)", a, sign, c)
			if op.Code >= dwarfcfa.OpEq && op.Code <= dwarfcfa.OpGe {
				text = fmt.Sprintf("(uintptr_t)((intptr_t)%s %s (intptr_t)%s)", a, sign, c)
			}
			stack = append(stack[:n-2], text)
		}
	}
	if len(stack) == 0 {
		return "", false
	}
	return stack[len(stack)-1], true
}
