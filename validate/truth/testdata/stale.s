# Functions that a jump leads to make their frames where other functions had theirs. Each saves its register
# anew, and stores bytes or vectors in the old place.
	.text
	.globl main
	.type main,@function
main:	push %rbx
	mov $0x1122334455667788,%rbx
	push %rbp
	mov %rbx,%rbp
	sub $8,%rsp
	lea nothing(%rip),%rsi
	call pushes
	call pushes_rbp
	call below
	call spills
	call conditional
	call scattered
	add $8,%rsp
	pop %rbp
	pop %rbx
	call first
nothing: ret
	.size main,.-main

pushes:	push %rbp
	push %rbx
	mov %rsi,%rbx
	call *%rbx
	mov %rbx,%rsi
	pop %rbx
	pop %rbp
	jmp bytes
	.p2align 4
bytes:	push %rbx
	sub $16,%rsp
	mov %rsi,%rbx
	movb $5,8(%rsp)
	movb $6,9(%rsp)
	movl $7,(%rsp)
	call *%rbx
	nop
	mov %rbx,%rsi
	add $16,%rsp
	pop %rbx
	ret

pushes_rbp:
	push %rbx
	push %rbp
	mov %rsi,%rbp
	call *%rbp
	mov %rbp,%rsi
	pop %rbp
	pop %rbx
	jmp vector
	.p2align 4
vector:	push %rbp
	sub $32,%rsp
	mov %rsi,%rbp
	pxor %xmm0,%xmm0
	movups %xmm0,16(%rsp)
	call *%rbp
	mov %rbp,%rsi
	add $32,%rsp
	pop %rbp
	ret

# In the red zone, restored.
below:	mov %rbx,-24(%rsp)
	mov %rsi,%rbx
	mov %rbx,%rsi
	mov -24(%rsp),%rbx
	jmp bytes2
	.p2align 4
bytes2:	push %rbx
	sub $24,%rsp
	mov %rsi,%rbx
	movb $5,8(%rsp)
	call *%rbx
	mov %rbx,%rsi
	add $24,%rsp
	pop %rbx
	ret

# In the red zone, and not changed after it.
spills:	mov %rbx,-24(%rsp)
	jmp bytes3
	.p2align 4
bytes3:	sub $40,%rsp
	mov %rbx,(%rsp)
	mov %rsi,%rbx
	lea 16(%rsp),%rax
	movb $5,(%rax)
	call *%rbx
	mov %rbx,%rsi
	mov (%rsp),%rbx
	add $40,%rsp
	ret

# By a conditional jump, a frame with rbp and leave.
conditional:
	push %rbp
	mov %rsp,%rbp
	push %rbx
	sub $24,%rsp
	mov %rsi,%rbx
	call *%rbx
	mov %rbx,%rsi
	mov -8(%rbp),%rbx
	leave
	test %rsi,%rsi
	jne after
	ret
	.p2align 4
after:	sub $40,%rsp
	mov %rbx,(%rsp)
	mov %rsi,%rbx
	movups %xmm0,16(%rsp)
	movb $1,24(%rsp)
	call *%rbx
	mov %rbx,%rsi
	mov (%rsp),%rbx
	add $40,%rsp
	ret

# The second frame comes back to the size of the first with nothing pushed: sub, and a store of a vector over two words.
scattered:
	push %rbx
	push %rbp
	mov %rsi,%rbx
	mov %rsi,%rbp
	call *%rbx
	mov %rbx,%rsi
	pop %rbp
	pop %rbx
	jmp two
	.p2align 4
two:	mov %rbx,-32(%rsp)
	mov %rbp,-40(%rsp)
	sub $48,%rsp
	mov %rsi,%rbx
	mov %rsi,%rbp
	movups %xmm0,32(%rsp)
	call *%rbx
	mov %rbx,%rsi
	mov 16(%rsp),%rbx
	mov 8(%rsp),%rbp
	add $48,%rsp
	ret

# It calls the function that follows directly, which does not return.
first:	sub $8,%rsp
	nop
	call last
last:	sub $24,%rsp
	xor %edi,%edi
	mov $60,%eax
	syscall
	.section .note.GNU-stack,"",@progbits
