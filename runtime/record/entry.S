/*
 * The functions that a program calls in place of its C library's. Functions that allocate count down by the requested
 * size, and when the countdown has ended, continue in C with their caller's registers; functions that free check
 * whether the object may be a sampled one. Each calls, or ends in a jump to, the function that the program would have
 * called.
 */
#include "../src/save.h"

#define ROOM 168 /* an eh_elf_regs_t, two words, and 8 that align the stack */
#define ARG 144

.macro begin name
	.globl	\name
	.type	\name, @function
\name:
	.cfi_startproc
	endbr64
.endm

.macro end name
	.cfi_endproc
	.size	\name, .-\name
.endm

/* sampled goes on in C with an object at rax of rdi bytes, and returns it. rsp is as at entry. */
.macro sampled
	sub	$ROOM, %rsp
	.cfi_adjust_cfa_offset ROOM
	mov	%rax, ARG(%rsp)
	save	%rsp, ROOM
	mov	%rdi, %rsi
	mov	ARG(%rsp), %rdi
	mov	%rsp, %rdx
	call	ehr_sample_
	mov	ARG(%rsp), %rax
	add	$ROOM, %rsp
	.cfi_adjust_cfa_offset -ROOM
	ret
.endm

/* inC calls a C function with the arguments and, in rcx, the caller's registers. */
.macro inC function
	sub	$ROOM, %rsp
	.cfi_adjust_cfa_offset ROOM
	save	%rsp, ROOM
	mov	%rsp, %rcx
	call	\function
	add	$ROOM, %rsp
	.cfi_adjust_cfa_offset -ROOM
	ret
.endm

/* count takes some bytes from the thread's countdown, and jumps if it has ended: by the carry, since there are requests of 2^63 bytes and more, of which there is no object, or by the sign, if a handler has left an allocation here. It is done before the allocation, so that this can be jumped to. It changes r11. */
.macro count bytes, ended
	mov	ehr_left_@gottpoff(%rip), %r11
	sub	\bytes, %fs:(%r11)
	jc	\ended
	js	\ended
.endm

/* look sets "not equal" if the object at rdi may be a sampled one. It changes rax and rdx. */
.macro look
	mov	ehr_private_(%rip), %rdx
	mov	%rdi, %rax
	shr	$9, %rax /* EHR_FILTER_SHIFT */
	movzwl	%ax, %eax /* EHR_FILTER_BITS */
	cmpb	$0, (%rdx,%rax)
.endm

/* take puts a number of bytes back, calls a function for an object of that size, and goes on in C. */
.macro take bytes, function
	add	\bytes, %fs:(%r11)
	push	\bytes
	.cfi_adjust_cfa_offset 8
	call	*\function(%rip)
	pop	%rdi
	.cfi_adjust_cfa_offset -8
	sampled
.endm

/* counting defines a function that allocates a number of bytes. */
.macro counting name, bytes
	.p2align 4
	begin	\name
	count	\bytes, 1f
	jmp	*ehr_\name\()_(%rip)
1:	take	\bytes, ehr_\name\()_
	end	\name
.endm

	.text
	counting malloc, %rdi
	counting valloc, %rdi
	counting pvalloc, %rdi
	counting memalign, %rsi
	counting aligned_alloc, %rsi

	.p2align 4
	begin	calloc
	mov	%rdi, %rax
	imul	%rsi, %rax /* if that overflows, there is no object */
	count	%rax, 1f
	jmp	*ehr_calloc_(%rip)
1:	take	%rax, ehr_calloc_
	end	calloc

	.p2align 4
	begin	realloc
	look
	jne	2f
	count	%rsi, 1f
	jmp	*ehr_realloc_(%rip)
1:	take	%rsi, ehr_realloc_
2:	inC	ehr_reallocate_
	end	realloc

	.p2align 4
	begin	free
	look
	jne	1f
	jmp	*ehr_free_(%rip)
1:	push	%rdi
	.cfi_adjust_cfa_offset 8
	call	ehr_forget_
	pop	%rdi
	.cfi_adjust_cfa_offset -8
	jmp	*ehr_free_(%rip)
	end	free

	begin	posix_memalign
	inC	ehr_do_posix_memalign_
	end	posix_memalign

/* ehr_to_open_ returns what to jump to. */
	begin	dlopen
	push	%rdi
	.cfi_adjust_cfa_offset 8
	push	%rsi
	.cfi_adjust_cfa_offset 8
	sub	$8, %rsp
	.cfi_adjust_cfa_offset 8
	call	ehr_to_open_
	add	$8, %rsp
	.cfi_adjust_cfa_offset -8
	pop	%rsi
	.cfi_adjust_cfa_offset -8
	pop	%rdi
	.cfi_adjust_cfa_offset -8
	jmp	*%rax
	end	dlopen

/* Until the original is known, its place has one of these, which looks it up and jumps to it. */
.macro first name
ehr_first_\name:
	.cfi_startproc
	.irp	reg, rdi, rsi, rdx, rcx, r8
	push	%\reg
	.cfi_adjust_cfa_offset 8
	.endr
	call	ehr_find_
	.irp	reg, r8, rcx, rdx, rsi, rdi
	pop	%\reg
	.cfi_adjust_cfa_offset -8
	.endr
	jmp	*ehr_\name\()_(%rip)
	.cfi_endproc
	.pushsection .data.rel.local, "aw", @progbits
	.globl	ehr_\name\()_
	.hidden	ehr_\name\()_
	.p2align 3
ehr_\name\()_:
	.quad	ehr_first_\name
	.popsection
.endm
	first	malloc
	first	calloc
	first	realloc
	first	free
	first	posix_memalign
	first	aligned_alloc
	first	memalign
	first	valloc
	first	pvalloc
	first	dlopen

	.hidden	ehr_left_
	.hidden	ehr_private_
	.hidden	ehr_find_
	.hidden	ehr_to_open_
	.hidden	ehr_sample_
	.hidden	ehr_reallocate_
	.hidden	ehr_forget_
	.hidden	ehr_do_posix_memalign_
	.section .note.GNU-stack, "", @progbits
