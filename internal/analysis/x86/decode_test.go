package x86_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/analysis/x86"
	"github.com/ehasm/ehasm/validate/objdumpcmp"
)

const libc = "/lib/x86_64-linux-gnu/libc.so.6"

// TestLibc compares every instruction of libc with objdump, with -short those of libgcc_s.
func TestLibc(t *testing.T) {
	file, least := libc, 100_000
	if testing.Short() {
		file, least = "/lib/x86_64-linux-gnu/libgcc_s.so.1", 10_000
	}
	r, err := objdumpcmp.File(file, nil)
	require.NoError(t, err)
	assert.Greater(t, r.Instructions, least)
	for _, e := range r.Examples {
		t.Log(e)
	}
	assert.Zero(t, r.Length)
	assert.Zero(t, r.Unknown)
	assert.Zero(t, r.Mnemonic)
	assert.Zero(t, r.Operands)
}

// TestForms shows every form of the tables to objdump.
func TestForms(t *testing.T) {
	probes := x86.Probes()
	require.Greater(t, len(probes), 10_000)
	const slot = 32
	code := bytes.Repeat([]byte{0x90}, slot*len(probes))
	for i, p := range probes {
		clear(code[i*slot : i*slot+16]) // displacements and immediates
		copy(code[i*slot:], p)
	}
	file := filepath.Join(t.TempDir(), "forms")
	require.NoError(t, os.WriteFile(file, code, 0o600))
	list, err := exec.Command("objdump", "-D", "-w", "-z", "-M", "intel", "--insn-width=16", "-b", "binary", "-m",
		"i386:x86-64", file).Output()
	require.NoError(t, err)
	r, err := objdumpcmp.Listing(bytes.NewReader(list), func(pc uint64) bool { return pc%slot == 0 })
	require.NoError(t, err)
	t.Logf("%d forms, of which objdump does not know %d", r.Instructions, r.Bad)
	for _, e := range r.Examples {
		t.Log(e)
	}
	assert.Zero(t, r.Length)
	assert.Zero(t, r.Unknown)
	assert.Zero(t, r.Mnemonic)
	assert.Zero(t, r.Operands)
}

// TestWait: objdump shows fwait and the instruction behind it as one.
func TestWait(t *testing.T) {
	code := []byte("\x9b\xd9\x7d\xf8\x9b\x9b\xd9\x38\x9b\x66\xd9\x38\x9b\x41\xd9\x3c\x24\x9b\xdb\xe3\x9b\xdf\xe0\x9b\xdd\x31\x9b\x90")
	file := filepath.Join(t.TempDir(), "wait")
	require.NoError(t, os.WriteFile(file, code, 0o600))
	list, err := exec.Command("objdump", "-D", "-w", "-M", "intel", "--insn-width=16", "-b", "binary", "-m",
		"i386:x86-64", file).Output()
	require.NoError(t, err)
	r, err := objdumpcmp.Listing(bytes.NewReader(list), nil)
	require.NoError(t, err)
	assert.Equal(t, 17, r.Instructions)
	assert.Zero(t, r.Bad+r.Length+r.Unknown+r.Mnemonic+r.Operands, "%v", r.Examples)
}

// TestVexPrefixes: the processor refuses REX, 66, f2 and f3 before VEX; a segment is allowed.
func TestVexPrefixes(t *testing.T) {
	var in x86.Inst
	for _, p := range []string{"\x40", "\x66", "\xf2", "\xf3", "\xf0"} {
		assert.ErrorIs(t, x86.Decode([]byte(p+"\xc5\xf9\xef\xc0"), &in), x86.ErrInvalid, "% x", p)
		list := "   0:\t" + fmt.Sprintf("% x", p+"\xc5\xf9\xef\xc0") + "\tvpxor  xmm0,xmm0,xmm0\n"
		r, err := objdumpcmp.Listing(strings.NewReader(list), nil)
		require.NoError(t, err)
		assert.Equal(t, objdumpcmp.Result{Bad: 1}, *r, "% x", p)
	}
	require.NoError(t, x86.Decode([]byte("\x3e\xc5\xf9\xef\xc0"), &in))
	assert.EqualValues(t, 5, in.Len)
}

