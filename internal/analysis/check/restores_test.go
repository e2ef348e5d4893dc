package check_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/analysis/check"
)

// TestNotRestored: a function that loses r12 is wrong where other code may call it, or where it saves registers. Only
// of an inner one, whose callers all live with it, that may be a convention.
func TestNotRestored(t *testing.T) {
	const caller = ".globl main\n.type main,@function\nmain: .cfi_startproc\npush %r12\n.cfi_def_cfa_offset 16\n.cfi_offset 12,-16\n" +
		"call f\npop %r12\n.cfi_def_cfa_offset 8\n.cfi_restore 12\nret\n.cfi_endproc\n.size main,.-main\n"
	const careless = ".globl main\n.type main,@function\nmain: .cfi_startproc\nsub $8,%rsp\n.cfi_def_cfa_offset 16\n" +
		"call f\nadd $8,%rsp\n.cfi_def_cfa_offset 8\nret\n.cfi_endproc\n.size main,.-main\n"
	const loses = "mov %rdi,%r12\nnop\nmov %r12,%rax\nret\n"
	for _, c := range []struct {
		name, head, body, rest string
		abi                    bool
		want                   []check.Severity
	}{
		{name: "global", head: ".globl f\n", body: loses, rest: caller, want: []check.Severity{check.SeverityError}},
		{name: "weak", head: ".weak f\n", body: loses, rest: caller, want: []check.Severity{check.SeverityError}},
		{name: "leaf at the return alone", head: ".globl f\n", body: "mov %rdi,%r12\nret\n",
			want: []check.Severity{check.SeverityError}},
		{name: "nothing calls it", body: loses, want: []check.Severity{check.SeverityError}},
		{name: "its address is taken", body: loses, rest: caller + "g: .cfi_startproc\nlea f(%rip),%rax\nret\n.cfi_endproc\n",
			want: []check.Severity{check.SeverityError}},
		{name: "inner", body: loses, rest: caller, want: []check.Severity{check.SeverityNote}},
		{name: "inner, hidden", head: ".globl f\n.hidden f\n", body: loses, rest: caller,
			want: []check.Severity{check.SeverityNote}},
		{name: "inner, with --abi", body: loses, rest: caller, abi: true, want: []check.Severity{check.SeverityError}},
		{name: "the caller loses it", body: loses, rest: careless, want: []check.Severity{check.SeverityNote,
			check.SeverityError}},
		{name: "saves another", body: "push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\nmov %rdi,%r12\nmov %rsi,%rbx\nnop\npop %rbx\n" +
			".cfi_def_cfa_offset 8\n.cfi_restore 3\nret\n", rest: caller, want: []check.Severity{check.SeverityError}},
		{name: "by a vector register", body: "movq %r12,%xmm6\nmov %rdi,%r12\nnop\nmovq %xmm6,%r12\nret\n", rest: caller,
			want: []check.Severity{check.SeverityError}},
		{name: "by memory", body: "mov %r12,(%rsi)\nmov %rdi,%r12\nnop\nmov (%rsi),%r12\nret\n", rest: caller,
			want: []check.Severity{check.SeverityError}},
		{name: "a result in memory", body: "mov %r12,(%rsi)\nmov %rdi,%r12\nnop\nmov 8(%rsi),%r12\nret\n", rest: caller,
			want: []check.Severity{check.SeverityNote}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := assemble(t, "f.s", ".text\n"+c.head+".type f,@function\nf: .cfi_startproc\n"+c.body+".cfi_endproc\n.size f,.-f\n"+c.rest)
			got := []check.Severity{}
			for _, f := range runWith(t, path, check.Options{ABI: c.abi}).Findings {
				if f.Kind == check.KindClobbered {
					require.Equal(t, "r12", f.Register)
					got = append(got, f.Severity)
				}
			}
			assert.Equal(t, c.want, got)
		})
	}
}
