/*
 * Functions that begin at their caller's frame, and return to it, enter a landing pad of it or of a frame above, or become a call of libgcc's function with all registers unchanged.
 */
#include "eh.h"

#define ARGS (FRAME_SIZE + 16)
#define ROOM (ARGS + 40) /* three arguments, and 16 that align the stack */

.macro entry name, function, real
	.globl	\name
	.type	\name, @function
\name:
	.cfi_startproc
	endbr64
	cmpb	$0, ehx_active_(%rip)
	jne	0f
	mov	ehx_real_+\real(%rip), %r11
	jmp	*%r11
0:	sub	$ROOM, %rsp
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
	entry	_Unwind_RaiseException, ehx_raise_, 0
	entry	resume_slowly, ehx_resume_, 8
	.hidden	resume_slowly
	entry	_Unwind_Resume_or_Rethrow, ehx_rethrow_, 16
	entry	_Unwind_ForcedUnwind, ehx_forced_, 24

/*
 * _Unwind_Resume does the usual case here: the caller passes over its call, and the frame above it has a cleanup. All
 * is read before anything is changed, and the turns are looked at again after what belongs to them. Registers are where
 * the caller left them.
 */
	.macro	slot key, hash, to, turn, other	/* to is the slot of a key, and turn its turn, or it goes to other */
	movabs	$KNOWN_HASH, \hash
	imul	\key, \hash
	shr	$64-KNOWN_BITS, \hash
	shl	$6, \hash
	lea	ehx_known_(%rip), \to
	add	\hash, \to
	mov	(\to), \turn
	cmp	\key, KNOWN_KEY(\to)
	je	8f
	xor	$64, \to
	mov	(\to), \turn
	cmp	\key, KNOWN_KEY(\to)
	jne	\other
8:	and	$-2, \turn	/* an odd one is not found again */
	.endm

	.macro	next number, to, key	/* to is the slot that a slot's rest, in rax, names; whether it is the key's */
	mov	%rax, \to
	shr	$32+16*\number, \to
	and	$(1<<KNOWN_BITS)-1, \to
	shl	$6, \to
	lea	ehx_known_(%rip), %r8
	add	%r8, \to
	mov	(\to), %r8	/* its turn */
	cmp	\key, KNOWN_KEY(\to)
	.endm

	.macro	restore reg, from, shift	/* a register, if a byte of from says that it is below the CFA, in rsi */
	mov	\from, %r8
	shr	$\shift, %r8
	and	$0xff, %r8d
	jz	9f
	neg	%r8
	mov	(%rsi,%r8,8), \reg
9:
	.endm

	.globl	_Unwind_Resume
	.type	_Unwind_Resume, @function
_Unwind_Resume:
	.cfi_startproc
	endbr64
	cmpq	$0, EXCEPTION_PRIVATE_1(%rdi)	/* forced */
	jne	resume_slowly
	mov	ehx_loads_(%rip), %r11
	test	%r11, %r11
	jz	resume_slowly
	mov	ehx_loaded_(%rip), %rcx
	mov	(%r11), %r11
	mov	(%rcx), %ecx
	add	%r11, %r11
	sub	%rcx, %r11
	cmp	%r11, ehx_table_loads_(%rip)
	jne	resume_slowly
	mov	(%rsp), %r10
	add	%r10, %r10
	slot	%r10, %rax, %rcx, %r9, resume_slowly
	cmp	%r11, KNOWN_LOADS(%rcx)
	jne	resume_slowly
	mov	KNOWN_STEP(%rcx), %rdx
	mov	KNOWN_REST(%rcx), %rax
	cmp	(%rcx), %r9
	jne	resume_slowly
	movslq	%edx, %rsi
	mov	%rdx, %r8
	shr	$32, %r8
	movzwl	%r8w, %r8d	/* base and kind; BASE_RSP, BASE_RBP and KIND_SKIP are 0, 1 and 0 */
	lea	8(%rsp), %r9
	add	%r9, %rsi
	test	%r8d, %r8d
	jz	1f
	cmp	$1, %r8d
	jne	resume_slowly
	sub	%r9, %rsi
	add	%rbp, %rsi
1:	cmp	%r9, %rsi
	jbe	resume_slowly
	mov	-8(%rsi), %r10
	add	%r10, %r10
	next	0, %r9, %r10
	je	2f
	next	1, %r9, %r10
	jne	resume_slowly
2:	and	$-2, %r8
	cmp	%r11, KNOWN_LOADS(%r9)
	jne	resume_slowly
	cmpb	$CLEANUP_KIND, KNOWN_KIND(%r9)
	jne	resume_slowly
	mov	KNOWN_PAD(%r9), %rcx
	cmp	(%r9), %r8
	jne	resume_slowly
	shr	$48, %rdx
	jz	3f
	restore	%rbp, %rdx, 0
	restore	%rbx, %rdx, 8
3:	test	%eax, %eax
	jz	4f
	restore	%r12, %rax, 0
	restore	%r13, %rax, 8
	restore	%r14, %rax, 16
	restore	%r15, %rax, 24
4:	mov	%rdi, %rax
	xor	%edx, %edx
	mov	%rsi, %rsp
	jmp	*%rcx
	.cfi_endproc
	.size	_Unwind_Resume, .-_Unwind_Resume

/*
 * ehx_real_ before the real libgcc is open: each member is a stub that opens it, and jumps to where the member then points.
 */
	.balign 16
first:
	.set	i, 0
	.rept	NUM_REAL
	.balign 16
	endbr64
	mov	$i, %r11d
	jmp	unopened
	.set	i, i + 1
	.endr
unopened:
	.cfi_startproc
	.irp	reg, rdi, rsi, rdx, rcx, r8, r9, rax
	push	%\reg
	.cfi_adjust_cfa_offset 8
	.endr
	mov	%r11d, %edi
	call	ehx_first_
	mov	%rax, %r11
	.irp	reg, rax, r9, r8, rcx, rdx, rsi, rdi
	pop	%\reg
	.cfi_adjust_cfa_offset -8
	.endr
	jmp	*%r11
	.cfi_endproc
	.hidden	ehx_first_

	.data
	.balign 8
	.globl	ehx_real_
	.hidden	ehx_real_
	.type	ehx_real_, @object
	.size	ehx_real_, 8 * NUM_REAL
ehx_real_:
	.set	i, 0
	.rept	NUM_REAL
	.quad	first + 16 * i
	.set	i, i + 1
	.endr
	.section .note.GNU-stack, "", @progbits