func TestDecode(t *testing.T) {
	regs := func(rs ...x86.Reg) (m uint16) {
		for _, r := range rs {
			m |= r.Mask()
		}
		return
	}
	for _, c := range []struct {
		code           string
		text           string
		reads          uint16
		writes, part   uint16
		memR, memW     bool
		memSize, stack int
	}{
		{"\x55", "push rbp", regs(x86.RBP, x86.RSP), regs(x86.RSP), 0, false, false, 0, -8},
		{"\x66\x55", "push bp", regs(x86.RBP, x86.RSP), regs(x86.RSP), 0, false, false, 0, -2},
		{"\x41\x5f", "pop r15", regs(x86.RSP), regs(x86.RSP, x86.R15), 0, false, false, 0, 8},
		{"\x8f\x44\x24\x08", "pop QWORD PTR [rsp+0x8]", regs(x86.RSP), regs(x86.RSP), 0, false, true, 8, 8},
		{"\x48\x81\xec\x00\x00\x00\x80", "sub rsp,0xffffffff80000000", regs(x86.RSP), regs(x86.RSP), 0, false, false,
			0, 0},
		{"\x48\x83\xe4\xf0", "and rsp,0xfffffffffffffff0", regs(x86.RSP), regs(x86.RSP), 0, false, false, 0, 0},
		{"\x83\xe4\xf0", "and esp,0xfffffff0", regs(x86.RSP), regs(x86.RSP), 0, false, false, 0, 0},
		{"\xc9", "leave", regs(x86.RBP), regs(x86.RSP, x86.RBP), 0, false, false, 0, 0},
		{"\xc8\x10\x00\x00", "enter 0x10,0x0", regs(x86.RSP, x86.RBP), regs(x86.RSP, x86.RBP), 0, false, false, 0, 0},
		{"\xc2\x08\x00", "ret 0x8", regs(x86.RSP), regs(x86.RSP), 0, false, false, 0, 16},
		{"\x88\xfc", "mov ah,bh", regs(x86.RBX), regs(x86.RAX), regs(x86.RAX), false, false, 0, 0},
		{"\x40\x88\xfc", "mov spl,dil", regs(x86.RDI), regs(x86.RSP), regs(x86.RSP), false, false, 0, 0},
		{"\xf3\x48\xab", "rep stos", regs(x86.RAX, x86.RDI, x86.RCX), regs(x86.RDI, x86.RCX), 0, false, true, 0, 0},
		{"\xf7\xe3", "mul ebx", regs(x86.RAX, x86.RBX), regs(x86.RAX, x86.RDX), 0, false, false, 0, 0},
		{"\xf6\xe3", "mul bl", regs(x86.RAX, x86.RBX), regs(x86.RAX), regs(x86.RAX), false, false, 0, 0},
		{"\x0f\xa2", "cpuid", regs(x86.RAX, x86.RCX), regs(x86.RAX, x86.RBX, x86.RCX, x86.RDX), 0, false, false, 0, 0},
		{"\xc4\xe2\xe3\xf6\xc1", "mulx rax,rbx,rcx", regs(x86.RCX, x86.RDX), regs(x86.RAX, x86.RBX), 0, false, false,
			0, 0},
		{"\x8f\xe9\x60\x01\xc9", "blcfill ebx,ecx", regs(x86.RCX), regs(x86.RBX), 0, false, false, 0, 0},
		{"\xf3\x0f\x1e\xfa", "endbr64", 0, 0, 0, false, false, 0, 0},
		{"\x62\xf1\x7c\x48\x29\x44\x24\x01", "vmovaps ZMMWORD PTR [rsp+0x40],zmm0", regs(x86.RSP), 0, 0, false, true,
			64, 0},
		{"\xc5\xfb\x11\x44\x24\x08", "vmovsd QWORD PTR [rsp+0x8],xmm0", regs(x86.RSP), 0, 0, false, true, 8, 0},
		{"\x66\x48\x0f\x7e\xc3", "movq rbx,xmm0", 0, regs(x86.RBX), 0, false, false, 0, 0},
		{"\x48\x0f\xc7\x4c\x24\x10", "cmpxchg16b XMMWORD PTR [rsp+0x10]",
			regs(x86.RAX, x86.RDX, x86.RBX, x86.RCX, x86.RSP), regs(x86.RAX, x86.RDX), 0, true, true, 16, 0},
		{"\x0f\x44\xd8", "cmove ebx,eax", regs(x86.RAX, x86.RBX), regs(x86.RBX), 0, false, false, 0, 0},
		{"\x0f\x05", "syscall", regs(x86.RAX, x86.RDI, x86.RSI, x86.RDX, x86.R8, x86.R9, x86.R10),
			regs(x86.RAX, x86.RCX, x86.R11), 0, false, false, 0, 0},
		{"\xf3\x0f\xa7\xc8", "rep xcryptecb", regs(x86.RAX, x86.RBX, x86.RCX, x86.RDX, x86.RSI, x86.RDI),
			regs(x86.RAX, x86.RCX, x86.RSI, x86.RDI), 0, false, true, 0, 0},
		{"\x0f\xa7\xc0", "xstorerng", regs(x86.RCX, x86.RDX, x86.RDI), regs(x86.RAX, x86.RCX, x86.RDI), 0, false,
			true, 0, 0},
		{"\xf3\x0f\xa6\xc8", "rep xsha1", regs(x86.RAX, x86.RCX, x86.RSI, x86.RDI),
			regs(x86.RAX, x86.RCX, x86.RSI, x86.RDI), 0, false, true, 0, 0},
		// APX, as LLVM 22 assembles it
		{"\x62\xf4\x54\x18\xff\xf3", "push2 rbp,rbx", regs(x86.RBP, x86.RBX, x86.RSP), regs(x86.RSP), 0, false, false, 0,
			-16},
		{"\x62\xd4\x84\x18\x8f\xc6", "pop2 r15,r14", regs(x86.RSP), regs(x86.RSP, x86.R15, x86.R14), 0, false, false, 0, 16},
		{"\xd5\x08\x53", "push rbx", regs(x86.RBX, x86.RSP), regs(x86.RSP), 0, false, false, 0, -8},
		{"\xd5\x81\xaf\xc6", "imul eax,r14d", regs(x86.RAX, x86.R14), regs(x86.RAX), 0, false, false, 0, 0},
	} {
		var in x86.Inst
		require.NoError(t, x86.Decode([]byte(c.code), &in), "% x", c.code)
		assert.Equal(t, c.text, in.Text(0))
		assert.Equal(t, len(c.code), int(in.Len), c.text)
		assert.Equal(t, c.reads, in.Reads, "%s: reads %016b", c.text, in.Reads)
		assert.Equal(t, c.writes, in.Writes, "%s: writes %016b", c.text, in.Writes)
		assert.Equal(t, c.part, in.Partial, c.text)
		assert.Equal(t, c.memR, in.MemRead, c.text)
		assert.Equal(t, c.memW, in.MemWrite, c.text)
		assert.Equal(t, c.memSize, int(in.MemSize), c.text)
		assert.Equal(t, c.stack, int(in.Stack), c.text)
		for n := range len(c.code) {
			assert.ErrorIs(t, x86.Decode([]byte(c.code[:n]), &in), x86.ErrTruncated, "%s cut to %d", c.text, n)
		}
	}
}

