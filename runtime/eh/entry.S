/*
 * Functions that begin at their caller's frame, and return to it, enter a landing pad of it or of a frame above, or
 * become a call of libgcc's function with all registers unchanged.
 */
#include "eh.h"

#define ARGS (FRAME_SIZE + 16)
#define ROOM (ARGS + 40) /* three arguments, and 16 that align the stack */

.macro entry name, function, libgcc
	.globl	\name
	.type	\name, @function
\name:
	.cfi_startproc
	endbr64
	cmpb	$0, ehx_active_(%rip)
	je	\libgcc
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
	je	land
	mov	ARGS(%rsp), %rdi
	mov	ARGS+8(%rsp), %rsi
	mov	%rdx, %r11
	mov	ARGS+16(%rsp), %rdx
	add	$ROOM, %rsp
	.cfi_adjust_cfa_offset -ROOM
	cmp	$ANSWER_JUMP, %eax
	jne	1f
	jmp	*%r11
1:	mov	%r11, %rax
	ret
	.cfi_endproc
	.size	\name, .-\name
	.hidden	\function, \libgcc
.endm

/*
 * An unwinder has to be right at each instruction: a profiler's signal may come at any. While registers of the frame to
 * land in are loaded, this frame keeps its caller's, and the stack is as it was.
 */
	.macro	keep	regs:vararg
	.irp	reg, \regs
	push	%\reg
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset \reg, 0
	.endr
	.endm
#define KEPT 48 /* bytes, of all six */

/*
 * Between the two instructions the frame is the one to land in, with all its registers, but for its pc. As of a frame
 * that a signal interrupted, that is no return address: it may be the first of a function's part. A function goes on
 * with its own frame's CFA at rsp+8.
 */
	.macro	leap	rsp, pc
	mov	\rsp, %rsp
	.cfi_endproc
	.cfi_startproc
	.cfi_signal_frame
	.cfi_def_cfa_offset 0
	.cfi_register rip, \pc
	jmp	*\pc
	.cfi_endproc
	.endm

	.text
	entry	raise_slowly, ehx_raise_, libgcc__Unwind_RaiseException
	.hidden	raise_slowly
/* The end of an entry that found where to land, with its stack frame: a part of the first. */
	.cfi_startproc
	.cfi_adjust_cfa_offset ROOM
land:	keep	rbp, rbx, r12, r13, r14, r15
	mov	KEPT+FRAME_RBX(%rsp), %rbx
	mov	KEPT+FRAME_RBP(%rsp), %rbp
	mov	KEPT+FRAME_R12(%rsp), %r12
	mov	KEPT+FRAME_R13(%rsp), %r13
	mov	KEPT+FRAME_R14(%rsp), %r14
	mov	KEPT+FRAME_R15(%rsp), %r15
	mov	KEPT+FRAME_PC(%rsp), %rcx
	mov	KEPT+LANDING_RAX(%rsp), %rax
	mov	KEPT+LANDING_RDX(%rsp), %rdx
	leap	KEPT+FRAME_RSP(%rsp), %rcx
	.size	raise_slowly, .-raise_slowly

	entry	resume_slowly, ehx_resume_, libgcc__Unwind_Resume
	.hidden	resume_slowly
	entry	_Unwind_Resume_or_Rethrow, ehx_rethrow_, libgcc__Unwind_Resume_or_Rethrow
	entry	_Unwind_ForcedUnwind, ehx_forced_, libgcc__Unwind_ForcedUnwind

	.macro	loads_now to, other	/* as loads_now of raise.c, or to other; what is noted is at least as old as the table */
	mov	ehx_entry_loads_(%rip), \to
	test	\to, \to
	jz	\other
	mov	ehx_loaded_(%rip), %rcx
	mov	(\to), \to
	mov	(%rcx), %ecx
	add	\to, \to
	sub	%rcx, \to
	.endm

	.macro	word	reg, from, kept	/* a register, if from says that it is in a word above the return address; kept: bytes below that */
	movzwl	\from, %r10d
	test	%r10d, %r10d
	jz	9f
	mov	\kept(%rsp,%r10,8), \reg
