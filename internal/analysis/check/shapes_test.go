package check_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/analysis/check"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// assemble makes a relocatable file of assembly, or of C with the compiler's flags.
func assemble(t testing.TB, name, source string, flags ...string) string {
	testtool.Need(t, "gcc")
	dir := t.TempDir()
	in, out := filepath.Join(dir, name), filepath.Join(dir, "out.o")
	require.NoError(t, os.WriteFile(in, []byte(source), 0o600))
	cmd := exec.Command("gcc", append(flags, "-c", "-o", out, in)...)
	if strings.HasSuffix(name, ".s") && len(flags) == 0 { // hundreds: as alone takes half the time
		cmd = exec.Command("as", "-o", out, in)
	}
	msg, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", msg)
	return out
}

type expected struct {
	kind   check.Kind
	sev    check.Severity
	offset uint64 // from the function's start
	actual string
	says   string
	count  int
}

// TestShapes: small functions, each with one kind of wrong row, or none.
func TestShapes(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       []expected
	}{
		{"right", "push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\ncall g\npop %rbx\n.cfi_def_cfa_offset 8\nret", nil},
		// llvm-project issue 220720: a push for a call that does not return, without a row
		{"push before abort", "test %edi,%edi\nje 1f\nret\n1: push %rax\ncall abort", []expected{{check.KindCFA,
			check.SeverityError, 6, "rsp+16", "rsp+8", 1}}},
		// glibc's inline-assembly lock: the stack pointer moves around a system call
		{"sub around syscall", "sub $128,%rsp\nmov $202,%eax\nsyscall\nadd $128,%rsp\nret", []expected{{check.KindCFA,
			check.SeverityError, 7, "rsp+136", "rsp+8", 3}}},
		{"epilogue", "push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\ncall g\npop %rbx\nmov $1,%eax\nret",
			[]expected{{check.KindCFA, check.SeverityError, 7, "rsp+8", "rsp+16", 2}}},
		{"one late", "push %rbx\nmov %edi,%ebx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\ncall g\npop %rbx\n.cfi_def_cfa_offset 8\n.cfi_restore 3\nret",
			[]expected{{check.KindCFA, check.SeverityWarning, 1, "rsp+16", "rsp+8", 1}}},
		{"wrong slot", "push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-24\nxor %ebx,%ebx\ncall g\npop %rbx\n.cfi_def_cfa_offset 8\n.cfi_restore 3\nret",
			[]expected{{check.KindSaved, check.SeverityError, 1, "unchanged", "at CFA-24", 3}}},
		{"clobbered", "mov %rbx,%rdx\nxor %ebx,%ebx\nmov %rdx,%rbx\nret",
			[]expected{{check.KindClobbered, check.SeverityWarning, 5, "in rdx", "unchanged", 1}}},
		{"ret elsewhere", "push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\nret",
			[]expected{{check.KindRet, check.SeverityError, 1, "rsp is CFA-16", "CFA-8 at a ret", 1}}},
		{"inside an instruction", "mov $1,%eax\n.cfi_adjust_cfa_offset 0\nret\n", nil},
		{"frame pointer and alloca",
			"push %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset 6,-16\nmov %rsp,%rbp\n.cfi_def_cfa_register 6\nsub %rdi,%rsp\nand $-32,%rsp\ncall g\nleave\n.cfi_def_cfa 7,8\nret", nil},
		{"call to the next instruction",
			"call 1f\n1: .cfi_adjust_cfa_offset 8\npop %rax\n.cfi_adjust_cfa_offset -8\nret", nil},
		{"enter", "enter $16,$0\n.cfi_def_cfa 6,16\n.cfi_offset 6,-16\ncall g\nleave\n.cfi_def_cfa 7,8\nret", nil},
		{"pushed flags", "pushf\ncld\npopf\nret",
			[]expected{{check.KindCFA, check.SeverityError, 1, "rsp+16", "rsp+8", 2}}},
		// the end of libgcc's _Unwind_RaiseException
		{"eh_return", "mov %rdi,%rcx\n.cfi_def_cfa 2,8\nmov %rcx,%rsp\n.cfi_def_cfa 7,8\npop %rcx\n.cfi_def_cfa_offset 0\njmp *%rcx",
			[]expected{{check.KindCFA, check.SeverityNote, 3, "rsp+8", "rcx+8", 1}}},
		// a retpoline of GCC: the ret jumps to rdi
		{"jump by ret", "call 1f\n2: pause\njmp 2b\n1: .cfi_def_cfa_offset 16\nmov %rdi,(%rsp)\nret", nil},
		{"jump by ret of a register that is kept",
			"call 1f\n2: pause\njmp 2b\n1: .cfi_def_cfa_offset 16\nmov %r12,(%rsp)\nret", nil},
		{"jump by push and ret", "push %rdi\n.cfi_def_cfa_offset 16\nret", nil},
		// libffi 3.2's ffi_closure_unix64: a jump table between the instructions, whose bytes decode as pop %rax
		{"jump table in the code", "lea 1f(%rip),%r11\nmovslq (%r11,%rdi,4),%r10\nadd %r11,%r10\njmp *%r10\n" +
			"1: .long 2f-1b,2f-1b,3f-1b\n.fill 0x4c,1,0x90\n2: ret\n3: nop\nret", nil},
		// libffi's ffi_call_win64: its frame is in memory that the caller gives
		{"second frame", "mov (%rsp),%rax\nmov %rbp,(%rsi)\nmov %rax,8(%rsi)\nmov %rsi,%rbp\n.cfi_def_cfa 6,16\n.cfi_offset 6,-16\n" +
			"mov %rdi,%rsp\nleave\n.cfi_def_cfa 7,8\nret",
			[]expected{{check.KindCFA, check.SeverityNote, 14, "rsp+8", "rbp+16", 1}}},
		// libgcc's __avx_resms64x_18 and __avx_resms64fx_17, to which a jump leads: the frame is in a register
		{"frame in r10", ".cfi_def_cfa 10,8\nmov -8(%rsi),%rdi\nmov %r10,%rsp\n.cfi_def_cfa 7,8\nret", nil},
		{"frame in rbp", ".cfi_def_cfa 6,16\n.cfi_offset 6,-16\nmov -8(%rsi),%rdi\nleave\n.cfi_restore 6\n.cfi_def_cfa 7,8\nret", nil},
		// GHC's obscure_ccall_ret_code, to which a ret leads
		{"entered by a ret", "add $8,%rsp\nret", []expected{{check.KindCFA, check.SeverityNote, 4, "rsp", "rsp+8", 1}}},
		// libgcc's __morestack, without a frame for itself; the same row is wrong where the function returns as others do
		{"caller's frame", ".cfi_def_cfa_offset 16\nincq (%rsp)\nret",
			[]expected{{check.KindCFA, check.SeverityNote, 0, "rsp+8", "rsp+16", 2}}},
		{"not the caller's frame", ".cfi_def_cfa_offset 16\nmov (%rsp),%rax\nret",
			[]expected{{check.KindCFA, check.SeverityError, 0, "rsp+8", "rsp+16", 2}}},
		// Go's rt0_go, whose end nothing leads to: it puts arguments where the row has the return address
		{"return address lost in dead code", "ret\nmovq $2,(%rsp)\nnop\nnop\nud2",
			[]expected{{check.KindReturn, check.SeverityNote, 9, "lost", "at CFA-8", 3}}},
		// a byte past an array, on a path that is never taken; but bytes of a word that is free again are written
		{"byte in the saved word", "push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\nxor %ebx,%ebx\nmov %al,(%rsp)\nnop\nnop\n" +
			"pop %rbx\n.cfi_def_cfa_offset 8\n.cfi_restore 3\nret", nil},
		{"vector over the saved word",
			"push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\nxor %ebx,%ebx\nmovups %xmm0,-8(%rsp)\nnop\nnop\n" +
				"pop %rbx\n.cfi_def_cfa_offset 8\n.cfi_restore 3\nret", nil},
		// LLVM's getAllDbgVariableRecordUsers: it sorts an array that has moved to the heap if a loop goes past its end
		{"words of an array moved up past its end",
			"push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\nsub $16,%rsp\n.cfi_def_cfa_offset 32\n" +
				"xor %ebx,%ebx\nlea 8(%rsp),%rsi\nmov 16(%rsi),%rax\nmov 8(%rsi),%rcx\nmov %rcx,16(%rsi)\nmov %rax,8(%rsi)\nnop\nnop\n" +
				"add $16,%rsp\n.cfi_def_cfa_offset 16\npop %rbx\n.cfi_def_cfa_offset 8\n.cfi_restore 3\nret", nil},
		{"bytes in the word of a restored register",
			"push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\nxor %ebx,%ebx\nmov (%rsp),%rbx\n" +
				"mov %ax,(%rsp)\nnop\nnop\nadd $8,%rsp\n.cfi_def_cfa_offset 8\n.cfi_restore 3\nret",
			[]expected{{check.KindSaved, check.SeverityError, 11, "unchanged", "at CFA-16", 3}}},
		{"probes and barriers",
			"push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\nxorq $0,(%rsp)\nlock orq $0,(%rsp)\nxor %ebx,%ebx\ncall g\npop %rbx\n.cfi_def_cfa_offset 8\nret", nil},
		{"speculative load hardening",
			"push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\nmov %rsp,%rdi\nor %rax,%rsp\ncall g\npop %rbx\n.cfi_def_cfa_offset 8\nret", nil},
		// clang -fsanitize=function: the data, read as jbe, would lead to 1
		{"type before a function", "jmp 2f\n.byte 0x76,1f-.-1,0,0,0,0\n2: push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\ncall g\n1: pop %rbx\n.cfi_def_cfa_offset 8\nret", nil},
		{"data among code", "push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\njmp 2f\n.skip 20,0x48\n2: call g\npop %rbx\n.cfi_def_cfa_offset 8\nret", nil},
		{"ret $16", "mov 8(%rsp),%rax\nret $16\n.cfi_endproc\nh: .cfi_startproc\nsub $16,%rsp\n.cfi_def_cfa_offset 24\ncall f\n.cfi_def_cfa_offset 8\nret", nil},
		// OCaml: behind a raise comes the handler of another try
		{"handler behind a raise", "sub $24,%rsp\n.cfi_def_cfa_offset 32\ncall caml_raise_exn\n.cfi_def_cfa_offset 16\nadd $8,%rsp\n.cfi_def_cfa_offset 8\nret", nil},
		// Go's reflect.call1073741824
		{"frame of 1 GB", "push %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset 6,-16\nmov %rsp,%rbp\nsub $1073741856,%rsp\n" +
			".cfi_def_cfa_offset 1073741872\ncall g\nadd $1073741856,%rsp\n.cfi_def_cfa_offset 16\npop %rbp\n.cfi_def_cfa_offset 8\n.cfi_restore 6\nret", nil},
		// a global register variable is one of many functions; a single one is a finding
		{"longjmp", "mov (%rdi),%rbx\nmov 8(%rdi),%rbp\nmov 16(%rdi),%rsp\njmp *24(%rdi)",
			[]expected{{check.KindClobbered, check.SeverityNote, 3, "lost", "unchanged", 2}}},
		// libffi's call with a frame that its caller gives it
		{"another frame", "mov (%rsp),%r10\nlea (%rdi,%rsi),%rax\nmov %rbp,(%rax)\nmov %r10,8(%rax)\nmov %rax,%rbp\n.cfi_def_cfa 6,16\n.cfi_offset 6,-16\ntest %edx,%edx\nmov %rbp,%rsp\npop %rbp\n.cfi_def_cfa 7,8\nret",
			[]expected{{check.KindCFA, check.SeverityNote, 18, "rsp+8", "rbp+16", 2}}},
		{"same value of rdi", ".cfi_same_value %rdi\nnop\nxor %edi,%edi\nnop\ncall g\nret",
			[]expected{{check.KindClobbered, check.SeverityWarning, 3, "lost", "unchanged", 3}}},
		// other files may call a global function, which so keeps the psABI
		{"same value of rbx", ".cfi_same_value %rbx\nxor %ebx,%ebx\nnop\nret",
			[]expected{{check.KindClobbered, check.SeverityError, 2, "lost", "unchanged", 2}}},
		{"rbx without a rule", "xor %ebx,%ebx\nnop\nret",
			[]expected{{check.KindClobbered, check.SeverityError, 2, "lost", "unchanged", 2}}},
		{"same value of rdi, kept",
			".cfi_same_value %rdi\npush %rdi\n.cfi_adjust_cfa_offset 8\npop %rdi\n.cfi_adjust_cfa_offset -8\nret", nil},
		// ghc's StgReturn: the frame is another's, and was true before the code moved the stack pointer
		{"another frame, left", "jmp *%rdi\n.cfi_def_cfa 7,0\n.cfi_offset 16,48\nmov %rbx,%rax\nadd $32,%rsp\nmov (%rsp),%rbx\nret\nret",
			[]expected{{check.KindCFA, check.SeverityError, 9, "rsp-32", "rsp", 2},
				{check.KindRet, check.SeverityNote, 14, "rsp is CFA", "CFA-8 at a ret", 1}}},
		// LuaJIT's helpers in the one FDE of the VM: the ret shows where the return address is
		{"code that only its ret explains",
			".cfi_def_cfa 7,80\nsub $72,%rsp\n.cfi_def_cfa 7,80\ncall g\nadd $72,%rsp\nret\n.p2align 4\nmovaps %xmm0,%xmm1\naddsd %xmm1,%xmm0\nret",
			[]expected{{check.KindCFA, check.SeverityWarning, 0, "rsp+8", "rsp+80", 1},
				{check.KindCFA, check.SeverityError, 13, "rsp+8", "rsp+80", 4}}},
		{"exchanged", "xchg %rsp,%rax\n.cfi_def_cfa_register 0\nnop\nxchg %rsp,%rax\n.cfi_def_cfa_register 7\nret",
			nil},
		// clang of a call that does not return, padding, and a block that is reached with another
		// rsp; rbx gives the CFA
		{"padding after a call", "push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\nmov %rsp,%rbx\ntest %edi,%edi\nje 1f\nsub $32,%rsp\n.cfi_adjust_cfa_offset 32\ncall h\n.cfi_adjust_cfa_offset -32\n.p2align 4\n1: call g\npop %rbx\n.cfi_def_cfa_offset 8\nret", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := run(t, assemble(t, "f.s",
				".text\n.globl f\n.type f,@function\nf: .cfi_startproc\n"+c.body+"\n.cfi_endproc\n.size f,.-f\n"))
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

// TestPushedArguments: an unwinder pops arguments before it enters a landing pad, also those that the function itself
// was given in registers.
func TestPushedArguments(t *testing.T) {
	r := run(t, assemble(t, "f.s", `
	.text
	.globl f
	.type f,@function
f:	.cfi_startproc
	.cfi_personality 3,g
	.cfi_lsda 3,2f
	push %r14
	.cfi_def_cfa_offset 16
	.cfi_offset 14,-16
	mov %r8,%r14
	.cfi_escape 0x2e,8
	push %r14
	.cfi_def_cfa_offset 24
1:	call g
	add $8,%rsp
	.cfi_def_cfa_offset 16
	pop %r14
	.cfi_def_cfa_offset 8
	.cfi_restore 14
	ret
3:	.cfi_def_cfa_offset 16
	.cfi_offset 14,-16
	.cfi_escape 0x2e,0
	mov %rax,%rdi
	call _Unwind_Resume
	.cfi_endproc
	.size f,.-f
	.section .gcc_except_table,"a"
2:	.byte 0xff,0xff,1,4,1b-f,5,3b-f,0
`))
	assert.Empty(t, r.Findings)
}

// TestShapesMended: the wrong ones of TestShapes with the rows that they lack have no finding.
func TestShapesMended(t *testing.T) {
	for name, body := range map[string]string{
		"push before abort":  "test %edi,%edi\nje 1f\nret\n1: push %rax\n.cfi_def_cfa_offset 16\ncall abort",
		"sub around syscall": "sub $128,%rsp\n.cfi_adjust_cfa_offset 128\nmov $202,%eax\nsyscall\nadd $128,%rsp\n.cfi_adjust_cfa_offset -128\nret",
		"epilogue":           "push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\ncall g\npop %rbx\n.cfi_def_cfa_offset 8\n.cfi_restore 3\nmov $1,%eax\nret",
		"one late":           "push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset 3,-16\nmov %edi,%ebx\ncall g\npop %rbx\n.cfi_def_cfa_offset 8\n.cfi_restore 3\nret",
		"pushed flags":       "pushf\n.cfi_adjust_cfa_offset 8\ncld\npopf\n.cfi_adjust_cfa_offset -8\nret",
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, assemble(t, "f.s",
				".text\n.globl f\n.type f,@function\nf: .cfi_startproc\n"+body+"\n.cfi_endproc\n.size f,.-f\n"))
			assert.Empty(t, r.Findings)
			assert.Equal(t, r.Instructions, r.Judged, "%v", r.NotJudged)
		})
	}
}

