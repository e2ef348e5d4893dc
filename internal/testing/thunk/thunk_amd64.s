#include "textflag.h"

// MIX replaces z by Mix(z). It uses t.
#define MIX(z, t) \
	MOVQ z, t \
	SHRQ $30, t \
	XORQ t, z \
	MOVQ $0xbf58476d1ce4e5b9, t \
	IMULQ t, z \
	MOVQ z, t \
	SHRQ $27, t \
	XORQ t, z \
	MOVQ $0x94d049bb133111eb, t \
	IMULQ t, z \
	MOVQ z, t \
	SHRQ $31, t \
	XORQ t, z

// GARBAGE overwrites the caller-saved registers but for rax, and the 128 bytes
// below the stack pointer, which a caller must not rely on (psABI 3.2.2: the red
// zone is the callee's).
#define GARBAGE \
	MOVQ $0xdeadbeefcafef00d, CX \
	MOVQ CX, X0 \
	PUNPCKLQDQ X0, X0 \
	MOVO X0, X1 \
	MOVO X0, X2 \
	MOVO X0, X3 \
	MOVO X0, X4 \
	MOVO X0, X5 \
	MOVO X0, X6 \
	MOVO X0, X7 \
	MOVO X0, X8 \
	MOVO X0, X9 \
	MOVO X0, X10 \
	MOVO X0, X11 \
	MOVO X0, X12 \
	MOVO X0, X13 \
	MOVO X0, X14 \
	MOVO X0, X15 \
	MOVOU X0, -16(SP) \
	MOVOU X0, -32(SP) \
	MOVOU X0, -48(SP) \
	MOVOU X0, -64(SP) \
	MOVOU X0, -80(SP) \
	MOVOU X0, -96(SP) \
	MOVOU X0, -112(SP) \
	MOVOU X0, -128(SP) \
	MOVQ CX, DX \
	MOVQ CX, SI \
	MOVQ CX, DI \
	MOVQ CX, R8 \
	MOVQ CX, R9 \
	MOVQ CX, R10 \
	MOVQ CX, R11 \
	STC

// arg in DI, addr in SI, word in DX.
TEXT hashRead<>(SB), NOSPLIT|NOFRAME, $0-0
	XORQ (DI), SI
	MIX(SI, CX)
	MOVL $1, AX
	TESTQ $7, SI
	JZ   done
	MIX(SI, CX)
	MOVQ SI, (DX)
	MOVQ $0xfeedface00000000, AX // int: the upper half of rax means nothing
done:
	GARBAGE
	RET

// addr in DI.
TEXT hashDeref<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ $0x656861736d5f6465, AX // DerefSeed
	XORQ DI, AX
	MIX(AX, CX)
	GARBAGE
	RET

// func HashReadThunk() uintptr
TEXT ·HashReadThunk(SB), NOSPLIT, $0-8
	LEAQ hashRead<>(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// func HashDerefThunk() uintptr
TEXT ·HashDerefThunk(SB), NOSPLIT, $0-8
	LEAQ hashDeref<>(SB), AX
	MOVQ AX, ret+0(FP)
	RET
