package synth

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// labelled has code to which only a jump through a register leads: the state there follows from the
// ret that it goes to.
const labelled = `
	.text
	.macro fn name
	.p2align 4
	.hidden \name
	.type \name, @function
\name:
	.endm
	.macro end name
	.size \name, .-\name
	.endm

	# x86inc's table of 16-bit distances, read with an index that is not bounded
fn words
	push %rbx
	push %r12
	sub $72, %rsp
	lea words_table(%rip), %rcx
	tzcnt %edi, %edi
	movzwl words_d-words_table(%rcx,%rdi,2), %eax
	add %rcx, %rax
	jmp *%rax
words_table:
	xor %ebx, %ebx
words_2: lea 1(%rdx), %r12d
	dec %esi
	jg words_2
	add $72, %rsp
words_3: pop %r12
	pop %rbx
	ret
words_4: vpxor %xmm1, %xmm1, %xmm1
	jmp words_3x
	.byte 0x0f, 0x0b
words_3x: add $72, %rsp
	jmp words_3
end words

	# aligned as functions are, with a frame
fn aligned
	lea aligned_1(%rip), %rax
	sub $120, %rsp
	jmp *%rax
end aligned
	.p2align 4
aligned_1:
	call leaf
	mov %rbx, %rdx
aligned_2: add $120, %rsp
	ret
	.p2align 4
leaf:	inc %eax
	ret

	# what it calls need not come back
fn unsure
	push %rbx
	lea unsure_1(%rip), %rax
	jmp *%rax
	nop
unsure_1: call *%rdx
	xor %eax, %eax
	pop %rbx
	ret
end unsure

	# comes back from some paths only
fn unsure_too
	push %rbx
	lea unsure_2(%rip), %rax
	jmp *%rax
	nop
unsure_2: mov $1, %edi
	call dies
unsure_3: add $16, %rsp
	ret
end unsure_too
fn dies
	test %edi, %edi
	jne 1f
	ret
1:	hlt
end dies

	# a jump elsewhere for which the return address is gone
fn above
	lea above_1(%rip), %rax
	jmp *%rax
	nop
above_1: test %edi, %edi
	je 1f
	add $16, %rsp
	jmp *%r11
1:	ret
end above

	# a call that is the end of a function, which nothing comes back to
fn falls
	push %rbx
	push %rbp
	lea falls_1(%rip), %rax
	jmp *%rax
	nop
falls_1: xor %ebx, %ebx
	call leaf
	.p2align 4
end falls
fn next
	push %r12
	pop %r12
	ret
end next

	# a ret that jumps
fn pushed
	sub $8, %rsp
	lea pushed_1(%rip), %rax
	jmp *%rax
	nop
pushed_1: push %rdx
	ret
end pushed
fn stored
	sub $8, %rsp
	lea stored_1(%rip), %rax
	jmp *%rax
	nop
stored_1: mov %rdx, (%rsp)
	ret
end stored

	# two rets that do not agree
fn torn
	sub $8, %rsp
	lea torn_1(%rip), %rax
	jmp *%rax
	nop
torn_1: test %edi, %edi
	je 1f
	ret
1:	add $8, %rsp
	ret
end torn

	# another stack
fn switched
	lea switched_1(%rip), %rax
	jmp *%rax
	nop
switched_1: mov (%rdi), %rsp
	ret
end switched

	# registers: one restored from two places, one loaded from a register, one changed and not restored
fn registers
	push %rbx
	push %rbp
	mov %r12, %r8
	lea registers_1(%rip), %rax
	jmp *%rax
	nop
registers_1: xor %r13d, %r13d
	mov %r8, %r12
	test %edi, %edi
	je 1f
	mov 8(%rsp), %rbx
	pop %rbp
	add $8, %rsp
	ret
1:	pop %rbx
	pop %rbp
	ret
end registers

	# calls by a table of distances lead to code that changes what this function saves
fn computes
	push %rbx
	push %r12
	lea computes_table(%rip), %r10
	movslq (%r10,%rdi,4), %rbx
	add %r10, %rbx
	call *%rbx
computes_1: pop %r12
	pop %rbx
	ret
computes_2: lea 1(%rdi), %r12
	ret
computes_3: mov %rdi, %rbx
	ret
computes_4: push %rdi
	pop %rbx
	ret
end computes
	.section .rodata
computes_table: .long computes_2-computes_table, computes_3-computes_table, computes_4-computes_table
words_d: .word words_2-words_table, words_3-words_table, words_4-words_table
`

