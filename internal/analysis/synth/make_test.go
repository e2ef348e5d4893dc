package synth

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/check"
)

// assembled links assembly into a shared object.
func assembled(t *testing.T, source string, flags ...string) *dwarfcfa.File {
	t.Helper()
	dir := t.TempDir()
	src, out := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.so")
	require.NoError(t, os.WriteFile(src, []byte(source), 0o666))
	text, err := exec.Command("gcc", append([]string{"-shared", "-nostdlib", "-o", out, src},
		flags...)...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	o, err := dwarfcfa.Open(out)
	require.NoError(t, err)
	t.Cleanup(func() { o.Close() })
	return o
}

// function finds the rows of a function.
func function(t *testing.T, r *Result, name string) *Function {
	t.Helper()
	for i := range r.Functions {
		if r.Functions[i].Name == name {
			return &r.Functions[i]
		}
	}
	require.Fail(t, "no function "+name)
	return nil
}

// at returns the row at an offset.
func (f *Function) at(off dwarfcfa.Addr) *Row {
	for i := range f.Ranges {
		if x := &f.Ranges[i]; f.Start()+off >= x.Start && f.Start()+off < x.End {
			return &x.Row
		}
	}
	return nil
}

const shapes = `
	.text
	.globl	saves, aligned, shared, tail, unknown
	.type	saves, @function
saves:	push	%rbx
	sub	$16, %rsp
	mov	%r12, 8(%rsp)
	mov	%edi, %ebx
	mov	%esi, %r12d
	mov	8(%rsp), %r12
	add	$16, %rsp
	pop	%rbx
	ret
	.size	saves, .-saves

	.type	aligned, @function
aligned: push	%rbp
	mov	%rsp, %rbp
	and	$-64, %rsp
	sub	$128, %rsp
	mov	%rbx, (%rsp)
	xor	%ebx, %ebx
	mov	(%rsp), %rbx
	leave
	ret
	.size	aligned, .-aligned

	.type	shared, @function
shared:	xor	%ebx, %ebx		# runs on into tail, which is called as well
	.size	shared, .-shared
	.type	tail, @function
tail:	nop
	ret
	.size	tail, .-tail

	.type	unknown, @function
unknown: test	%edi, %edi
	je	1f
	push	%rax
1:	nop				# with and without a word more
	ret
	.size	unknown, .-unknown
`

// TestShapes has the rows of small functions that no FDE describes.
func TestShapes(t *testing.T) {
	r, err := Of(assembled(t, shapes), Options{Mode: Missing})
	require.NoError(t, err)
	f := function(t, r, "saves")
	assert.Equal(t, Entry, *f.at(0))
	assert.Equal(t, CFA{Reg: abi.RSP, Offset: 16}, f.at(1).CFA)
	body := f.at(15) // both changed
	assert.Equal(t, CFA{Reg: abi.RSP, Offset: 32}, body.CFA)
	assert.Equal(t, Rule{Where: AtCFA, Offset: -16}, body.Regs[0])
	assert.Equal(t, Rule{Where: AtCFA, Offset: -24}, body.Regs[2])
	assert.Equal(t, Entry, *f.at(f.End() - f.Start() - 1))

	f = function(t, r, "aligned")
	body = f.at(21)
	assert.Equal(t, CFA{Reg: abi.RBP, Offset: 16}, body.CFA)
	assert.Equal(t, Rule{Where: AtReg, Reg: abi.RSP}, body.Regs[0])
	assert.Equal(t, Rule{Where: AtCFA, Offset: -16}, body.Regs[1])

	f = function(t, r, "tail")
	assert.Equal(t, CFA{Reg: abi.RSP, Offset: 8}, f.at(0).CFA)
	assert.Equal(t, Rule{Where: Unknown}, f.at(0).Regs[0], "not what all paths agree on")

	f = function(t, r, "unknown")
	assert.Nil(t, f.at(5), "two heights of the stack meet")
	assert.Positive(t, r.Declined.NoCFA)
}

// TestModes makes rows for a function without any, for one with wrong ones, and for one
// with right ones.
func TestModes(t *testing.T) {
	o := assembled(t, `
	.text
	.globl	bare, bad, good
	.type	bare, @function
bare:	push	%rbx
	pop	%rbx
	ret
	.size	bare, .-bare
	.type	bad, @function
bad:	.cfi_startproc
	push	%rbp
	mov	$1, %ebp
	pop	%rbp
	ret
	.cfi_endproc
	.size	bad, .-bad
	.type	good, @function
good:	.cfi_startproc
	push	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_offset %rbx, -16
	xor	%ebx, %ebx
	pop	%rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbx
	ret
	.cfi_endproc
	.size	good, .-good
`)
	names := map[Mode][]string{}
	for _, m := range []Mode{Off, Missing, Wrong, All} {
		r, err := Of(o, Options{Mode: m, Wrong: check.WrongRows})
		require.NoError(t, err)
		for i := range r.Functions {
			names[m] = append(names[m], r.Functions[i].Name)
		}
		table, rep, err := dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{Made: r.Made("a.so")})
		require.NoError(t, err)
		require.NoError(t, table.Verify())
		if m != Off {
			bad := function(t, mustMake(t, o), "bad")
			bare := function(t, mustMake(t, o), "bare")
			x, ok := table.Lookup(bare.Start() + 1)
			require.True(t, ok)
			assert.EqualValues(t, 16, table.Rows[x.Row].CFA.Offset)
			x, ok = table.Lookup(bad.Start() + 1)
			require.True(t, ok)
			want := map[Mode]int64{Missing: 8, Wrong: 16, All: 16}[m]
			assert.Equal(t, want, table.Rows[x.Row].CFA.Offset, m)
			assert.Positive(t, rep.Rows.MadeBytes)
		}
	}
	assert.Empty(t, names[Off])
	assert.Equal(t, []string{"bare"}, names[Missing])
	assert.Equal(t, []string{"bare", "bad"}, names[Wrong])
	assert.Equal(t, []string{"bare", "bad", "good"}, names[All])

	_, err := ParseMode("some")
	require.Error(t, err)
}

