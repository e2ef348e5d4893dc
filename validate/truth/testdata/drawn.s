# Functions with wrong rows where few runs come.
	.text
	.globl early,switch,hot,unbalanced,drops
	.type early,@function
early:	.cfi_startproc
	cmp $0x12345678,%rdi
	je 1f
	push %rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx,-16
	xor %ebx,%ebx
	call *outside@GOTPCREL(%rip)
	pop %rbx
	.cfi_def_cfa_offset 8
1:	ret				# nothing was saved where je leads here
	.cfi_endproc
	.size early,.-early

	.type switch,@function
switch: .cfi_startproc
	cmp $3,%edi
	ja 9f
	mov %edi,%edi
	lea table(%rip),%rdx
	movslq (%rdx,%rdi,4),%rax
	add %rdx,%rax
	jmp *%rax
.La:	xor %eax,%eax
	ret
.Lc:	push %rax			# no row
	nop
	nop
	pop %rax
9:
.Lb:	ret
	.cfi_endproc
	.size switch,.-switch

	.type hot,@function
hot:	.cfi_startproc
	sub $24,%rsp
	.cfi_def_cfa_offset 32
	cmp $0x12345678,%rsi
	je cold
.Lback:	add $24,%rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size hot,.-hot

	.type unbalanced,@function
unbalanced: .cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp,-16
	cmp $0x12345678,%rdx
	je 1f
	pop %rbp
	.cfi_remember_state
	.cfi_def_cfa_offset 8
	.cfi_restore %rbp
	ret
	.cfi_restore_state
1:	ret				# to what was pushed
	.cfi_endproc
	.size unbalanced,.-unbalanced

	.type drops,@function
drops:	.cfi_startproc
	call 1f
	ud2
1:	.cfi_def_cfa_offset 16
	lea 8(%rsp),%rsp
	nop				# the row says rsp+16
	nop
	ret
	.cfi_endproc
	.size drops,.-drops

	.section .text.unlikely,"ax"
	.type cold,@function
cold:	.cfi_startproc
	.cfi_def_cfa_offset 40
	call *outside@GOTPCREL(%rip)
	jmp .Lback
	.cfi_endproc
	.size cold,.-cold

	.section .rodata
	.balign 4
table:	.long .La-table,.Lb-table,.Lc-table,.La-table
	.section .note.GNU-stack,"",@progbits