9:
	.endm

/*
 * _Unwind_RaiseException follows the trail that was followed before where the stack was as high, as ehx_follow_ does:
 * the processor need not wait for the type or an address to find it. All is read before anything is changed:
 * an offset and the address that is to be there, then the turn, then the word of the stack. Registers are where the
 * caller left them.
 */
	.balign	64
	.globl	_Unwind_RaiseException
	.type	_Unwind_RaiseException, @function
_Unwind_RaiseException:
	.cfi_startproc
	endbr64
	loads_now %r11, raise_slowly
	movabs	$CLASS_GNU, %rax
	cmp	%rax, (%rdi)
	jne	raise_slowly
	mov	CXA_TYPE(%rdi), %rdx
	mov	%rsp, %r8
	shr	$4, %r8
	and	$(1<<TRAIL_BITS)-1, %r8d
	lea	ehx_hints_(%rip), %r9
	movzwl	(%r9,%r8,2), %r9d
	shl	$TRAIL_UNIT, %r9
	lea	ehx_trails_(%rip), %r8
	add	%r8, %r9
	mov	(%r9), %r10
	and	$-2, %r10	/* an odd turn is not found again */
	mov	(%rsp), %rax
	cmp	%rdx, TRAIL_TYPE(%r9)
	jne	raise_slowly
	cmp	%r11, TRAIL_LOADS(%r9)
	jne	raise_slowly
	cmp	%rax, TRAIL_PC(%r9)
	jne	raise_slowly
	movzbl	TRAIL_N(%r9), %ecx
	test	%ecx, %ecx
	jz	raise_slowly
	xor	%r8d, %r8d
1:	mov	TRAIL_PC+8(%r9,%r8,8), %rax
	movzwl	TRAIL_AT(%r9,%r8,2), %esi
	cmp	(%r9), %r10
	jne	raise_slowly
	cmp	%rax, 8(%rsp,%rsi,8)
	jne	raise_slowly
	inc	%r8d
	cmp	%ecx, %r8d
	jb	1b
	mov	TRAIL_REG(%r9), %r11
	mov	TRAIL_REG+8(%r9), %rcx	/* the selector is in its upper half */
	movzwl	TRAIL_N(%r9), %edx	/* and whether it is a cleanup, in dh */
	movzwl	TRAIL_RSP(%r9), %r8d
	mov	TRAIL_PAD(%r9), %rax
	movups	TRAIL_CAUGHT(%r9), %xmm0
	movups	TRAIL_CAUGHT+16(%r9), %xmm1
	cmp	(%r9), %r10
	jne	raise_slowly
	movups	%xmm0, CXA_CAUGHT(%rdi)
	movups	%xmm1, CXA_CAUGHT+16(%rdi)
	add	%rdi, CXA_OBJECT(%rdi)
	movq	$0, EXCEPTION_PRIVATE_1(%rdi)
	lea	16(%rsp,%rsi,8), %rsi
	mov	%rsi, EXCEPTION_PRIVATE_2(%rdi)
	mov	%rcx, %rsi
	sar	$32, %rsi
	mov	%esi, CXA_SELECTOR(%rdi)
	xor	%r9d, %r9d
	test	%dh, %dh
	mov	%rsi, %rdx
	cmovne	%r9, %rdx
	mov	%ecx, %esi
	lea	8(%rsp,%r8,8), %r8
	or	%r11, %rsi
	jz	3f
	keep	rbp, rbx
	word	%rbp, %r11w, 16
	shr	$16, %r11
	word	%rbx, %r11w, 16
	shr	$16, %r11
	mov	%ecx, %esi
	or	%r11, %rsi
	jz	2f
	keep	r12, r13, r14, r15
	word	%r12, %r11w, KEPT
	shr	$16, %r11
	word	%r13, %r11w, KEPT
	word	%r14, %cx, KEPT
	shr	$16, %rcx
	word	%r15, %cx, KEPT
	mov	%rax, %rcx
	mov	%rdi, %rax
	leap	%r8, %rcx
	.cfi_startproc
	.cfi_adjust_cfa_offset 16
	.cfi_rel_offset rbp, 8
	.cfi_rel_offset rbx, 0