// TestDirectives: each directive, put before the first wrong instruction, leaves the finding without that instruction.
func TestDirectives(t *testing.T) {
	for name, lines := range map[string][]string{
		"offset": {"push %rbx", "nop", "pop %rbx", "ret"},
		"register": {"push %rbp", ".cfi_def_cfa_offset 16", ".cfi_offset 6,-16", "mov %rsp,%rbp", "sub %rdi,%rsp",
			"nop", "leave", ".cfi_def_cfa 7,8", "ret"},
		"saved": {"push %rbx", ".cfi_def_cfa_offset 16", ".cfi_offset 3,-24", "xor %ebx,%ebx", "nop", "pop %rbx",
			".cfi_def_cfa_offset 8", ".cfi_restore 3", "ret"},
		"moved": {"mov %rbx,%rdx", "xor %ebx,%ebx", "nop", "mov %rdx,%rbx", "ret"},
	} {
		t.Run(name, func(t *testing.T) {
			findings := func(lines []string) []check.Finding {
				return errorsIn(run(t,
					assemble(t, "f.s", ".text\n.globl f\n.type f,@function\nf: .cfi_startproc\n"+strings.Join(lines,
						"\n")+"\n.cfi_endproc\n.size f,.-f\n")))
			}
			before := findings(lines)
			require.NotEmpty(t, before)
			f := before[0]
			require.NotEmpty(t, f.Directive)
			// the instruction at the finding's offset is the one before which the directive is right
			for k := range lines {
				mended := slices.Insert(slices.Clone(lines), k, f.Directive)
				if after := findings(mended); len(after) == 0 || after[0].PC > f.PC {
					return
				}
			}
			t.Errorf("%s mends nothing: %s", f.Directive, f.Message())
		})
	}
}

