#include "funcdata.h"
#include "textflag.h"

// Calls of System V functions from Go, on the goroutine's stack.
//
// Each function has a frame of LOCALS+STACK bytes and is not NOSPLIT, so that
// its prologue makes room for all of it; from then on nothing moves the stack
// before it returns. The callee's stack is the part of the frame above LOCALS:
//
//	       | return address of this function
//	       | saved BP (frame pointer of Go)
//	LOCALS+STACK(SP) -> aligned down to 16: SP of the call
//	       | callee
//	LOCALS(SP)
//	       | locals
//	0(SP)
//
// BX keeps SP across the call; the callee preserves it, BP and R12 to R15. Go's
// ABI0 lets an assembly function clobber every register but SP and BP; the
// wrapper of its Go callers restores R14 (g) and X15 (zero).
//
// The functions write SP, which the assembler marks in their metadata; a
// profiler's signal that comes meanwhile does not unwind past them.

#define STACK 4096
#define LOCALS 64 // STACK+LOCALS is written out in the TEXT lines, for go vet

// func callWalk(fn uintptr, regs *abi.Regs, mem *abi.Memory, bias uint64, pcs *uint64, max uint64) uint64
TEXT ·callWalk(SB), 0, $4160-56
	NO_LOCAL_POINTERS
	MOVQ fn+0(FP), AX
	MOVQ regs+8(FP), DI
	MOVQ mem+16(FP), SI
	MOVQ bias+24(FP), DX
	MOVQ pcs+32(FP), CX
	MOVQ max+40(FP), R8
	MOVQ SP, BX
	LEAQ (STACK+LOCALS)(SP), SP
	ANDQ $~15, SP
	CALL AX
	MOVQ BX, SP
	MOVQ AX, ret+48(FP)
	RET

// func callWindow(fn uintptr, regs *abi.Regs, lo, size uint64, bytes *byte, log *replay, bias uint64, pcs *uint64, max uint64) uint64
TEXT ·callWindow(SB), 0, $4160-80
	NO_LOCAL_POINTERS
	// eh_elf_memory_t at 0(SP)
	MOVQ lo+16(FP), AX
	MOVQ AX, 0(SP)
	MOVQ size+24(FP), AX
	MOVQ AX, 8(SP)
	MOVQ bytes+32(FP), AX
	MOVQ AX, 16(SP)
	XORL AX, AX
	MOVQ log+40(FP), CX
	TESTQ CX, CX
	JZ   noread
	LEAQ replayRead<>(SB), AX
noread:
	MOVQ AX, 24(SP)
	MOVQ CX, 32(SP)

	MOVQ fn+0(FP), AX
	MOVQ regs+8(FP), DI
	MOVQ SP, SI
	MOVQ bias+48(FP), DX
	MOVQ pcs+56(FP), CX
	MOVQ max+64(FP), R8
	MOVQ SP, BX
	LEAQ (STACK+LOCALS)(SP), SP
	ANDQ $~15, SP
	CALL AX
	MOVQ BX, SP
	MOVQ AX, ret+72(FP)
	RET

// func prefetch(p *byte, n uint64)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX
	ADDQ AX, CX
	ANDQ $~63, AX
line:
	PREFETCHT0 (AX)
	ADDQ $64, AX
	CMPQ AX, CX
	JB   line
	RET

// func callStep(fn uintptr, ctx *abi.Context, pc uint64, deref uintptr, result *abi.Context)
TEXT ·callStep(SB), 0, $4160-40
	NO_LOCAL_POINTERS
	MOVQ fn+0(FP), AX
	MOVQ ctx+8(FP), R9
	MOVQ pc+16(FP), SI
	MOVQ deref+24(FP), DX
	MOVQ result+32(FP), DI // the hidden pointer to the result
	MOVQ SP, BX
	LEAQ (STACK+LOCALS)(SP), SP
	ANDQ $~15, SP
	LEAQ -48(SP), SP // ctx by value: 40 bytes, where the callee finds them above its return address
	MOVQ 0(R9), R10
	MOVQ R10, 0(SP)
	MOVQ 8(R9), R10
	MOVQ R10, 8(SP)
	MOVQ 16(R9), R10
	MOVQ R10, 16(SP)
	MOVQ 24(R9), R10
	MOVQ R10, 24(SP)
	MOVQ 32(R9), R10
	MOVQ R10, 32(SP)
	CALL AX
	MOVQ BX, SP
	RET

// Layout of type replay and of its answers, see walk.go.
#define replay_answers 0
#define replay_len 8
#define replay_next 24
#define replay_missed 32
#define replay_miss 40
#define answer_size 24
#define answer_addr 0
#define answer_word 8
#define answer_unreadable 16

// int read(void *arg, uint64_t addr, uint64_t *word), called by generated code:
// arg is a *replay in DI, addr in SI, word in DX. It uses AX, CX and no stack.
TEXT replayRead<>(SB), NOSPLIT|NOFRAME, $0-0
	CMPQ replay_missed(DI), $0
	JNE  void
	MOVQ replay_next(DI), AX
	CMPQ AX, replay_len(DI)
	JAE  miss
	IMUL3Q $answer_size, AX, CX
	ADDQ replay_answers(DI), CX
	CMPQ SI, answer_addr(CX)
	JNE  miss
	INCQ AX
	MOVQ AX, replay_next(DI)
	MOVQ answer_word(CX), AX
	MOVQ AX, (DX)
	MOVL answer_unreadable(CX), AX
	RET
miss:
	MOVQ $1, replay_missed(DI)
	MOVQ SI, replay_miss(DI)
void:
	MOVL $1, AX
	RET
