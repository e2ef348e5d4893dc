/*
 * Functions that must know their caller's frame, or hand a call on as if they had never been called: see struct
 * ehp_answer.
 */
#include "../src/save.h"

#define ROOM 168 /* an eh_elf_regs_t, the two arguments, and 8 that align the stack */
#define ARGS 144

.macro entry name, function
	.globl	\name
	.type	\name, @function
\name:
	.cfi_startproc
	endbr64
	sub	$ROOM, %rsp
	.cfi_adjust_cfa_offset ROOM
	mov	%rdi, ARGS(%rsp)
	mov	%rsi, ARGS+8(%rsp)
	save	%rsp, ROOM
	mov	%rsp, %rdx
	call	\function
	test	%rdx, %rdx
	jne	1f
	add	$ROOM, %rsp
	.cfi_remember_state
	.cfi_adjust_cfa_offset -ROOM
	ret
	.cfi_restore_state
1:	mov	ARGS(%rsp), %rdi
	mov	ARGS+8(%rsp), %rsi
	add	$ROOM, %rsp
	.cfi_adjust_cfa_offset -ROOM
	jmp	*%rdx
	.cfi_endproc
	.size	\name, .-\name
	.hidden	\function
.endm

	.text
	entry	backtrace, ehp_backtrace_
	entry	unw_backtrace, ehp_unw_backtrace_
	entry	_Unwind_Backtrace, ehp_unwind_backtrace_

	.globl	dlopen
	.type	dlopen, @function
dlopen: /* (const char *path, int mode) */
	.cfi_startproc
	endbr64
	sub	$24, %rsp
	.cfi_adjust_cfa_offset 24
	mov	%rdi, (%rsp)
	mov	%rsi, 8(%rsp)
	mov	24(%rsp), %rdx
	call	ehp_dlopen_
	mov	(%rsp), %rdi
	mov	8(%rsp), %rsi
	add	$24, %rsp
	.cfi_adjust_cfa_offset -24
	jmp	*%rax
	.cfi_endproc
	.size	dlopen, .-dlopen

	.hidden	ehp_dlopen_
	.section .note.GNU-stack, "", @progbits
