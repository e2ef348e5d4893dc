package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// badDirectives are functions whose directives are wrong: missing, with the wrong sign, late, of another register.
const badDirectives = `	.text
	.globl missing
	.type missing,@function
missing:	.cfi_startproc
	.byte 0xf3,0x0f,0x1e,0xfa
	push %rbx
	nop
	call other
	pop %rbx
	.byte 0xf3,0xc3
	.cfi_endproc
	.size missing,.-missing

	.globl states
	.type states,@function
states:
	.cfi_startproc
	push	%rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbp, 0
	mov	%rsp, %rbp
	push	%rbx
	sub	$264, %rsp
	xor	%ebx, %ebx
	call	other
	test	%eax, %eax
	je	1f
	.cfi_remember_state
	add	$264, %rsp	# to rbx
	pop	%rbx
	pop	%rbp
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbp
	ret
1:	.cfi_restore_state
	mov	-8(%rbp), %rbx
	leave
	ret
	.cfi_endproc
	.size states,.-states

	.globl sign
	.type sign,@function
sign:
	.cfi_startproc
	sub	$24, %rsp
	.cfi_adjust_cfa_offset 24
	call	other
	add	$24, %rsp
	.cfi_adjust_cfa_offset 24
	ret
	.cfi_endproc
	.size sign,.-sign
`

// assemble makes an object with line numbers of a source, and returns the bytes of its code.
func assemble(t *testing.T, dir, name string) []byte {
	t.Helper()
	run := func(name string, args ...string) {
		c := exec.Command(name, args...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	run("as", "-g", "-o", "f.o", name)
	run("objcopy", "-O", "binary", "-j", ".text", "f.o", "f.bin")
	code, err := os.ReadFile(filepath.Join(dir, "f.bin"))
	require.NoError(t, err)
	return code
}

func TestCheckFix(t *testing.T) {
	testtool.Need(t, "as")
	testtool.Need(t, "objcopy")
	testtool.Need(t, "patch")
	dir := t.TempDir()
	t.Chdir(dir)
	const name = "f f.s"
	require.NoError(t, os.WriteFile(name, []byte(badDirectives), 0o600))
	before := assemble(t, dir, name)
	r := ehasm(t, "check", "f.o")
	assert.Equal(t, exitFailed, r.code)

	r = ehasm(t, "check", "--fix", "f.o")
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Empty(t, r.stderr)
	assert.Contains(t, r.stdout, "-\t.cfi_adjust_cfa_offset 24\n+\t.cfi_def_cfa_offset 8\n")
	c := exec.Command("patch", "-p0")
	c.Stdin = strings.NewReader(r.stdout)
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, before, assemble(t, dir, name), "the code has changed")
	r = ehasm(t, "check", "f.o")
	assert.Equal(t, exitDone, r.code, r.stdout)
	r = ehasm(t, "check", "--fix", "f.o")
	assert.Empty(t, r.stdout+r.stderr)
}

func TestCheckFixNewerSource(t *testing.T) {
	testtool.Need(t, "as")
	testtool.Need(t, "objcopy")
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.WriteFile("f.s", []byte(badDirectives), 0o600))
	assemble(t, dir, "f.s")
	later := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes("f.s", later, later))
	r := ehasm(t, "check", "--fix", "f.o")
	assert.Equal(t, exitFailed, r.code)
	assert.Empty(t, r.stdout)
	assert.Contains(t, r.stderr, "f.s is newer than the object")
}