// TestAPX: what is not decoded is no other instruction.
func TestAPX(t *testing.T) {
	var in x86.Inst
	for name, code := range map[string]string{
		"{nf} add rsp,8": "\x62\xf4\xfc\x0c\x83\xc4\x08", "add rsp,rsp,8": "\x62\xf4\xdc\x18\x83\xc4\x08",
		"push r16": "\xd5\x10\x50", "mov [rsp],r16": "\xd5\x48\x89\x04\x24",
		"jmpabs":        "\xd5\x00\xa1\x34\x12\x00\x00\x00\x00\x00\x00",
		"push2 r16,rbx": "\x62\xf4\x7c\x10\xff\xf3",
	} {
		assert.ErrorIs(t, x86.Decode([]byte(code), &in), x86.ErrInvalid, name)
	}
}

func FuzzDecode(f *testing.F) {
	for _, p := range x86.Probes()[:200] {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, code []byte) {
		var in, again x86.Inst
		if x86.Decode(code, &in) != nil {
			return
		}
		require.LessOrEqual(t, int(in.Len), min(len(code), 15))
		require.NotZero(t, in.Len)
		require.NoError(t, x86.Decode(code[:in.Len], &again))
		require.Equal(t, in, again)
		require.NotEmpty(t, in.Text(0))
	})
}

func BenchmarkDecode(b *testing.B) {
	code, err := os.ReadFile(libc)
	require.NoError(b, err)
	code = code[0x26000:0x17b000] // .text, roughly
	var in x86.Inst
	n := 0
	for b.Loop() {
		for off := 0; off < len(code)-16; {
			if x86.Decode(code[off:], &in) != nil {
				off++
				continue
			}
			off += int(in.Len)
			n++
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Minst/s")
}
