# Changing stacks. Offsets are those of eh_elf_regs_t.reg by DWARF number.

	.set	RBX, 8*3
	.set	RBP, 8*6
	.set	RSP, 8*7
	.set	R12, 8*12
	.set	R13, 8*13
	.set	R14, 8*14
	.set	R15, 8*15
	.set	RIP, 8*16

	.macro	save home=home
	push	%rbp
	push	%rbx
	push	%r12
	push	%r13
	push	%r14
	push	%r15
	sub	$8, %rsp
	mov	%rsp, \home(%rip)
	.endm

	.macro	return_home home=home
	mov	\home(%rip), %rsp
	add	$8, %rsp
	pop	%r15
	pop	%r14
	pop	%r13
	pop	%r12
	pop	%rbx
	pop	%rbp
	ret
	.endm

	.text
	.globl	bench_start
	.type	bench_start, @function
bench_start:
	save
	mov	%rdi, %rsp
	xor	%ebp, %ebp
	mov	%rdx, %rdi
	jmp	bench_bottom
	.size	bench_start, .-bench_start

# The outermost frame of every stack.
	.globl	bench_bottom
	.type	bench_bottom, @function
bench_bottom:
	.cfi_startproc
	.cfi_undefined rip
	nop
	call	*%rsi
	.globl	bench_bottom_return
bench_bottom_return:
	return_home
	.cfi_endproc
	.size	bench_bottom, .-bench_bottom

	.globl	bench_capture
	.type	bench_capture, @function
bench_capture:
	.cfi_startproc
	mov	%rbx, RBX(%rdi)
	mov	%rbp, RBP(%rdi)
	mov	%r12, R12(%rdi)
	mov	%r13, R13(%rdi)
	mov	%r14, R14(%rdi)
	mov	%r15, R15(%rdi)
	lea	8(%rsp), %rax
	mov	%rax, RSP(%rdi)
	mov	(%rsp), %rax
	mov	%rax, RIP(%rdi)
	return_home
	.cfi_endproc
	.size	bench_capture, .-bench_capture

# bench_on looks like a function that the stack's innermost frame called and
# that set up a frame pointer; but it runs where its caller runs. The pair that
# rbp points to lies right below the stack's rsp and is written beforehand.
	.globl	bench_on
	.type	bench_on, @function
bench_on:
	.cfi_startproc
	save
	.cfi_def_cfa rbp, 16
	.cfi_offset rbp, -16
	mov	%rsi, %rax
	mov	RSP(%rdi), %rbp
	sub	$16, %rbp
	mov	RBX(%rdi), %rbx
	mov	R12(%rdi), %r12
	mov	R13(%rdi), %r13
	mov	R14(%rdi), %r14
	mov	R15(%rdi), %r15
	mov	%rdx, %rdi
	call	*%rax
	return_home
	.cfi_endproc
	.size	bench_on, .-bench_on

# bench_on_stack does run on the stack: what it calls may look at rsp. Below the
# stack's rsp it leaves the pair of bench_on alone, whose first half is the return
# address here, too.
	.globl	bench_on_stack
	.type	bench_on_stack, @function
bench_on_stack:
	.cfi_startproc
	save	away
	mov	RSP(%rdi), %rax
	mov	RBX(%rdi), %rbx
	mov	RBP(%rdi), %rbp
	mov	R12(%rdi), %r12
	mov	R13(%rdi), %r13
	mov	R14(%rdi), %r14
	mov	R15(%rdi), %r15
	lea	-32(%rax), %rsp
	.cfi_def_cfa rsp, 32
	mov	%rdx, %rdi
	call	*%rsi
	return_home away
	.cfi_endproc
	.size	bench_on_stack, .-bench_on_stack

	.local	home, away
	.comm	away, 8, 8
	.comm	home, 8, 8
	.section	.note.GNU-stack,"",@progbits