// TestTailCalls: functions that one jump leads to are not parts of the function that jumps, so the
// table in a register of one is no table of another.
func TestTailCalls(t *testing.T) {
	const source = `
.p2align 4
NAME: .cfi_startproc
push %rbx
.cfi_def_cfa_offset 16
.cfi_offset 3,-16
sub $SIZE,%rsp
.cfi_adjust_cfa_offset SIZE
lea NAME_table(%rip),%r9
xor %ebx,%ebx
1: cmp $1,%edi
ja 3f
mov %edi,%edi
movslq (%r9,%rdi,4),%rax
add %r9,%rax
jmp *%rax
2: dec %edi
3: sub $2,%edi
jne 1b
add $SIZE,%rsp
.cfi_adjust_cfa_offset -SIZE
pop %rbx
.cfi_def_cfa_offset 8
.cfi_restore 3
ret
.cfi_endproc
.section .rodata
NAME_table: .long 2b-NAME_table,3b-NAME_table
.text
`
	text := ".text\n.globl f\n.type f,@function\nf: .cfi_startproc\ntest %edi,%edi\nje one\njmp two\n.cfi_endproc\n.size f,.-f\n" +
		replace(replace(source, "NAME", "one"), "SIZE", "16") + replace(replace(source, "NAME", "two"), "SIZE", "64")
	r := run(t, assemble(t, "f.s", text))
	assert.Empty(t, r.Findings)
	assert.Equal(t, r.Instructions, r.Judged, "%v", r.NotJudged)
}