// TestLabels: rows at labels are those of the rets that they lead to, if these show one frame.
func TestLabels(t *testing.T) {
	dir := t.TempDir()
	src, out := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.so")
	require.NoError(t, os.WriteFile(src, []byte(labelled), 0o666))
	text, err := exec.Command("gcc", "-shared", "-nostdlib", "-o", out, src).CombinedOutput()
	require.NoError(t, err, "%s", text)
	o, err := dwarfcfa.Open(out)
	require.NoError(t, err)
	file, err := elf.Open(out)
	require.NoError(t, err)
	defer file.Close()
	symbols, err := file.Symbols()
	require.NoError(t, err)
	addr := map[string]dwarfcfa.Addr{}
	for _, s := range symbols {
		addr[s.Name] = dwarfcfa.Addr(s.Value)
	}
	r, err := Of(o, Options{Mode: Missing})
	require.NoError(t, err)
	rowOf := func(name string) *Row {
		pc, ok := addr[name]
		require.True(t, ok, name)
		for i := range r.Functions {
			if f := &r.Functions[i]; pc >= f.Start() && pc < f.End() {
				return f.at(pc - f.Start())
			}
		}
		return nil
	}
	frame := func(size int32, regs map[uint8]Rule) *Row {
		row := Row{CFA: CFA{Reg: abi.RSP, Offset: size}}
		for i, reg := range Saved {
			row.Regs[i] = regs[reg]
		}
		return &row
	}
	saved := func(off int32) Rule { return Rule{Where: AtCFA, Offset: off} }

	both := map[uint8]Rule{abi.RBX: saved(-16), abi.R12: saved(-24)}
	assert.Equal(t, frame(96, both), rowOf("words_2"))
	assert.Equal(t, frame(24, both), rowOf("words_3"))
	assert.Equal(t, frame(96, both), rowOf("words_4"))
	assert.Equal(t, frame(96, both), rowOf("words_3x"))
	assert.Equal(t, frame(128, nil), rowOf("aligned_1"))
	assert.Equal(t, frame(128, nil), rowOf("aligned_2"))
	assert.Equal(t, frame(8, nil), rowOf("leaf"))
	assert.Equal(t, frame(8, nil), rowOf("dies"))
	for _, name := range []string{"unsure_1", "unsure_2", "above_1", "falls_1", "pushed_1", "stored_1", "torn_1",
		"switched_1"} {
		assert.Nil(t, rowOf(name), name)
	}
	assert.Equal(t, &Entry, rowOf("next"))
	assert.Equal(t, frame(24, map[uint8]Rule{abi.RBX: {Where: Unknown}, abi.RBP: {Where: Unknown},
		abi.R12: {Where: Unknown}, abi.R13: {Where: Unknown}}), rowOf("registers_1"))
	assert.Equal(t, frame(24, map[uint8]Rule{abi.RBX: saved(-16), abi.R12: saved(-24)}), rowOf("computes_1"))
	assert.Equal(t, frame(8, map[uint8]Rule{abi.R12: {Where: Unknown}}), rowOf("computes_2"))
	// what a register returns is not its caller's
	for _, name := range []string{"computes_3", "computes_4"} {
		assert.Equal(t, frame(8, map[uint8]Rule{abi.RBX: {Where: Unknown}}), rowOf(name), name)
	}
}
