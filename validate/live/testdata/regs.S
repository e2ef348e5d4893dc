/* Captured registers, and calls whose every register is known. */
	.text

/* void capture(eh_elf_regs_t *regs) */
	.globl capture
	.type capture, @function
capture:
	.cfi_startproc
	mov %rbx, 3*8(%rdi)
	mov %rbp, 6*8(%rdi)
	mov %r12, 12*8(%rdi)
	mov %r13, 13*8(%rdi)
	mov %r14, 14*8(%rdi)
	mov %r15, 15*8(%rdi)
	lea 8(%rsp), %rax
	mov %rax, 7*8(%rdi)
	mov (%rsp), %rax
	mov %rax, 16*8(%rdi)
	movl $0x1f0c8, 136(%rdi)
	movl $0, 140(%rdi)
	ret
	.cfi_endproc
	.size capture, .-capture

	.macro SAVE reg
	push \reg
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset \reg, 0
	.endm
	.macro RESTORE reg
	pop \reg
	.cfi_adjust_cfa_offset -8
	.cfi_restore \reg
	.endm

/* void quiet_call(void (*fn)(void)), void step_call(void (*fn)(void)) */
	.globl quiet_call
	.type quiet_call, @function
quiet_call:
	.cfi_startproc
	xor %eax, %eax
	jmp 1f
	.cfi_endproc
	.size quiet_call, .-quiet_call
	.globl step_call
	.type step_call, @function
step_call:
	.cfi_startproc
	mov $0x100, %eax	/* the trap flag */
1:	SAVE %rbx
	SAVE %rbp
	SAVE %r12
	SAVE %r13
	SAVE %r14
	SAVE %r15
	sub $8, %rsp
	.cfi_adjust_cfa_offset 8
	mov %rsp, step_sp(%rip)
	mov step_saved(%rip), %rbx
	mov step_saved+8(%rip), %rbp
	mov step_saved+16(%rip), %r12
	mov step_saved+24(%rip), %r13
	mov step_saved+32(%rip), %r14
	mov step_saved+40(%rip), %r15
	pushfq
	.cfi_adjust_cfa_offset 8
	or %rax, (%rsp)
	popfq
	.cfi_adjust_cfa_offset -8
	call *%rdi
	.globl step_return
step_return:
	add $8, %rsp
	.cfi_adjust_cfa_offset -8
	RESTORE %r15
	RESTORE %r14
	RESTORE %r13
	RESTORE %r12
	RESTORE %rbp
	RESTORE %rbx
	ret
	.cfi_endproc
	.size step_call, .-step_call

/*
 * void on_stack(void *top, void (*fn)(long), long arg): the CFA is read from the
 * other stack: an expression with a memory access.
 */
	.globl on_stack
	.type on_stack, @function
on_stack:
	.cfi_startproc
	lea 8(%rsp), %rax
	mov %rax, -8(%rdi)
	/* DW_CFA_def_cfa_expression: breg5 (rdi) -8; deref */
	.cfi_escape 0x0f, 3, 0x75, 0x78, 0x06
	lea -16(%rdi), %rsp
	/* breg7 (rsp) 8; deref */
	.cfi_escape 0x0f, 3, 0x77, 0x08, 0x06
	mov %rdx, %rdi
	call *%rsi
	mov 8(%rsp), %rax
	lea -8(%rax), %rsp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size on_stack, .-on_stack

/*
 * void cfa_in_r11(void (*fn)(void)): what an unwinder seldom meets; the CFA on a
 * caller-saved register, registers saved in registers and as expressions, a
 * value that is an expression. rbx is kept in r12 and not r12 in rbx: libunwind
 * (1.6) applies the rules in the order of register numbers and would read the rbx
 * that it has just restored.
 */
	.globl cfa_in_r11
	.type cfa_in_r11, @function
cfa_in_r11:
	.cfi_startproc
	lea 8(%rsp), %r11
	.cfi_def_cfa %r11, 0
	push %r12
	.cfi_offset %r12, -16
	mov %rbx, %r12
	.cfi_register %rbx, %r12
	xor %ebx, %ebx
	push %r13
	/* DW_CFA_expression r13: the CFA is on the stack; lit24; minus */
	.cfi_escape 0x10, 13, 2, 0x48, 0x1c
	lea -5(%r14), %r13
	/* DW_CFA_val_expression r14: breg13 5 */
	.cfi_escape 0x16, 14, 2, 0x7d, 0x05
	mov $14, %r14d
	sub $40, %rsp
	mov %r11, 24(%rsp)
	/* breg7 24; deref */
	.cfi_escape 0x0f, 3, 0x77, 0x18, 0x06
	call *%rdi
	mov 24(%rsp), %r11
	.cfi_def_cfa %r11, 0
	lea 5(%r13), %r14
	.cfi_same_value %r14
	mov %r12, %rbx
	.cfi_same_value %rbx
	mov -24(%r11), %r13
	.cfi_same_value %r13
	mov -16(%r11), %r12
	.cfi_same_value %r12
	lea -8(%r11), %rsp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size cfa_in_r11, .-cfa_in_r11

/*
 * size_t chain_call(eh_elf_regs_t *, const eh_elf_memory_t *, uint64_t bias, uint64_t *pcs, size_t max,
 *                   void *place[3]): calls place[0], the chain function of an eh_elf,
 * and when the walk leaves the object goes on once, at place[1], with the bias place[2].
 * A tracer knows r12: it stays as it is.
 */
	.globl chain_call
	.type chain_call, @function
chain_call:
	.cfi_startproc
	SAVE %r12
	mov %r9, %r12
	lea chain_next(%rip), %r9
	call *(%r12)
	RESTORE %r12
	ret
	.cfi_endproc
	.size chain_call, .-chain_call

	.type chain_next, @function
chain_next:
	.cfi_startproc
	.cfi_def_cfa %rsp, 432 /* in the walk's frame */
	.cfi_offset %rbp, -16
	mov 8(%r12), %rsi
	test %rsi, %rsi
	jz 1f
	mov 16(%r12), %r10
	movq $0, 8(%r12)
	jmp *%rsi
1:	xor %esi, %esi
	jmp *%r10
	.cfi_endproc
	.size chain_next, .-chain_next

	.section .rodata
	.balign 8
	.globl step_saved
step_saved:
	.quad 0xb0b0b0b0b0b0b0b3, 0xb0b0b0b0b0b0b0b6
	.quad 0xb0b0b0b0b0b0b012, 0xb0b0b0b0b0b0b013, 0xb0b0b0b0b0b0b014, 0xb0b0b0b0b0b0b015
	.size step_saved, .-step_saved
	.bss
	.balign 8
	.globl step_sp
step_sp:
	.zero 8
	.size step_sp, 8
	.section .note.GNU-stack,"",@progbits