// TestOutlinedLock: glibc's lock of inline assembly: a separate part, jumped to and left by jumps,
// that moves the stack pointer around a call.
func TestOutlinedLock(t *testing.T) {
	const source = `
.text
.globl f
.type f,@function
f: .cfi_startproc
push %rbx
.cfi_def_cfa_offset 16
.cfi_offset 3,-16
mov %rdi,%rbx
lock cmpxchg %esi,(%rdi)
jne _L_lock_19
1: call g
pop %rbx
.cfi_def_cfa_offset 8
.cfi_restore 3
ret
_L_lock_19:
lea (%rdi),%rdi
sub $128,%rsp
SUB
call wait
add $128,%rsp
ADD
jmp 1b
.cfi_endproc
.size f,.-f
`
	const rows = ".cfi_def_cfa_offset 16\n.cfi_offset 3,-16\n"
	r := run(t, assemble(t, "f.s", replace(replace(source, "SUB", rows+".cfi_def_cfa_offset 144"), "ADD", rows)))
	require.Len(t, errorsIn(r), 1) // the lea and the sub have the row of the ret
	assert.Equal(t, 2, errorsIn(r)[0].Count)
	right := replace(source, "_L_lock_19:\n", "_L_lock_19:\n"+rows)
	r = run(t, assemble(t, "f.s", replace(replace(right, "SUB", ".cfi_def_cfa_offset 144"), "ADD", rows)))
	assert.Empty(t, errorsIn(r))
	r = run(t, assemble(t, "f.s", replace(replace(right, "SUB", ""), "ADD", "")))
	require.Len(t, errorsIn(r), 1)
	f := errorsIn(r)[0]
	assert.Equal(t, check.KindCFA, f.Kind)
	assert.Equal(t, "rsp+144", f.Actual)
	assert.Equal(t, "rsp+16", f.Claimed)
	assert.Equal(t, 2, f.Count)
}

