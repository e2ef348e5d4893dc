/*
 * Walks that change objects with the registers in place.
 */
#include "chain.h"

/*
 * size_t ehu_chain_(eh_elf_regs_t *, const eh_elf_memory_t *, const struct ehu_object *, uint64_t *pcs, size_t max,
 *                   const struct ehu_table *)
 *
 * r12 points to the table, r14 to the object that the walk is in. Eh_elfs preserve them.
 */
	.text
	.globl	ehu_chain_
	.hidden	ehu_chain_
	.type	ehu_chain_, @function
ehu_chain_:
	.cfi_startproc
	endbr64
	push	%r12
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r12, 0
	push	%r14
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r14, 0
	sub	$8, %rsp
	.cfi_adjust_cfa_offset 8
	mov	%rdx, %r14
	mov	%r9, %r12
	mov	OBJECT_BIAS(%r14), %rdx
	lea	ehu_chain_next(%rip), %r9
	call	*OBJECT_CHAIN(%r14)
	add	$8, %rsp
	.cfi_adjust_cfa_offset -8
	pop	%r14
	.cfi_adjust_cfa_offset -8
	.cfi_restore r14
	pop	%r12
	.cfi_adjust_cfa_offset -8
	.cfi_restore r12
	ret
	.size	ehu_chain_, .-ehu_chain_

/*
 * The eh_elf jumps here when the walk leaves its object: rax is the address to look up, plus one; rsi and rdi are free;
 * a jump to r10 with rsi 0 ends the walk; all else belongs to the walk, including the stack frame.
 */
	.type	ehu_chain_next, @function
ehu_chain_next:
	.cfi_def_cfa rsp, CHAIN_CFA
	.cfi_offset rbp, -16
	.cfi_undefined r14
	cmp	ehu_context_start_(%rip), %rax
	je	4f
	mov	%rax, %rsi
	shr	$PAGE_BITS, %rsi
	and	$(CACHED_PAGES - 1), %esi
	mov	TABLE_CACHE(%r12,%rsi,4), %edi /* of an object, from the first */
	add	TABLE_OBJECT(%r12), %rdi
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
	mov	TABLE_OBJECT(%r12), %rdi
	mov	TABLE_N(%r12), %rcx
	test	%rcx, %rcx
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
3:	mov	TABLE_N(%r12), %rdx
	shl	$OBJECT_SHIFT, %rdx
	add	TABLE_OBJECT(%r12), %rdx
	cmp	%rdx, %rdi
	pop	%rdx
	.cfi_adjust_cfa_offset -8
	pop	%rcx
	.cfi_adjust_cfa_offset -8
	jae	4f
	cmp	OBJECT_LOW(%rdi), %rax
	jbe	4f
	/* Threads may store at the same time: each value is a correct one. */
	sub	TABLE_OBJECT(%r12), %rdi
	mov	%edi, TABLE_CACHE(%r12,%rsi,4)
	add	TABLE_OBJECT(%r12), %rdi
	jmp	0b
4:	xor	%esi, %esi
	jmp	*%r10
	.cfi_endproc
	.size	ehu_chain_next, .-ehu_chain_next

	.hidden	ehu_context_start_
	.section .note.GNU-stack, "", @progbits