func mustMake(t *testing.T, o *dwarfcfa.File) *Result {
	r, err := Of(o, Options{Mode: All})
	require.NoError(t, err)
	return r
}

// TestStripped makes rows for an object without any section that describes code.
func TestStripped(t *testing.T) {
	o := assembled(t, shapes, "-Wl,--build-id")
	_, _, err := dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{})
	require.ErrorIs(t, err, dwarfcfa.ErrNoUnwindInfo)
	r, err := Of(o, Options{Mode: Missing})
	require.NoError(t, err)
	table, _, err := dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{Made: r.Made("a.so")})
	require.NoError(t, err)
	lazy, err := dwarfcfa.NewLazyTableMade(o, dwarfcfa.SourceAuto,
		func() *dwarfcfa.Section { return r.Section("a.so") })
	require.NoError(t, err)
	later, err := dwarfcfa.NewLazyTableMade(o, dwarfcfa.SourceAuto,
		func() *dwarfcfa.Section { return r.Section("a.so") })
	require.NoError(t, err)
	misses := 0
	later.MakeInBackground(func() (bool, time.Duration) { misses++; return misses >= 3, 0 })
	f := function(t, r, "saves")
	require.Eventually(t, func() bool {
		regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
		regs.Reg[abi.RIP] = uint64(f.Start())
		return later.Step(&regs, echo{}, 0) != abi.StatusNoInfo
	}, 10*time.Second, time.Millisecond)
	for pc := f.Start() - 4; pc < f.End()+40; pc++ {
		regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
		for i := range regs.Reg {
			regs.Reg[i] = 0x1000 * uint64(i+1)
		}
		regs.Reg[abi.RIP] = uint64(pc)
		other, third := regs, regs
		status := table.Step(&regs, echo{}, 0)
		require.Equal(t, status, lazy.Step(&other, echo{}, 0))
		require.Equal(t, status, later.Step(&third, echo{}, 0))
		require.Equal(t, regs, other)
		require.Equal(t, regs, third)
	}
}

// echo is memory in which each word holds its address.
type echo struct{}

func (echo) ReadWord(addr uint64) (uint64, bool) { return addr, true }