// TestFirstRow: the first row is held against a call, if calls or pointers come to the function.
func TestFirstRow(t *testing.T) {
	for _, body := range []string{
		".cfi_def_cfa_offset 16\nmov $1,%eax\njmp g",
		".cfi_def_cfa 3,8\ncall abort",
	} {
		r := run(t, assemble(t, "f.s",
			".text\n.globl f\n.type f,@function\nf: .cfi_startproc\n"+body+"\n.cfi_endproc\n.size f,.-f\n"))
		require.Len(t, errorsIn(r), 1)
		assert.Equal(t, "rsp+8", errorsIn(r)[0].Actual)
	}
}

// TestResolver: what a PLT jumps to has two words more on the stack than a call leaves. Only its
// row says so, and the jump at its end, which would be above the return address otherwise.
func TestResolver(t *testing.T) {
	const body = "push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_offset 3,-32\nmov 8(%rsp),%rbx\nmov %rbx,%rdi\ncall g\nmov %rax,%r11\npop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore 3\n" +
		"add $16,%rsp\n.cfi_adjust_cfa_offset -16\njmp *%r11"
	source := func(first string) string {
		return ".text\n.globl f\n.type f,@function\nf: .cfi_startproc\n.cfi_def_cfa_offset " + first + "\n" + body +
			"\n.cfi_endproc\n.size f,.-f\n.data\n.quad f\n"
	}
	r := run(t, assemble(t, "f.s", source("24")))
	assert.Empty(t, r.Findings)
	assert.Equal(t, r.Instructions, r.Assumed)
	r = run(t, assemble(t, "f.s", source("32"))) // and no other than the one that fits its end
	assert.NotEmpty(t, errorsIn(r))
}

