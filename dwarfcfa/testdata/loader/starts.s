# Functions that several FDEs describe: the second of each says rsp+16.
	.macro entry start, size, cfa
	.long 1f-0f
0:	.long .-cie
	.long \start-.
	.long \size
	.uleb128 0
	.byte 0x0e, \cfa
	.balign 8
1:
	.endm
	.section .eh_frame,"a",@unwind
cie:	.long 1f-0f
0:	.long 0
	.byte 1
	.asciz "zR"
	.uleb128 1
	.sleb128 -8
	.byte 16
	.uleb128 1
	.byte 0x1b
	.byte 0x0c,7,8
	.byte 0x90,1
	.balign 8
1:
	entry f0, 16, 8
	entry f1, 16, 8
	entry f1, 16, 16
	entry f2, 0, 8
	entry f2, 16, 16
	entry f3, 8, 8
	entry f3, 16, 16
	.text
f0:	.skip 16, 0x90
f1:	.skip 16, 0x90
f2:	.skip 16, 0x90
f3:	.skip 16, 0x90
	.section .note.GNU-stack,"",@progbits
