package synth

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/analysis/check"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
)

// TestNoEntry: the beginning of .text, which ld has as the entry point of a shared object, is not
// where a function begins: others jump to it with a frame.
func TestNoEntry(t *testing.T) {
	o := assembled(t, `
	.text
cold:	.cfi_startproc
	.cfi_def_cfa_offset 32
	add	$24, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.globl	f
	.type	f, @function
f:	.cfi_startproc
	sub	$24, %rsp
	.cfi_def_cfa_offset 32
	test	%edi, %edi
	je	cold
	add	$24, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	f, .-f
`, "-Wl,-e,0x1000")
	img, err := codeflow.NewImage(o.File())
	require.NoError(t, err)
	assert.Zero(t, img.Entry())
	r, err := Of(o, Options{Mode: All})
	require.NoError(t, err)
	require.EqualValues(t, 0x1000, r.Functions[0].Start())
	assert.EqualValues(t, 32, r.Functions[0].at(0).CFA.Offset)
	subject, err := check.Open(o.Name(), o.File(), o.FileSize())
	require.NoError(t, err)
	assert.Empty(t, subject.Run(check.Options{}).Findings)
}

// TestSymbolsAndJumps: a function's symbol counts no more than what jumps to it, and than its own ret.
func TestSymbolsAndJumps(t *testing.T) {
	const code = `
	.text
	.macro fn name
	.p2align 4
	.hidden \name
	.type \name, @function
\name:	START
	.endm
	.macro end name
	END
	.size \name, .-\name
	.endm
fn first
	ret
end first
	# as GCC's __sse_resms64x_N: one runs into the next, and its ret shows nothing
fn jumps
	sub $24, %rsp
	lea 24(%rsp), %r10
	jmp helper
end jumps
fn jumps_too
	sub $40, %rsp
	lea 40(%rsp), %r10
	jmp helper
end jumps_too
	.p2align 4
	.hidden helper, inner, last
	.type helper, @function
	.type inner, @function
	.type last, @function
helper:	START
	mov 8(%rsi), %rbx
	END
	.size helper, .-helper
inner:	START
	mov 16(%rsi), %rbp
	END
	.size inner, .-inner
last:	START
	mov 24(%rsi), %r12
	mov %r10, %rsp
	ret
	END
	.size last, .-last
	# only its ret says that it is no function
fn raises
	add $8, %rsp
	ret
end raises
fn restores
	pop %rbx
	pop %rbp
	ret
end restores
	# a symbol behind a call that returns, and one behind a call that need not
fn before
	push %rbx
	mov %rsp, %rbx
	call first
	.type behind, @function
	.hidden behind
behind:	mov %rbx, %rsp
	pop %rbx
	ret
end before
fn ends
	push %rbx
	call *%rdi
end ends
fn after
	push %rbx
	pop %rbx
	ret
end after
	# what is called begins as a function does, whatever its ret does
fn calls
	sub $8, %rsp
	call skips
	ud2
end calls
fn skips
	mov $1, %eax
	add $8, %rsp
	ret
end skips
`
	for name, directives := range map[string][2]string{"without tables": {"", ""},
		"with tables": {".cfi_startproc", ".cfi_endproc"}} {
		o := assembled(t, strings.NewReplacer("START", directives[0], "END", directives[1]).Replace(code))
		r, err := Of(o, Options{Mode: All})
		require.NoError(t, err)
		has := map[string]*Row{}
		for i := range r.Functions {
			has[r.Functions[i].Name] = r.Functions[i].at(0)
		}
		for _, good := range []string{"first", "jumps", "jumps_too", "before", "after", "calls", "skips"} {
			assert.Equal(t, &Entry, has[good], "%s, %s", good, name)
		}
		for _, bad := range []string{"helper", "raises", "restores"} {
			assert.Nil(t, has[bad], "%s, %s", bad, name)
		}
		if directives[0] == "" { // one runs into the next
			assert.Nil(t, has["inner"])
			assert.Nil(t, has["last"])
			assert.Nil(t, has["behind"])
		}
	}
}

// TestOddFill: zeros fill the space before a function that only pointers lead to; their number is odd, and what calls a
// third one follows zeros, too.
func TestOddFill(t *testing.T) {
	o := assembled(t, ".text\nmov %rdi,%rax\nret\n.byte 0,0,0\n"+ // 0 to 6
		"push %rbx\nmov %rdi,%rbx\nmov %rbx,%rax\npop %rbx\nret\n.byte 0,0,0\n"+ // 7 to 18
		"lfence\nret\n.byte 0,0,0,0\n"+ // 0f ae e8 c3 00 00 00 00: from its third byte on, a call of what is behind it
		".skip 0xbc-8,0x90\nxor %eax,%eax\nret\n")
	r, err := Of(o, Options{Mode: All})
	require.NoError(t, err)
	starts := map[uint64]bool{}
	base := r.Functions[0].Start()
	for i := range r.Functions {
		if r.Functions[i].Ranges[0].Row == Entry {
			starts[uint64(r.Functions[i].Start()-base)] = true
		}
	}
	assert.True(t, starts[7], "%v", starts)
	assert.True(t, starts[19], "%v", starts)
}