// TestGoPanic: a bounds check's call of Go's panic functions does not go on into the code behind
// it, which grows the stack.
func TestGoPanic(t *testing.T) {
	const source = `.text
.globl f
.type f,@function
f: .cfi_startproc
cmp 16(%r14),%rsp
jbe 2f
sub $24,%rsp
.cfi_def_cfa_offset 32
cmp %rax,%rcx
jae 1f
mov %rcx,8(%rsp)
add $24,%rsp
.cfi_def_cfa_offset 8
ret
.cfi_def_cfa_offset 32
1: call NAME
nop
.cfi_def_cfa_offset 8
2: call runtime.morestack_noctxt
jmp f
.cfi_endproc
.size f,.-f
`
	for _, name := range []string{"runtime.panicIndex", "runtime.goPanicSliceAlen", "runtime.panicdivide",
		"runtime.gopanic", "runtime.throw", "runtime.panicmem", "runtime.panicshift"} {
		r := run(t, assemble(t, "f.s", replace(source, "NAME", name)))
		assert.Empty(t, errorsIn(r), name)
		assert.Equal(t, r.Instructions, r.Judged, "%s: %v", name, r.NotJudged)
	}
	// these return; a row that takes them for panics is wrong
	for _, name := range []string{"runtime.panicCheck1", "runtime.printpanics", "main.panicIndex",
		"runtime.panics.String"} {
		r := run(t, assemble(t, "f.s", replace(source, "NAME", name)))
		assert.True(t, len(errorsIn(r)) > 0 || r.Judged < r.Instructions, name)
	}
}

