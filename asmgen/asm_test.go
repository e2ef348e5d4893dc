package asmgen

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twitchyliquid64/golang-asm/obj"
	"github.com/twitchyliquid64/golang-asm/obj/x86"
	"golang.org/x/arch/x86/x86asm"
)

// TestEncodings checks the bytes of instructions whose size the layout counts
// on, or whose operand order golang-asm has in its own way, and reads them back
// with an independent decoder.
func TestEncodings(t *testing.T) {
	ax, cl := reg(x86.REG_AX), reg(x86.REG_CL)
	for _, c := range []struct {
		hex, text string
		emit      func(a *assembler)
	}{
		{"3c7f", "cmp al, 0x7f", func(a *assembler) { a.op(x86.ACMPB, reg(x86.REG_AL), imm(127)) }},
		{"3c80", "cmp al, 0x80", func(a *assembler) { a.op(x86.ACMPB, reg(x86.REG_AL), imm(-128)) }},
		{"3cff", "cmp al, 0xff", func(a *assembler) { a.op(x86.ACMPB, reg(x86.REG_AL), imm(-1)) }},
		{"80c9f8", "or cl, 0xf8", func(a *assembler) { a.op(x86.AORB, imm(-8), cl) }},
		{"4d8d5110", "lea r10, ptr [r9+0x10]", func(a *assembler) { a.op(x86.ALEAQ, mem(rSP, 16), reg(rCFA)) }},
		{"4d8d9100010000", "lea r10, ptr [r9+0x100]", func(a *assembler) { a.op(x86.ALEAQ, mem(rSP, 256), reg(rCFA)) }},
		{"4e8d541d10", "lea r10, ptr [rbp+r11+0x10]", func(a *assembler) {
			a.op(x86.ALEAQ, memIndex(x86.REG_BP, rDelta, 1, 16), reg(rCFA))
		}},
		{"4c3b542430", "cmp r10, qword ptr [rsp+0x30]",
			func(a *assembler) { a.op(x86.ACMPQ, reg(rCFA), mem(x86.REG_SP, slotHigh)) }},
		{"410f105ad8", "movups xmm3, xmmword ptr [r10-0x28]",
			func(a *assembler) { a.op(x86.AMOVUPS, mem(rCFA, -40), reg(x86.REG_X3)) }},
		{"410f165ae0", "movhps xmm3, qword ptr [r10-0x20]",
			func(a *assembler) { a.op(x86.AMOVHPS, mem(rCFA, -32), reg(x86.REG_X3)) }},
		{"410f136818", "movlps qword ptr [r8+0x18], xmm5",
			func(a *assembler) { a.op(x86.AMOVLPS, reg(x86.REG_X5), mem(rPCs, 24)) }},
		{"bf10000000", "mov edi, 0x10", func(a *assembler) { a.op(x86.AMOVL, imm(16), reg(rTmp)) }},
		{"55", "push rbp", func(a *assembler) { a.push(reg(x86.REG_BP)) }},
		{"4157", "push r15", func(a *assembler) { a.push(reg(x86.REG_R15)) }},
		{"5d", "pop rbp", func(a *assembler) { a.op1(x86.APOPQ, reg(x86.REG_BP)) }},
		{"48f7f9", "idiv rcx", func(a *assembler) { a.divide(x86.AIDIVQ, x86.REG_CX) }},
		{"48f7f1", "div rcx", func(a *assembler) { a.divide(x86.ADIVQ, x86.REG_CX) }},
		{"48d3f8", "sar rax, cl", func(a *assembler) { a.op(x86.ASARQ, reg(x86.REG_CX), ax) }},
		{"69c001010101", "imul eax, eax, 0x1010101",
			func(a *assembler) { a.op3(x86.AIMUL3L, imm(0x01010101), ax, ax) }},
		{"660f70c000", "pshufd xmm0, xmm0, 0x0", func(a *assembler) {
			a.op3(x86.APSHUFD, imm(0), reg(x86.REG_X0), reg(x86.REG_X0))
		}},
		{"490fa3cd", "bt r13, rcx", func(a *assembler) { a.op(x86.ABTQ, reg(x86.REG_CX), reg(x86.REG_R13)) }},
		{"c3", "ret", func(a *assembler) { a.op0(obj.ARET) }},
	} {
		a := newAssembler()
		c.emit(a)
		require.NoError(t, a.finish(), c.text)
		assert.Equal(t, c.hex, hex.EncodeToString(a.text), c.text)
		inst, err := x86asm.Decode(a.text, 64)
		require.NoError(t, err, c.text)
		assert.Equal(t, c.text, x86asm.IntelSyntax(inst, 0, nil))
		assert.Equal(t, len(a.text), inst.Len, c.text)
	}
}

// TestJumps places labels near and far, forward and backward, over chunks.
func TestJumps(t *testing.T) {
	a := newAssembler()
	start, mid, end := a.newLabel(), a.newLabel(), a.newLabel()
	a.bind(start)
	a.jumpShort(obj.AJMP, mid)
	a.jump(x86.AJCS, end)
	a.bind(mid)
	a.call(end)
	a.leaLabel(start, x86.REG_AX)
	require.NoError(t, a.flush())
	a.bind(end)
	a.jump(obj.AJMP, start)
	a.op0(obj.ARET)
	require.NoError(t, a.finish())
	assert.Equal(t, "eb06"+"0f820c000000"+"e807000000"+"488d05ecffffff"+"e9e7ffffff"+"c3", hex.EncodeToString(a.text))
}

func TestJumpErrors(t *testing.T) {
	for name, emit := range map[string]func(a *assembler){
		"unbound label":    func(a *assembler) { a.jump(obj.AJMP, a.newLabel()) },
		"out of its chunk": func(a *assembler) { l := a.bindNew(); a.op0(obj.ARET); _ = a.flush(); a.jumpShort(obj.AJMP, l) },
		"too far": func(a *assembler) {
			l := a.newLabel()
			a.jumpShort(obj.AJMP, l)
			a.pad(200)
			a.bind(l)
			a.op0(obj.ARET)
		},
		"illegal instruction":  func(a *assembler) { a.op(x86.AMOVQ, reg(x86.REG_X0), imm(1)) },
		"label at another end": func(a *assembler) { a.call(a.newLabel()) },
	} {
		a := newAssembler()
		emit(a)
		assert.ErrorIs(t, a.finish(), ErrAssemble, name)
	}
}

// TestManyChunks exceeds the arena many times over.
func TestManyChunks(t *testing.T) {
	a := newAssembler()
	first := a.bindNew()
	for range 3*chunkProgs + 7 {
		a.jump(obj.AJMP, first)
		require.NoError(t, a.breakChunk())
	}
	require.NoError(t, a.finish())
	require.Len(t, a.text, 5*(3*chunkProgs+7))
	last := len(a.text) - 5
	rel := int32(a.text[last+1]) | int32(a.text[last+2])<<8 | int32(a.text[last+3])<<16 | int32(a.text[last+4])<<24
	assert.Equal(t, int32(-last-5), rel)
}
