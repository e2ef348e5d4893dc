# Rows that are wrong at known instructions, between others that are right.
	.text
	.globl	wrong_cfa
	.type	wrong_cfa, @function
wrong_cfa:			# a push without its row
	.cfi_startproc
	push	%rbx
	mov	%edi, %ebx
	lea	(%rbx,%rbx), %eax
	pop	%rbx
	ret
	.cfi_endproc
	.size	wrong_cfa, .-wrong_cfa

	.globl	wrong_register
	.type	wrong_register, @function
wrong_register:			# r12 is said to lie where rbp does
	.cfi_startproc
	push	%rbp
	.cfi_adjust_cfa_offset 8
	.cfi_offset 12, -16
	mov	$5, %ebp
	lea	(%rbp,%rbp), %eax
	pop	%rbp
	.cfi_adjust_cfa_offset -8
	.cfi_restore 12
	ret
	.cfi_endproc
	.size	wrong_register, .-wrong_register

	.globl	no_row
	.type	no_row, @function
no_row:
	mov	%edi, %eax
	ret
	.size	no_row, .-no_row
	.section .note.GNU-stack,"",@progbits
