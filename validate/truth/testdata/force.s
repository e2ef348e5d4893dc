# Functions whose rows are right and wrong, of which nothing runs when the object is loaded.
	.text
	.globl wrong_slot,wrong_cfa,wrong_path,right,right_tail,never
	.type wrong_slot,@function
wrong_slot: .cfi_startproc
	push %rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx,-24
	xor %ebx,%ebx
	mov (%rdi),%rax
	pop %rbx
	.cfi_def_cfa_offset 8
	.cfi_restore %rbx
	ret
	.cfi_endproc
	.size wrong_slot,.-wrong_slot

# Behind a comparison that fails, but for one number.
	.type wrong_cfa,@function
wrong_cfa: .cfi_startproc
	sub $24,%rsp
	.cfi_def_cfa_offset 32
	cmp $0x12345678,%edi
	jne 1f
	push %rax
	call *%rax
	pop %rax
1:	add $24,%rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size wrong_cfa,.-wrong_cfa

# Only where it is reached by a jump with rbp changed.
	.type wrong_path,@function
wrong_path: .cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	test %edi,%edi
	je 1f
	xor %ebp,%ebp
1:	nop
	.cfi_offset %rbp,-16
	pop %rbp
	.cfi_def_cfa_offset 8
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size wrong_path,.-wrong_path

# It writes through any pointer, past an array, and calls what it is given.
	.type right,@function
right:	.cfi_startproc
	push %rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx,-16
	sub $32,%rsp
	.cfi_def_cfa_offset 48
	mov %rdi,%rbx
	mov %rsi,(%rbx)
	and $15,%edx
1:	movq $1,(%rsp,%rdx,8)
	dec %rdx
	jns 1b
	call *(%rbx)
	test %eax,%eax
	jne 2f
	call never
2:	add $32,%rsp
	.cfi_def_cfa_offset 16
	pop %rbx
	.cfi_def_cfa_offset 8
	.cfi_restore %rbx
	ret
	.cfi_endproc
	.size right,.-right

	.type right_tail,@function
right_tail: .cfi_startproc
	jmp *outside@GOTPCREL(%rip)
	.cfi_endproc
	.size right_tail,.-right_tail

	.type never,@function
never:	.cfi_startproc
	sub $8,%rsp
	.cfi_def_cfa_offset 16
	call abort@PLT
	.cfi_endproc
	.size never,.-never
	.section .note.GNU-stack,"",@progbits
