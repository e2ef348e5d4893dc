# void calls(void(*fn)(void)): its FDE has an absolute address, which position-independent programs must relocate
	.text
	.globl calls
	.type calls,@function
calls:
	push %rbx
	call *%rdi
	pop %rbx
	ret
.Lend:
	.size calls,.-calls
	.section .eh_frame,"a",@unwind
.Lcie:	.long .Lcie_end-.Lcie_start
.Lcie_start:
	.long 0
	.byte 1
	.asciz "zR"
	.uleb128 1
	.sleb128 -8
	.byte 16
	.uleb128 1
	.byte 0			# DW_EH_PE_absptr
	.byte 0x0c,7,8,0x90,1	# CFA rsp+8, the return address at CFA-8
	.balign 8
.Lcie_end:
	.long .Lfde_end-.Lfde_start
.Lfde_start:
	.long .Lfde_start-.Lcie
	.quad calls
	.quad .Lend-calls
	.uleb128 0
	.byte 0x41,0x0e,16,0x83,2	# after the push
	.byte 0x43,0x0e,8,0xc3		# after the pop
	.balign 8
.Lfde_end:
	.section .note.GNU-stack,"",@progbits
