package check_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/analysis/check"
)

// TestNever: that a row is never true is said of a CFA, not of a register, which may be right on one of the ways to it.
func TestNever(t *testing.T) {
	for _, c := range []struct {
		body  string
		kind  check.Kind
		never bool
	}{
		// behind the pop, the word still holds rbx
		{"test %edi,%edi\nje 1f\npush %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\nxor %ebx,%ebx\ncall g\npop %rbx\n.cfi_def_cfa_offset 8\n1: ret",
			check.KindSaved, false},
		{"nop\n.cfi_def_cfa_offset 16\nnop\nret", check.KindCFA, true},
		{"push %rax\nnop\nadd $8,%rsp\nret", check.KindCFA, false}, // before the push
	} {
		r := run(t, assemble(t, "f.s", ".text\nf: .cfi_startproc\n"+c.body+"\n.cfi_endproc\n"))
		require.NotEmpty(t, r.Findings, c.body)
		assert.Equal(t, c.kind, r.Findings[0].Kind, c.body)
		assert.Equal(t, c.never, r.Findings[0].Never, c.body)
	}
}
