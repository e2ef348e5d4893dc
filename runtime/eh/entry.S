/*
 * Functions that begin at their caller's frame, and return to it, enter a landing pad of it or of one above, or become
 * a call of libgcc's function, with all registers as they were.
 */
#include "eh.h"

#define ARGS (FRAME_SIZE + 16)
#define ROOM (ARGS + 40) /* three arguments, and 16 that align the stack */

.macro entry name, function
	.globl	\name
	.type	\name, @function
\name:
	.cfi_startproc
	endbr64
	sub	$ROOM, %rsp
	.cfi_adjust_cfa_offset ROOM
	lea	ROOM+8(%rsp), %rax
	mov	%rax, FRAME_RSP(%rsp)
	mov	ROOM(%rsp), %rax
	mov	%rax, FRAME_PC(%rsp)
	mov	%rbp, FRAME_RBP(%rsp)
	mov	%rbx, FRAME_RBX(%rsp)
	mov	%r12, FRAME_R12(%rsp)
	mov	%r13, FRAME_R13(%rsp)
	mov	%r14, FRAME_R14(%rsp)
	mov	%r15, FRAME_R15(%rsp)
	mov	%rdi, ARGS(%rsp)
	mov	%rsi, ARGS+8(%rsp)
	mov	%rdx, ARGS+16(%rsp)
	mov	%rdx, %rcx
	mov	%rsi, %rdx
	mov	%rsp, %rsi
	call	\function
	cmp	$ANSWER_LAND, %eax
	jne	1f
	.cfi_remember_state
	mov	FRAME_RBX(%rsp), %rbx
	mov	FRAME_RBP(%rsp), %rbp
	mov	FRAME_R12(%rsp), %r12
	mov	FRAME_R13(%rsp), %r13
	mov	FRAME_R14(%rsp), %r14
	mov	FRAME_R15(%rsp), %r15
	mov	FRAME_PC(%rsp), %rcx
	mov	LANDING_RAX(%rsp), %rax
	mov	LANDING_RDX(%rsp), %rdx
	mov	FRAME_RSP(%rsp), %rsp
	jmp	*%rcx
	.cfi_restore_state
1:	mov	ARGS(%rsp), %rdi
	mov	ARGS+8(%rsp), %rsi
	mov	%rdx, %r11
	mov	ARGS+16(%rsp), %rdx
	add	$ROOM, %rsp
	.cfi_adjust_cfa_offset -ROOM
	cmp	$ANSWER_JUMP, %eax
	jne	2f
	jmp	*%r11
2:	mov	%r11, %rax
	ret
	.cfi_endproc
	.size	\name, .-\name
	.hidden	\function
.endm

	.text
	entry	_Unwind_RaiseException, ehx_raise_
	entry	_Unwind_Resume, ehx_resume_
	entry	_Unwind_Resume_or_Rethrow, ehx_rethrow_
	entry	_Unwind_ForcedUnwind, ehx_forced_
	.section .note.GNU-stack, "", @progbits
