package check_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/analysis/check"
)

// TestCold: a cold part jumped to with a frame, whose FDE says that there is none.
func TestCold(t *testing.T) {
	const part = `
.text
f: .cfi_startproc
push %rbx
.cfi_def_cfa_offset 16
.cfi_offset 3,-16
test %edi,%edi
jne f.cold
call g
pop %rbx
.cfi_def_cfa_offset 8
.cfi_restore 3
ret
.cfi_endproc
.section .text.unlikely,"ax"
f.cold: .cfi_startproc
ROWS
call g
mov $1,%eax
call abort
.cfi_endproc
`
	const rows = ".cfi_def_cfa_offset 16\n.cfi_offset 3,-16"
	r := run(t, assemble(t, "f.s", replace(part, "ROWS", rows)))
	assert.Empty(t, errorsIn(r))
	r = run(t, assemble(t, "f.s", replace(part, "ROWS", "")))
	require.Len(t, errorsIn(r), 1)
	f := errorsIn(r)[0]
	assert.Equal(t, check.KindCFA, f.Kind)
	assert.Equal(t, "rsp+16", f.Actual)
	assert.Equal(t, f.Start, f.PC)
}

// TestStrayJump: GCC lets a switch jump to a cold label without code, behind which another function's cold part lies.
// If that part runs on past its end, it is one that is never entered; the jump then says nothing about its row.
func TestStrayJump(t *testing.T) {
	const part = `
.text
f: .cfi_startproc
push %rbx
.cfi_def_cfa_offset 16
.cfi_offset 3,-16
cmp $9,%edi
ja g.cold
call h
pop %rbx
.cfi_def_cfa_offset 8
.cfi_restore 3
ret
.cfi_endproc
.section .text.unlikely,"ax"
g.cold: .cfi_startproc
.cfi_def_cfa_offset OFFSET
.cfi_offset 3,SLOT
mov %eax,%ecx
END
.cfi_endproc
.data
.quad g.cold
`
	findings := func(offset, slot, end string) []check.Finding {
		source := strings.NewReplacer("OFFSET", offset, "SLOT", slot, "END", end).Replace(part)
		return errorsIn(run(t, assemble(t, "f.s", source)))
	}
	assert.Empty(t, findings("96", "-16", ""))
	assert.NotEmpty(t, findings("96", "-16", "call abort"), "the code has an end")
	assert.NotEmpty(t, findings("16", "-24", ""), "f has this frame")
}

// TestPartJumpsBack: a moved part that jumps back, whatever names it. Its first row is no witness for itself: the state
// at the jump to it counts. Its function is judged, too.
func TestPartJumpsBack(t *testing.T) {
	const part = `
.text
.globl f
.type f,@function
f: .cfi_startproc
push %rbx
.cfi_def_cfa_offset 16
.cfi_offset 3,-16
push %rbp
.cfi_def_cfa_offset 24
.cfi_offset 6,-24
mov %rdi,%rbx
call *%rsi
test %eax,%eax
js part
1: pop %rbp
.cfi_def_cfa_offset 16
.cfi_restore 6
pop %rbx
.cfi_def_cfa_offset 8
.cfi_restore 3
ret
.cfi_endproc
.size f,.-f
.section .text.unlikely,"ax"
NAME
part: .cfi_startproc
ROWS
mov %rbx,%rdi
call *%rbp
jmp 1b
.cfi_endproc
`
	const rows = ".cfi_def_cfa_offset 24\n.cfi_offset 3,-16\n.cfi_offset 6,-24"
	for name, head := range map[string]string{
		"label": "", "local": ".type part,@function", "cold": ".set f.cold,part\n.type f.cold,@function",
		"hidden": ".globl part\n.hidden part\n.type part,@function", "exported": ".globl part\n.type part,@function",
	} {
		for _, form := range []string{".o", ".so", "stripped"} {
			found := func(rows string) []check.Finding {
				path := assemble(t, "f.s", replace(replace(part, "NAME", head), "ROWS", rows))
				if form != ".o" {
					flags := []string{"-shared", "-nostdlib", "-o", path + form, path}
					if form == "stripped" {
						flags = append(flags, "-s")
					}
					msg, err := exec.Command("gcc", flags...).CombinedOutput()
					require.NoError(t, err, "%s", msg)
					path += form
				}
				r := run(t, path)
				assert.Equal(t, r.Instructions, r.Judged, "%s %s", name, form)
				return errorsIn(r)
			}
			assert.Empty(t, found(rows), "%s %s", name, form)
			if wrong := found(""); assert.Len(t, wrong, 1, "%s %s", name, form) {
				assert.Equal(t, check.KindCFA, wrong[0].Kind)
				assert.Equal(t, "rsp+24", wrong[0].Actual)
				assert.Equal(t, wrong[0].Start, wrong[0].PC)
			}
		}
	}
}