2:	mov	%rax, %rcx
	mov	%rdi, %rax
	leap	%r8, %rcx
	.cfi_startproc
3:	mov	%rax, %rcx
	mov	%rdi, %rax
	leap	%r8, %rcx
	.size	_Unwind_RaiseException, .-_Unwind_RaiseException

	.macro	slot key, to, turn, other	/* to is the slot of a key, and turn its turn, or it goes to other */
	movabs	$KNOWN_HASH, \to
	imul	\key, \to
	lea	ehx_known_(%rip), \turn
	shr	$64-KNOWN_BITS, \to
	and	ehx_slot_mask_(%rip), \to
	shl	$6, \to
	add	\turn, \to
	mov	(\to), \turn
	cmp	\key, KNOWN_KEY(\to)
	je	8f
	xor	$64, \to
	mov	(\to), \turn
	cmp	\key, KNOWN_KEY(\to)
	jne	\other
8:	and	$-2, \turn	/* an odd one is not found again */
	.endm

	.macro	next number, of, to, low, turn, key	/* to, of which low is the low half, is the slot that another names; whether it is the key's */
	movzwl	KNOWN_REST+4+2*\number(\of), \low
	lea	ehx_known_(%rip), \turn
	shl	$6, \to
	add	\turn, \to
	mov	(\to), \turn
	cmp	\key, KNOWN_KEY(\to)
	.endm

	.macro	restore reg, from	/* a register, if a byte says that it is below the CFA, in rsi */
	movzbl	\from, %ecx
	neg	%rcx
	jz	9f
	mov	(%rsi,%rcx,8), \reg
9:
	.endm

/*
 * _Unwind_Resume does the usual case here: the caller passes over its call, and the frame above it has a cleanup, or it
 * is the frame of the handler, of which libstdc++'s routine has stored all in the exception. All is read before
 * anything is changed, and the turns are looked at again after what belongs to them. Registers are where the caller
 * left them.
 */
	.balign	64
	.globl	_Unwind_Resume
	.type	_Unwind_Resume, @function
_Unwind_Resume:
	.cfi_startproc
	endbr64
	cmpq	$0, EXCEPTION_PRIVATE_1(%rdi)	/* forced */
	jne	resume_slowly
	loads_now %r11, resume_slowly
	mov	(%rsp), %r8
	lea	8(%rsp), %r10
	add	%r8, %r8
	slot	%r8, %rcx, %r9, resume_slowly
	cmp	%r11, KNOWN_LOADS(%rcx)
	jne	resume_slowly
	movslq	KNOWN_STEP(%rcx), %rsi
	cmpw	$0, KNOWN_STEP+4(%rcx)	/* base and kind; BASE_RSP, BASE_RBP and KIND_SKIP are 0, 1 and 0 */
	jne	5f
	add	%r10, %rsi
1:	movzwl	KNOWN_STEP+6(%rcx), %edx
	mov	KNOWN_REST(%rcx), %eax
	cmp	(%rcx), %r9
	jne	resume_slowly
	cmp	%r10, %rsi
	jbe	resume_slowly
	mov	-8(%rsi), %r8
	add	%r8, %r8
	next	0, %rcx, %r9, %r9d, %r10, %r8
	je	2f
	next	1, %rcx, %r9, %r9d, %r10, %r8
	jne	resume_slowly
2:	and	$-2, %r10
	cmp	%r11, KNOWN_LOADS(%r9)
	jne	resume_slowly
	mov	KNOWN_PAD(%r9), %r8
	cmpb	$CLEANUP_KIND, KNOWN_KIND(%r9)
	jne	6f
	xor	%r11d, %r11d
