/*
 * The two functions that begin at their caller's frame. They save its registers before compiled code can change any.
 */
#include "save.h"

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
	xor	%ecx, %ecx
	call	ehu_backtrace_end_
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

	.hidden	ehu_backtrace_end_
	.hidden	ehu_cursor_start_
	.section .note.GNU-stack, "", @progbits