// TestEntry has the code that the kernel enters: its stack ends there. In a shared object ld puts
// the beginning of .text there if nothing is named _start.
func TestEntry(t *testing.T) {
	const code = `
	.text
	nop
	.globl	_start
	.type	_start, @function
_start:	xor	%ebp, %ebp
	mov	%rsp, %rdi
	call	1f
	hlt
	.size	_start, .-_start
1:	ret
`
	o := assembled(t, code, "-Wl,-e,_start")
	r, err := Of(o, Options{Mode: Missing})
	require.NoError(t, err)
	assert.True(t, function(t, r, "_start").at(0).Outermost)
	table, _, err := dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{Made: r.Made("a.so")})
	require.NoError(t, err)
	regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
	regs.Reg[abi.RIP] = uint64(function(t, r, "_start").Start()) + 2
	assert.Equal(t, abi.StatusOutermost, table.Step(&regs, echo{}, 0))

	o = assembled(t, strings.Replace(code, "nop", "", 1), "-Wl,-e,_start") // at the beginning of .text
	r, err = Of(o, Options{Mode: Missing})
	require.NoError(t, err)
	assert.Equal(t, &Entry, function(t, r, "_start").at(0))
}

// TestStartBehindAbort: code after a call that never returns, whose address is taken, is a function.
func TestStartBehindAbort(t *testing.T) {
	o := assembled(t, `
	.text
	.globl	f
	.type	f, @function
f:	lea	1f(%rip), %rdi
	call	g
	call	abort@plt
1:	push	%rbx
	xor	%ebx, %ebx
	call	g
	pop	%rbx
	ret
	.type	g, @function
g:	ret
	.size	g, .-g
`)
	r, err := Of(o, Options{Mode: Missing})
	require.NoError(t, err)
	f := function(t, r, "f")
	assert.Len(t, f.Ranges, 1, "one row up to the call of abort")
	start := f.End()
	for i := range r.Functions {
		if g := &r.Functions[i]; g.Start() == start {
			assert.Equal(t, Entry, *g.at(0))
			assert.Equal(t, int32(16), g.at(3).CFA.Offset)
			return
		}
	}
	require.Fail(t, "no function behind the call of abort")
}

// TestCallBeforeFunction: the call that ends a function is not known to come back or not. A
// function behind the padding begins as one, for its CFA can't be in two places; a label there,
// whose address is only taken, has the frame that flows to it.
func TestCallBeforeFunction(t *testing.T) {
	const form = `
	.text
	.globl	f, caller
	.p2align 5
	.type	f, @function
f:	push	%rbx
	test	%edi, %edi
	je	1f
	pop	%rbx
	ret
1:	call	*table(%rip)
	call	report
	xchg	%ax, %ax
	.p2align 5
here:	push	%rbp
	xor	%ebp, %ebp
	call	report
	pop	%rbp
	ret
	.size	f, .-f
	.type	caller, @function
caller:	lea	here(%rip), %rax
	SECOND
	ret
	.size	caller, .-caller
	.type	report, @function
report:	jmp	*table(%rip)
	.size	report, .-report
	.data
table:	.quad	0
`
	for second, want := range map[string]int32{"call here": 16, "jmp *%rax": 24} {
		r, err := Of(assembled(t, strings.Replace(form, "SECOND", second, 1)), Options{Mode: Missing})
		require.NoError(t, err)
		here := function(t, r, "f").Start() + 32
		row := (*Row)(nil)
		for i := range r.Functions {
			if f := &r.Functions[i]; f.Start() <= here+1 && here+1 < f.End() {
				row = f.at(here + 1 - f.Start())
			}
		}
		require.NotNil(t, row, second)
		assert.Equal(t, want, row.CFA.Offset, second)
	}
}

// TestHeldTable: a loop that jumps through the table whose address a register got before it. The
// targets are also reached from there, where rbx is no longer the caller's.
func TestHeldTable(t *testing.T) {
	const form = `
	.text
	.globl	loop
	.type	loop, @function
loop:	push	%rbx
	push	%r12
	lea	table(%rip), %r12
	and	$1, %eax
	movslq	(%r12,%rax,4), %rcx
	add	%r12, %rcx
	jmp	*%rcx
	.p2align 4
first:	nop
	xor	%ebx, %ebx
	SPILL
	.rept 70
	add	%rdi, %rax
	.endr
	and	$1, %eax
	movslq	(REG,%rax,4), %rcx
	add	REG, %rcx
	jmp	*%rcx
	.p2align 4
second:	nop
	pop	%r12
	pop	%rbx
	ret
	.size	loop, .-loop
	.section .rodata
table:	.long	first-table, second-table
`
	for name, regs := range map[string][2]string{"in the register": {"nop", "%r12"},
		"by way of the stack": {"mov %r12, -8(%rsp)\n\tmov -8(%rsp), %r13", "%r13"}} {
		t.Run(name, func(t *testing.T) {
			source := strings.NewReplacer("SPILL", regs[0], "REG", regs[1]).Replace(form)
			o := assembled(t, source)
			r, err := Of(o, Options{Mode: Missing})
			require.NoError(t, err)
			require.Len(t, r.Functions, 3) // loop, first, second: padding is between them
			for _, f := range r.Functions[1:] {
				row := f.at(0)
				assert.Equal(t, CFA{Reg: abi.RSP, Offset: 24}, row.CFA)
				assert.Equal(t, Rule{Where: AtCFA, Offset: -16}, row.Regs[0], "rbx at %#x", f.Start())
			}
		})
	}
}

