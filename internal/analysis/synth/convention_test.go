package synth

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

const conventions = `
	.text
	.macro fn name
	.hidden \name
	.type \name, @function
\name:
	.endm
	.macro end name
	.size \name, .-\name
	.endm

fn pops
	mov 8(%rsp), %rax
	ret $16
end pops
fn calls_pops
	sub $16, %rsp
	call pops
	nop			# 9
	ret
end calls_pops

fn saves
	pop %rax
	push %rbx
	push %r12
	jmp *%rax
end saves
fn restores
	pop %rax
	pop %r12
	pop %rbx
	jmp *%rax
end restores
fn calls_saves
	call saves
	mov $1, %ebx		# 5
	mov $2, %r12d
	call restores
	nop			# 21
	ret
end calls_saves

fn allocates
	pop %rcx
	sub %rdi, %rsp
	push %rcx
	ret
end allocates
fn calls_allocates
	push %rbp
	mov %rsp, %rbp
	call allocates
	nop			# 9
	leave
	ret
end calls_allocates

fn exchanges
	xchg %rsp, %rbx
	push $7
	xchg %rsp, %rbx
	nop			# 8
	add $8, %rbx
	ret
end exchanges

fn writes
	push %rbx
	mov %rbx, %rcx
	mov %rsp, %rax
	mov $5, %ebx
	movq $9, (%rax)
	nop			# 19
	mov %rcx, %rbx
	pop %rax
	ret
end writes

fn fences
	push %rbx
	lock orq $0, (%rsp)
	mov $5, %ebx
	nop			# 12
	pop %rbx
	ret
end fences

	# labels, to which jumps through registers and tables lead
	.type labels, @function
labels:	push %rbx
	sub $32, %rsp
	lea 1f(%rip), %rax
	jmp *%rax
1:	add $32, %rsp
	pop %rbx
	ret
	.type tables, @function
tables:	push %rbx
	lea table(%rip), %rcx
	jmp *(%rcx,%rdi,8)
2:	xor %ebx, %ebx
	pop %rbx
	ret
3:	xor %edx, %edx
	pop %rbx
	ret
	# the same with a ret that shows that it begins as a function does
	.type returns, @function
returns: lea 4f(%rip), %rax
	jmp *%rax
	nop
4:	xor %eax, %eax
	ret
	.section .data.rel.ro, "aw"
	.balign 8
table:	.quad 2b, 3b
	.text

	# jumped to with two words on the stack, as the loader's _dl_runtime_resolve is
fn resolves
	.cfi_startproc
	mov (%rsp), %rdi
	add $16, %rsp
	jmp *%r11
	.cfi_endproc
end resolves

fn flags
	lea -64(%rsp), %rax
	test %edi, %edi
	je 1f
	cmp %rax, %rsp
1:	jne 2f			# with other flags than those of cmp
	nop			# 14
2:	ret
end flags
`

// TestConventions has functions that return with the stack pointer elsewhere, move it through
// another register, or write over what they saved.
func TestConventions(t *testing.T) {
	r, err := Of(assembled(t, conventions), Options{Mode: Missing})
	require.NoError(t, err)

	assert.Equal(t, Entry, *function(t, r, "calls_pops").at(9), "ret $16 took the arguments")

	f := function(t, r, "calls_saves")
	assert.Equal(t, CFA{Reg: abi.RSP, Offset: 24}, f.at(5).CFA, "two words are left on the stack")
	assert.Equal(t, CFA{Reg: abi.RSP, Offset: 8}, f.at(21).CFA)
	assert.Equal(t, Rule{Where: Unknown}, f.at(21).Regs[0])

	f = function(t, r, "calls_allocates")
	assert.Equal(t, CFA{Reg: abi.RBP, Offset: 16}, f.at(9).CFA, "rsp is not known any more")

	f = function(t, r, "exchanges")
	assert.Equal(t, Rule{Where: Unknown}, f.at(8).Regs[0], "a word was pushed while rbx was the stack pointer")

	f = function(t, r, "writes")
	assert.Equal(t, Rule{Where: InReg, Reg: abi.RCX}, f.at(19).Regs[0], "the saved word is overwritten")

	assert.Equal(t, Entry, *function(t, r, "flags").at(14))

	covered := func(pc dwarfcfa.Addr) bool {
		return slices.ContainsFunc(r.Functions, func(g Function) bool { return pc >= g.Start() && pc < g.End() })
	}
	assert.True(t, covered(function(t, r, "labels").Start()+12))
	assert.True(t, covered(function(t, r, "labels").Start()+14), "a ret shows the frame at a label")
	assert.True(t, covered(function(t, r, "tables").Start()+11))
	assert.True(t, covered(function(t, r, "tables").Start()+15))
	f = function(t, r, "returns")
	assert.True(t, slices.ContainsFunc(r.Functions,
		func(g Function) bool { return *g.at(0) == Entry && g.Start() == f.Start()+10 }))

	all, err := Of(assembled(t, conventions), Options{Mode: All})
	require.NoError(t, err)
	assert.False(t, slices.ContainsFunc(all.Functions, func(g Function) bool { return g.Name == "resolves" }))

	f = function(t, r, "fences")
	assert.Equal(t, Rule{Where: AtCFA, Offset: -16}, f.at(12).Regs[0], "the word is written as it was")
}
