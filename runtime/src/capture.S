/*
 * The two functions that begin at their caller's frame. They note its registers
 * before a compiler can change any: those that a call preserves, rsp as it is
 * after the return, and the return address. Offsets are those of eh_elf_regs_t.
 */
#define REG(n) (8 * (n))
#define VALID 136
#define EXACT 140
#define CALLER 0x1f0c8 /* 3 rbx, 6 rbp, 7 rsp, 12-15, 16 the pc */

.macro save base, entry /* entry: rsp at the function's entry, from rsp now */
	mov	%rbx, REG(3)(\base)
	mov	%rbp, REG(6)(\base)
	lea	8+\entry(%rsp), %rax
	mov	%rax, REG(7)(\base)
	mov	%r12, REG(12)(\base)
	mov	%r13, REG(13)(\base)
	mov	%r14, REG(14)(\base)
	mov	%r15, REG(15)(\base)
	mov	\entry(%rsp), %rax
	mov	%rax, REG(16)(\base)
	movl	$CALLER, VALID(\base)
	movl	$0, EXACT(\base) /* and the status */
.endm

	.text
	.globl	ehu_backtrace
	.type	ehu_backtrace, @function
ehu_backtrace: /* (void **pcs, size_t n) */
	.cfi_startproc
	endbr64
	sub	$152, %rsp
	.cfi_adjust_cfa_offset 152
	save	%rsp, 152
	mov	%rsp, %rdx
	call	ehu_backtrace_regs_
	add	$152, %rsp
	.cfi_adjust_cfa_offset -152
	ret
	.cfi_endproc
	.size	ehu_backtrace, .-ehu_backtrace

	.globl	ehu_cursor_init
	.type	ehu_cursor_init, @function
ehu_cursor_init: /* (ehu_cursor_t *): the registers come first in it */
	.cfi_startproc
	endbr64
	save	%rdi, 0
	jmp	ehu_cursor_start_
	.cfi_endproc
	.size	ehu_cursor_init, .-ehu_cursor_init

	.hidden	ehu_backtrace_regs_
	.hidden	ehu_cursor_start_
	.section .note.GNU-stack, "", @progbits