// TestCheckFixOtherText has files that take the source's place and are no newer than the object: lines that are not the
// instructions, the text of another user, and, where the debug information has an MD5 sum, any other text.
func TestCheckFixOtherText(t *testing.T) {
	testtool.Need(t, "as")
	testtool.Need(t, "objcopy")
	testtool.Need(t, "clang")
	dir := t.TempDir()
	t.Chdir(dir)
	prepare := func() (text string) {
		require.NoError(t, os.WriteFile("f.s", []byte(badDirectives), 0o600))
		assemble(t, dir, "f.s")
		return badDirectives
	}
	place := func(text string) {
		require.NoError(t, os.WriteFile("f.s", []byte(text), 0o600))
		past := time.Now().Add(-time.Hour)
		require.NoError(t, os.Chtimes("f.s", past, past))
	}
	refused := func(want string) {
		t.Helper()
		r := ehasm(t, "check", "--fix", "f.o")
		assert.Equal(t, exitFailed, r.code)
		assert.Empty(t, r.stdout)
		assert.Contains(t, r.stderr, want)
	}
	text := prepare()
	place(strings.Repeat("secret:$6$salt:19000:0:99999:7:::\n", 40))
	refused("is not the instruction at")
	place(strings.NewReplacer("call", "jmp", "leave", "nop").Replace(text))
	refused("is not the instruction at")
	if os.Getuid() == 0 {
		place(text)
		require.NoError(t, os.Chown("f.o", 65534, 65534))
		refused("f.s belongs to another user than the object")
		require.NoError(t, os.Chown("f.o", 0, 0))
	}

	prepare()
	out, err := exec.Command("clang", "-c", "-gdwarf-5", "-o", "f.o", "f.s").CombinedOutput()
	require.NoError(t, err, "%s", out)
	later := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes("f.s", later, later))
	r := ehasm(t, "check", "--fix", "f.o")
	assert.Equal(t, exitDone, r.code, r.stderr)
	assert.NotEmpty(t, r.stdout, "the same text, written again")
	place(text + "# a comment\n")
	refused("its MD5 sum differs")
}

// TestCheckFixRefuses has functions for which no line is certain. Nothing is changed then, and the reason given.
func TestCheckFixRefuses(t *testing.T) {
	testtool.Need(t, "as")
	testtool.Need(t, "objcopy")
	dir := t.TempDir()
	t.Chdir(dir)
	const begin, end = ".text\n.globl f\n.type f,@function\nf: .cfi_startproc\n", ".cfi_endproc\n.size f,.-f\n"
	for name, c := range map[string]struct{ file, text, want string }{
		"macro": {"f.s", ".macro two\npush %rbx\npush %rbp\nnop\npop %rbp\npop %rbx\n.endm\n" + begin + "nop\ntwo\nret\n" +
			end, "line"},
		"one line": {"f.s", begin + "push %rbx; nop; pop %rbx\nret\n" + end, "line 5 has several instructions"},
		"escape": {"f.s", begin + "push %rbx\n.cfi_escape 0x2e, 0\nnop\nnop\npop %rbx\nret\n" + end,
			".cfi_escape is not understood"},
		"beside": {"f.s", begin + "push %rbx\nnop; .cfi_adjust_cfa_offset 8\nnop\npop %rbx\nret\n" + end,
			"not those of the table"},
		"together": {"f.s", begin + "push %rbx\n.cfi_adjust_cfa_offset 8; .cfi_rel_offset %rbx, 0\nnop\npop %rbx\nnop\nret\n" + end,
			"directive and another statement"},
		"ret": {"f.s", begin + "push %rbx\nnop\nnop\nret\n" + end, "returns with rsp elsewhere"},
		"branch": {"f.s", begin + "push %rbx\n.if 0\n.cfi_adjust_cfa_offset 8\n.endif\nnop\nnop\npop %rbx\nret\n" + end,
			"not those of the table"},
		"label": {"f.s", begin + "push %rbx\n1: .cfi_def_cfa_offset 24\ntest %eax,%eax\njz 1b\npop %rbx\nret\n" + end,
			"line 6 has more than the directive"},
		"comment": {"f.s", begin + "push %rbx\n/* one\n two */ nop\nnop\npop %rbx\nret\n" + end,
			"line 7 is not the instruction at 0x11021, nop"},
		"control": {"f\n.s", begin + "push %rbx\nnop\nnop\npop %rbx\nret\n" + end, "its source is named"},
		"other":   {"f.inc", begin + "push %rbx\nnop\nnop\npop %rbx\nret\n" + end, "no assembly"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(c.file, []byte(c.text), 0o600))
			assemble(t, dir, c.file)
			r := ehasm(t, "check", "--fix", "f.o")
			assert.Equal(t, exitFailed, r.code)
			assert.Empty(t, r.stdout)
			assert.Contains(t, r.stderr, c.want)
		})
	}
	require.NoError(t, os.WriteFile("f.s", []byte(begin+"push %rbx\nnop\nnop\npop %rbx\nret\n"+end), 0o600))
	out, err := exec.Command("as", "-o", "f.o", "f.s").CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, ehasm(t, "check", "--fix", "f.o").stderr, "lines of the source are needed")
	assert.Equal(t, exitUsage, ehasm(t, "check", "--fix", "--json", "f.o").code)
}
