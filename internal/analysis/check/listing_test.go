package check_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/analysis/check"
)

// TestPath: a finding's path has the fewest jumps from the function's start, also through a loop, a jump table and a
// moved part.
func TestPath(t *testing.T) {
	const framed = "push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\n"
	const wrong = "push %rax\nnop\nnop\npop %rax\nret\n"
	for _, c := range []struct{ name, body, want string }{
		{"straight", wrong, ""},
		{"branches", "test %edi,%edi\nje 1f\nret\n1: test %esi,%esi\njne 2f\nnop\n1: dec %esi\njne 1b\n2: " + wrong,
			"0x11020, 0x11022 je 0x11025"},
		{"table", "cmp $1,%edi\nja 3f\nlea 4f(%rip),%rax\nmovslq (%rax,%rdi,4),%rcx\nadd %rcx,%rax\njmp *%rax\n" +
			"1: ret\n2: " + wrong + "3: ret\n.pushsection .rodata\n4: .long 1b-4b,2b-4b\n.popsection",
			"0x11020, 0x11033 jmp rax to 0x11036"},
		{"part", framed + "test %edi,%edi\njne f.cold\npop %rbx\n.cfi_def_cfa_offset 8\nret\n.cfi_endproc\n.size f,.-f\n" +
			".section .text.unlikely,\"ax\",@progbits\nf.cold: .cfi_startproc\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\n" +
			"push %rax\nnop\npop %rax\npop %rbx\n.cfi_def_cfa_offset 8\nret", "0x11020, 0x11023 to 0x110[0-9a-f]{2}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			source := ".text\n.globl f\n.type f,@function\nf: .cfi_startproc\n" + c.body + "\n.cfi_endproc\n"
			path := assemble(t, "path.s", source)
			f, err := os.Open(path)
			require.NoError(t, err)
			defer f.Close()
			info, err := f.Stat()
			require.NoError(t, err)
			s, err := check.Open(path, f, info.Size())
			require.NoError(t, err)
			r := s.Run(check.Options{Listing: func(int, []check.Line) {}})
			require.NotEmpty(t, r.Findings)
			assert.Regexp(t, "^"+c.want+"$", r.Findings[0].Path)
		})
	}
}
