/*
 * For assembly: save stores the frame of a function's caller in an eh_elf_regs_t,
 * whose offsets these are: the registers that a call preserves, rsp after the return,
 * and the return address.
 */
#define REG(n) (8 * (n))
#define VALID 136
#define CALLER 0x1f0c8 /* 3 rbx, 6 rbp, 7 rsp, 12-15, 16 the pc */

.macro save base, entry /* entry: rsp at the function's entry, from rsp now */
	mov	%rbx, REG(3)(\base)
	mov	%rbp, REG(6)(\base)
	lea	8+\entry(%rsp), %rax
	mov	%rax, REG(7)(\base)
	mov	%r12, REG(12)(\base)
	mov	%r13, REG(13)(\base)
	mov	%r14, REG(14)(\base)
	mov	%r15, REG(15)(\base)
	mov	\entry(%rsp), %rax
	mov	%rax, REG(16)(\base)
	movq	$CALLER, VALID(\base) /* and 0 as exact and status */
.endm
