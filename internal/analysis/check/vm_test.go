package check_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ehasm/ehasm/internal/analysis/check"
)

// TestHandWritten: shapes of interpreters and of clone, where rows, names and paths contradict each other.
func TestHandWritten(t *testing.T) {
	const frame, unframe = "sub $24,%rsp\n.cfi_adjust_cfa_offset 24\n", "add $24,%rsp\n.cfi_adjust_cfa_offset -24\n"
	for _, c := range []struct {
		name, body string
		want       []expected
	}{
		// breakpad's and libasan's clone: the child pops its function from a new stack, and never gets to 1
		{"child of a clone", frame + "mov $56,%eax\nsyscall\ntest %rax,%rax\njne 1f\npop %rax\npop %rdi\ncall *%rax\nmov %rax,%rdi\nmov $60,%eax\nsyscall\n1: call g\n" + unframe + "ret",
			nil},
		// Go's nanotime: where two stacks meet, the frame pointer shows that the row is about one of them
		{"two stacks", "push %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_offset 6,-16\nmov %rsp,%rbp\ntest %edi,%edi\nje 1f\nmov %rsi,%rsp\n1: call g\nmov %rbp,%rsp\npop %rbp\n.cfi_adjust_cfa_offset -8\n.cfi_restore 6\nret",
			[]expected{{check.KindCFA, check.SeverityError, 11, "rbp+16", "rsp+16", 2}}},
		// LuaJIT's lj_vm_cpcall: the VM's one row is about what follows the pushes
		{"second prologue", "push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_offset 3,-16\npush %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_offset 6,-24\nsub $8,%rsp\n.cfi_adjust_cfa_offset 8\ncall g\njmp *%rax\n" +
			"push %rbx\npush %rbp\nsub $8,%rsp\ncall g\njmp *%rax",
			[]expected{{check.KindCFA, check.SeverityError, 13, "rsp+8", "rsp+32", 3}}},
		// LuaJIT's vm_floor, behind the call of a function that reports an error
		{"helper behind a call", frame + "test %edi,%edi\nje 1f\ncall 2f\n" + unframe +
			"ret\n.cfi_adjust_cfa_offset 24\n1: call g\n2: addsd %xmm0,%xmm0\nmov $1,%eax\nret",
			[]expected{{check.KindCFA, check.SeverityError, 23, "rsp+8", "rsp+32", 3}}},
		// LuaJIT's fff_gcstep
		{"helper that keeps its return address in a register",
			frame + "call 1f\n" + unframe + "ret\n.cfi_adjust_cfa_offset 24\n1: pop %rbp\ncall g\njmp *%rbp",
			[]expected{{check.KindCFA, check.SeverityWarning, 14, "rsp+40", "rsp+32", 1},
				{check.KindClobbered, check.SeverityError, 15, "lost", "unchanged", 2}}},
		// LuaJIT's lj_vm_unwind_ff: the frame is entered again, with a stack pointer that another function found
		{"stack pointer from elsewhere", frame + "1: call g\nadd $24,%rsp\nmov $1,%eax\nret\nmov %rdi,%rsp\njmp 1b",
			[]expected{{check.KindCFA, check.SeverityError, 13, "rsp+8", "rsp+32", 2}}},
		// SBCL's call_into_lisp: Lisp code returns the stack pointer in a register
		{"pops from elsewhere", "push %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_offset 6,-16\nmov %rsp,%rbp\n.cfi_def_cfa_register 6\npush %r15\n.cfi_offset 15,-24\ncall g\nmov %rax,%rsp\npop %r15\n.cfi_restore 15\nnop\nnop\nleave\n.cfi_def_cfa 7,8\nret",
			nil},
		// Qt's QProcess::setupChildProcess is empty, so that its symbol is at the cold part of the function behind it
		{"cold part with the name of an empty function", frame + "test %edi,%edi\nje e\n" + unframe +
			"ret\n.cfi_endproc\n.size f,.-f\n.globl e\n.type e,@function\ne: .cfi_startproc\n.cfi_def_cfa_offset 32\nmov %rbx,%rdi\ncall abort",
			nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := run(t, assemble(t, "f.s",
				".text\n.globl f\n.type f,@function\nf: .cfi_startproc\n"+c.body+"\n.cfi_endproc\n"))
			got := []expected{}
			for _, f := range r.Findings {
				if f.Kind != check.KindNoRow {
					got = append(got, expected{f.Kind, f.Severity, f.PC - f.Start, f.Actual, f.Claimed, f.Count})
				}
			}
			assert.Equal(t, append([]expected{}, c.want...), got)
		})
	}
}