// TestReturnMoved: a return address that is copied further down, with its place then used for an
// argument, as V8's adaptors do, can be given by no row.
func TestReturnMoved(t *testing.T) {
	o := assembled(t, `
	.text
	.globl	adapt
	.type	adapt, @function
adapt:	push	%rcx
	push	%rdi
	push	16(%rsp)
	mov	$7, %r10d
	mov	%r10, 24(%rsp)
	nop
	jmp	*%rdx
	.size	adapt, .-adapt
`)
	r, err := Of(o, Options{Mode: Missing})
	require.NoError(t, err)
	f := function(t, r, "adapt")
	assert.Equal(t, CFA{Reg: abi.RSP, Offset: 32}, f.at(12).CFA) // the last that still finds it
	assert.Equal(t, dwarfcfa.Addr(17), f.End()-f.Start())
	assert.Equal(t, 2, r.Declined.Popped)
}

// TestForeign: code that keeps to no psABI gets no row: V8's builtins, named by symbols or by the
// functions that give their place, and the code that signal handlers return to. The function behind
// them gets its own.
func TestForeign(t *testing.T) {
	const form = `
	.text
	.globl	before, behind, _ZN2v88internal23DefaultEmbeddedBlobCodeEv, _ZN2v88internal27DefaultEmbeddedBlobCodeSizeEv
	.type	before, @function
before:	push	%rbx
	pop	%rbx
	ret
	.size	before, .-before
	.p2align 6
builtins:
	.ifdef	NAMED
	.type	Builtins_Abort, @function
Builtins_Abort:
	.endif
	push	%rbp
	mov	%rsp, %rbp
	pop	%rbp
	ret
	.p2align 6
	push	%rbp
	pop	%rbp
	ret
	.p2align 6
	.ifdef	NAMED
	.size	Builtins_Abort, .-Builtins_Abort
	.endif
end:
	.type	behind, @function
behind:	push	%rbx
	lea	1f(%rip), %rax
	pop	%rbx
	ret
	.size	behind, .-behind
	nop
1:	mov	$15, %rax
	syscall
	nop
	.p2align 4
	.ifndef	NAMED
	.type	_ZN2v88internal23DefaultEmbeddedBlobCodeEv, @function
_ZN2v88internal23DefaultEmbeddedBlobCodeEv:
	lea	builtins(%rip), %rax
	ret
	.type	_ZN2v88internal27DefaultEmbeddedBlobCodeSizeEv, @function
_ZN2v88internal27DefaultEmbeddedBlobCodeSizeEv:
	mov	1f(%rip), %eax
	ret
	.section .rodata
1:	.long	end-builtins
	.endif
`
	for _, source := range []string{".set NAMED, 1\n" + form, form} {
		r, err := Of(assembled(t, source), Options{Mode: Missing})
		require.NoError(t, err)
		before, behind := function(t, r, "before"), function(t, r, "behind")
		builtins := (before.End() + 63) &^ 63
		require.Equal(t, builtins+128, behind.Start())
		sigreturn := behind.Start() + 11
		for i := range r.Functions {
			f := &r.Functions[i]
			assert.False(t, f.Start() < behind.Start() && f.End() > builtins, "a row at %#x", uint64(f.Start()))
			assert.False(t, f.Start() < sigreturn+9 && f.End() > sigreturn, "a row at %#x", uint64(f.Start()))
		}
		assert.Equal(t, 9, r.Declined.Foreign)
	}
}