3:	cmp	(%r9), %r10
	jne	resume_slowly
	mov	%edx, %ecx
	or	%eax, %ecx
	jz	4f
	keep	rbp, rbx
	restore	%rbp, %dl
	restore	%rbx, %dh
	mov	%r11, %rdx
	test	%eax, %eax
	jz	0f
	keep	r12, r13, r14, r15
	restore	%r12, %al
	restore	%r13, %ah
	shr	$16, %eax
	restore	%r14, %al
	restore	%r15, %ah
	mov	%rdi, %rax
	leap	%rsi, %r8
	.cfi_startproc
	.cfi_adjust_cfa_offset 16
	.cfi_rel_offset rbp, 8
	.cfi_rel_offset rbx, 0
0:	mov	%rdi, %rax
	leap	%rsi, %r8
	.cfi_startproc
4:	mov	%r11, %rdx
	mov	%rdi, %rax
	leap	%rsi, %r8
	.cfi_startproc
5:	cmpw	$1, KNOWN_STEP+4(%rcx)
	jne	resume_slowly
	add	%rbp, %rsi
	jmp	1b
6:	movzbl	KNOWN_KIND(%r9), %ecx	/* as cleanup of raise.c, and ehx_caught_ */
	sub	$ACTION_KIND, %ecx
	cmp	$1, %ecx
	ja	resume_slowly
	movabs	$CLASS_GNU, %rcx
	mov	ehx_gxx_(%rip), %r11
	cmp	%rsi, EXCEPTION_PRIVATE_2(%rdi)
	jne	resume_slowly
	cmp	%rcx, (%rdi)
	jne	resume_slowly
	test	%r11, %r11
	jz	resume_slowly
	cmp	%r11, KNOWN_PERSONALITY(%r9)
	jne	resume_slowly
	test	%r8, %r8
	jz	resume_slowly
	cmp	%r8, CXA_PAD(%rdi)
	jne	resume_slowly
	movslq	CXA_SELECTOR(%rdi), %r11
	test	%r11, %r11
	jg	3b
	jmp	resume_slowly
	.cfi_endproc
	.size	_Unwind_Resume, .-_Unwind_Resume

/*
 * The functions for contexts. They jump to context.c or, if nothing is done here, to libgcc's at once: a personality
 * routine calls ten of them for a cleanup.
 */
	.macro	accessor name, function
	.globl	\name
	.type	\name, @function
	.balign	16
\name:
	.cfi_startproc
	endbr64
	jmp	*ehx_accessors_+8*n(%rip)
	.cfi_endproc
	.size	\name, .-\name
	.pushsection .data.ehx_accessors_, "aw", @progbits
	.quad	\function
	.hidden	\function
	.popsection
	.set	n, n + 1
	.endm

	.pushsection .data.ehx_accessors_, "aw", @progbits
	.balign	8
	.globl	ehx_accessors_
	.hidden	ehx_accessors_
	.type	ehx_accessors_, @object
	.size	ehx_accessors_, 8 * NUM_ACCESSORS
ehx_accessors_:
	.popsection
	.set	n, 0
	accessor _Unwind_GetGR, ehx_get_gr_
	accessor _Unwind_SetGR, ehx_set_gr_
	accessor _Unwind_GetIP, ehx_get_ip_
	accessor _Unwind_GetIPInfo, ehx_get_ip_info_
	accessor _Unwind_SetIP, ehx_set_ip_
	accessor _Unwind_GetCFA, ehx_get_cfa_
	accessor _Unwind_GetLanguageSpecificData, ehx_get_lsda_
	accessor _Unwind_GetRegionStart, ehx_get_start_
	accessor _Unwind_GetTextRelBase, ehx_get_text_
	accessor _Unwind_GetDataRelBase, ehx_get_data_

/* libgcc calls it by the name that programs may define, too. */
	.globl	ehx_find_fde_
	.hidden	ehx_find_fde_
	.type	ehx_find_fde_, @function
ehx_find_fde_:
	.cfi_startproc
	endbr64
	jmp	*_Unwind_Find_FDE@GOTPCREL(%rip)
	.cfi_endproc
	.size	ehx_find_fde_, .-ehx_find_fde_
	.section .note.GNU-stack, "", @progbits
