package main

import (
	"bufio"
	"fmt"
	"io"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// One compare tree over the object with 32-bit immediates, the original's shape,
// but in a walk with the target's registers in the machine's, as eh_elfs have it:
// against it the paged dispatch is measured. Only in-process walks and rows on
// rsp and rbp; others stop.

// Registers: r11 the frame's rsp, rbx rbp r12-r15 the target's own, rax its pc,
// rdx bias, rcx pcs, r8 steps left, r9 the window's end, r10 its start, rdi regs.
const onetreeHead = `	.text
	.globl _eh_elf_walk
	.type _eh_elf_walk, @function
_eh_elf_walk:
	push %rbp
	push %rbx
	push %r12
	push %r13
	push %r14
	push %r15
	mov (%rsi), %r10
	mov 8(%rsi), %r9
	add %r10, %r9
	mov 24(%rdi), %rbx
	mov 48(%rdi), %rbp
	mov 56(%rdi), %r11
	mov 96(%rdi), %r12
	mov 104(%rdi), %r13
	mov 112(%rdi), %r14
	mov 120(%rdi), %r15
	mov 128(%rdi), %rax
	mov %r8, -8(%rsp)
	cmpw $1, 140(%rdi)
	je exact
	.p2align 5
next:
	lea -1(%rax), %rsi
look:
	sub %rdx, %rsi
	jmp tree
exact:
	mov %rax, %rsi
	jmp look
none:
	movw $-1, 142(%rdi)
	jmp leave
slow:
	movw $-4, 142(%rdi)
	jmp leave
bad:
	movw $-2, 142(%rdi)
	jmp leave
outermost:
	movw $1, 142(%rdi)
	jmp leave
full:
	movw $0, 142(%rdi)
leave:
	mov %rbx, 24(%rdi)
	mov %rbp, 48(%rdi)
	mov %r11, 56(%rdi)
	mov %r12, 96(%rdi)
	mov %r13, 104(%rdi)
	mov %r14, 112(%rdi)
	mov %r15, 120(%rdi)
	mov %rax, 128(%rdi)
	mov -8(%rsp), %rax
	sub %r8, %rax
	je 1f
	movl $0x1f0c8, 136(%rdi)
	movw $0, 140(%rdi)
1:	pop %r15
	pop %r14
	pop %r13
	pop %r12
	pop %rbx
	pop %rbp
	ret
tree:
`

// machineName names the registers that hold the target's.
var machineName = map[int]string{abi.RBX: "rbx", abi.RBP: "rbp", abi.R12: "r12", abi.R13: "r13", abi.R14: "r14", abi.R15: "r15"}

// writeOnetree writes the assembly text of a table.
func writeOnetree(w io.Writer, t *dwarfcfa.Table) error {
	b := bufio.NewWriterSize(w, 1<<20)
	b.WriteString(onetreeHead)
	labels := 0
	writeCompares(b, leaves(t), &labels)
	for i := range t.Rows {
		fmt.Fprintf(b, "row_%d:\n", i)
		writeBlock(b, &t.Rows[i])
	}
	b.WriteString("\t.section .note.GNU-stack,\"\",@progbits\n")
	return b.Flush()
}

func leafLabel(l leaf) string {
	if l.row < 0 {
		return "none"
	}
	return fmt.Sprintf("row_%d", l.row)
}

func writeCompares(b *bufio.Writer, list []leaf, labels *int) {
	if len(list) == 1 {
		fmt.Fprintf(b, "\tjmp %s\n", leafLabel(list[0]))
		return
	}
	mid := len(list) / 2
	fmt.Fprintf(b, "\tcmp $%d, %%rsi\n", list[mid].start)
	if right := list[mid:]; len(right) == 1 {
		fmt.Fprintf(b, "\tjae %s\n", leafLabel(right[0]))
		writeCompares(b, list[:mid], labels)
		return
	}
	*labels++
	label := *labels
	fmt.Fprintf(b, "\tjae n%d\n", label)
	writeCompares(b, list[:mid], labels)
	fmt.Fprintf(b, "n%d:\n", label)
	writeCompares(b, list[mid:], labels)
}

func writeBlock(b *bufio.Writer, r *dwarfcfa.Row) {
	if r.Flags&dwarfcfa.RowNotCompiled == 0 && r.Regs[abi.RIP].Kind == dwarfcfa.RuleUndefined {
		b.WriteString("\tjmp outermost\n")
		return
	}
	if !usable(r) {
		b.WriteString("\tjmp slow\n")
		return
	}
	if r.CFA.Reg == abi.RSP {
		fmt.Fprintf(b, "\tlea %d(%%r11), %%rsi\n\tcmp %%r9, %%rsi\n\tja bad\n", r.CFA.Offset)
	} else {
		fmt.Fprintf(b, "\tlea %d(%%rbp), %%rsi\n\tcmp %%r9, %%rsi\n\tja bad\n", r.CFA.Offset)
		fmt.Fprintf(b, "\tlea %d(%%rsi), %%rax\n\tcmp %%r10, %%rax\n\tjb bad\n", lowestSlot(r))
	}
	for reg, rule := range r.Regs {
		if name, ok := machineName[reg]; ok && rule.Kind == dwarfcfa.RuleOffset {
			fmt.Fprintf(b, "\tmov %d(%%rsi), %%%s\n", rule.Offset, name)
		}
	}
	fmt.Fprintf(b, "\tmov %d(%%rsi), %%rax\n\tmov %%rsi, %%r11\n", r.Regs[abi.RIP].Offset)
	b.WriteString("\tmov %rax, (%rcx)\n\tadd $8, %rcx\n\tdec %r8\n\tje full\n\tjmp next\n")
}