const switches = `
int g(int); void h(void); void *volatile p;
int f(int n, int m) {
	char *a = __builtin_alloca(m);
	p = a;
	switch (n) {
	case 0: return g(1); case 1: return g(m) + 2; case 2: h(); return 3; case 3: return m; case 4: h(); h(); return g(5);
	case 5: return g(m) * 3; case 6: return g(g(m)); case 7: h(); return a[m / 2];
	}
	return g(n);
}
int drap(int n) { char buf[256] __attribute__((aligned(64))); p = buf; h(); return g(n) + buf[n]; }
int fact(int n) { return n < 2 ? 1 : n * fact(n - 1) + g(n); }
`

// TestCompiled: what a compiler emits is right, with frame pointers and without.
func TestCompiled(t *testing.T) {
	for _, flags := range [][]string{{"-O0"}, {"-O2"}, {"-O2", "-fno-omit-frame-pointer"},
		{"-O2", "-fno-pic", "-fno-pie"}, {"-Os"}, {"-O2", "-fPIC"}} {
		r := run(t, assemble(t, "f.c", switches, append(flags, "-fasynchronous-unwind-tables")...))
		assert.Empty(t, errorsIn(r), "%v", flags)
		assert.Equal(t, r.Instructions, r.Judged, "%v: %v", flags, r.NotJudged)
		assert.Zero(t, r.Assumed, "%v: jump tables", flags)
	}
}

// TestGo: Go's tables say nothing of registers, and its functions keep none. That is no warning.
func TestGo(t *testing.T) {
	testtool.Long(t) // go links
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	require.NoError(t, os.WriteFile(source,
		[]byte("package main\n\nfunc main() { println(len(os()[1])) }\n\nfunc os() []string { return []string{\"a\", \"b\"} }\n"), 0o644))
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "main"), source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	registers := 0
	r := run(t, filepath.Join(dir, "main"))
	assert.Greater(t, float64(r.Judged), 0.999*float64(r.Instructions), "%v", r.NotJudged)
	for _, f := range r.Findings {
		switch f.Kind {
		case check.KindSaved, check.KindClobbered:
			registers++
			assert.Equal(t, check.ClassGo, f.Class, "%+v", f)
			assert.Equal(t, check.SeverityNote, f.Severity, "%+v", f)
		case check.KindCFA:
			assert.NotEqual(t, check.ClassGo, f.Class, "%+v", f)
		}
	}
	assert.Greater(t, registers, 1000)
}

// TestLargeFunction: code of more than 4 MB in one FDE is counted, not interpreted, and the
// function beside it is judged.
func TestLargeFunction(t *testing.T) {
	const source = `.text
big: .cfi_startproc
.fill 0x400000,1,0x50
ret
.cfi_endproc
small: .cfi_startproc
push %rbx
.cfi_def_cfa_offset 16
pop %rbx
.cfi_def_cfa_offset 8
ret
.cfi_endproc
`
	r := run(t, assemble(t, "large.s", source))
	assert.Equal(t, map[string]int{check.ReasonLimit: 0x400001}, r.NotJudged)
	assert.Equal(t, 3, r.Judged)
	assert.Empty(t, r.Findings)
}

// TestPassedOver: r13 is a variable of the program if functions save r14 and none saves r13, which compilers take
// first.
func TestPassedOver(t *testing.T) {
	const body = "register long v asm(\"r13\"); long g(long); long swap(long a) { long old = v; v = a; a = g(a); v = old; return a; }\n"
	var many strings.Builder
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		many.WriteString("long " + name +
			"(long p, long q, long r, long s, long t) { return g(p) + g(q) + g(r) + g(s) + g(t) + p + q + r + s + t + '" + name +
			"'; }\n")
	}
	for source, want := range map[string]check.Severity{body: check.SeverityError,
		body + many.String(): check.SeverityNote} {
		rep := run(t, assemble(t, "in.c", source, "-O2"))
		require.NotEmpty(t, rep.Findings)
		for _, f := range rep.Findings {
			assert.Equal(t, "r13", f.Register)
			assert.Equal(t, want, f.Severity, "%+v", f)
		}
	}
}
