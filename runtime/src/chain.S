/*
 * Walks that change objects with the registers in place.
 */
#include "chain.h"

/*
 * size_t ehu_chain_(eh_elf_regs_t *, const eh_elf_memory_t *, const struct ehu_object *, uint64_t *pcs, size_t max,
 *                   const struct ehu_table *)
 *
 * rbx points to the table's cache of objects, r12 and r13 to the start and end of its objects, r14 to the object that the walk is in; r15 is the outermost return address of a makecontext. Eh_elfs preserve them.
 */
	.text
	.globl	ehu_chain_
	.hidden	ehu_chain_
	.type	ehu_chain_, @function
ehu_chain_:
	.cfi_startproc
	endbr64
	push	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbx, 0
	push	%r12
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r12, 0
	push	%r13
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r13, 0
	push	%r14
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r14, 0
	push	%r15
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r15, 0
	mov	%rdx, %r14
	mov	TABLE_OBJECT(%r9), %r12
	mov	TABLE_N(%r9), %r13
	shl	$OBJECT_SHIFT, %r13
	add	%r12, %r13
	lea	TABLE_CACHE(%r9), %rbx
	mov	ehu_context_start_(%rip), %r15
	mov	OBJECT_BIAS(%r14), %rdx
	lea	ehu_chain_next(%rip), %r9
	call	*OBJECT_CHAIN(%r14)
	pop	%r15
	.cfi_adjust_cfa_offset -8
	.cfi_restore r15
	pop	%r14
	.cfi_adjust_cfa_offset -8
	.cfi_restore r14
	pop	%r13
	.cfi_adjust_cfa_offset -8
	.cfi_restore r13
	pop	%r12
	.cfi_adjust_cfa_offset -8
	.cfi_restore r12
	pop	%rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbx
	ret
	.size	ehu_chain_, .-ehu_chain_

/*
 * The eh_elf jumps here when the walk leaves its object: rax is the address to look up, plus one; rsi and rdi are free; a jump to r10 with rsi 0 ends the walk; all else belongs to the walk, including the stack frame.
 */
	.type	ehu_chain_next, @function
ehu_chain_next:
	.cfi_def_cfa rsp, CHAIN_CFA
	.cfi_offset rbp, -16
	.cfi_undefined r14
	cmp	%r15, %rax
	je	4f
	mov	%rax, %rsi
	shr	$PAGE_BITS, %rsi
	and	$(CACHED_PAGES - 1), %esi
	lea	(%rbx,%rsi,4), %rsi
	mov	(%rsi), %edi /* of an object, from the first */
	add	%r12, %rdi
	cmp	OBJECT_LOW(%rdi), %rax
	jbe	1f
	cmp	OBJECT_HIGH(%rdi), %rax
	ja	1f
0:	cmp	%r14, %rdi /* a hole in the object */
	je	4f
	mov	OBJECT_CHAIN(%rdi), %rsi
	test	%rsi, %rsi
	jz	4f
	mov	%rdi, %r14
	mov	OBJECT_BIAS(%rdi), %r10
	add	$CHAIN_NEXT, %rsi
	jmp	*%rsi

	/* The first that ends at rax or above, among rcx from rdi on. */
1:	push	%rcx
	.cfi_adjust_cfa_offset 8
	push	%rdx
	.cfi_adjust_cfa_offset 8
	mov	%r12, %rdi
	mov	%r13, %rcx
	sub	%r12, %rcx
	shr	$OBJECT_SHIFT, %rcx
	jz	3f
2:	mov	%rcx, %rdx
	shr	$1, %rdx
	shl	$OBJECT_SHIFT, %rdx
	add	%rdi, %rdx
	cmp	OBJECT_HIGH(%rdx), %rax
	jbe	5f
	lea	(1 << OBJECT_SHIFT)(%rdx), %rdi
	dec	%rcx
5:	shr	$1, %rcx
	jnz	2b
3:	pop	%rdx
	.cfi_adjust_cfa_offset -8
	pop	%rcx
	.cfi_adjust_cfa_offset -8
	cmp	%r13, %rdi
	jae	4f
	cmp	OBJECT_LOW(%rdi), %rax
	jbe	4f
	/* Threads may store at the same time: each value is a correct one. */
	sub	%r12, %rdi
	mov	%edi, (%rsi)
	add	%r12, %rdi
	jmp	0b
4:	xor	%esi, %esi
	jmp	*%r10
	.cfi_endproc
	.size	ehu_chain_next, .-ehu_chain_next

	.hidden	ehu_context_start_
	.section .note.GNU-stack, "", @progbits
