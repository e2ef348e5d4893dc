#include "funcdata.h"
#include "go_asm.h"
#include "textflag.h"

// See walk_linux_amd64.s on calls of System V functions from Go.

#define LOCALS 64
#define STEPS 40 // the number of steps, after eh_elf_memory_t

// Registers that eh_elfs preserve: the spans' begin and end, the cache, and the span
// that the walk is in.
#define FIRST R12
#define END R13
#define CACHE R14
#define CURRENT R15

// LOOKUP leaves in found what the cache has for the address in at, less one, and in
// entry where the cache has it. It jumps to miss if that is not its span.
#define LOOKUP(at, entry, found, miss) \
	MOVQ at, entry \
	SHRQ $const_pageBits, entry \
	ANDL $(const_cacheSize-1), entry \
	LEAQ (CACHE)(entry*4), entry \
	MOVL (entry), found \
	ADDQ FIRST, found \
	CMPQ at, span_start(found) \
	JLS  miss \
	CMPQ at, span_end(found) \
	JHI  miss

// func callSpans(s *Spans, regs *abi.Regs, mem *Memory, pcs *uint64, max int) (steps, last int)
TEXT ·callSpans(SB), 0, $4160-56
	NO_LOCAL_POINTERS
	MOVQ s+0(FP), BX
	MOVQ mem+16(FP), SI
	// eh_elf_memory_t at 0(SP)
	MOVQ Memory_Lo(SI), AX
	MOVQ AX, 0(SP)
	MOVQ (Memory_Bytes+8)(SI), AX
	MOVQ AX, 8(SP)
	MOVQ Memory_Bytes(SI), AX
	MOVQ AX, 16(SP)
	XORL AX, AX
	MOVQ AX, 24(SP)
	MOVQ AX, 32(SP)
	MOVQ AX, STEPS(SP)
	MOVQ Spans_list(BX), FIRST
	MOVQ (Spans_list+8)(BX), END
	SHLQ $const_spanShift, END
	ADDQ FIRST, END
	LEAQ Spans_cache(BX), CACHE
	MOVQ regs+8(FP), DI
	MOVQ pcs+24(FP), CX
	MOVQ max+32(FP), R8
	TESTQ R8, R8
	JZ   nowhere
	CMPQ FIRST, END
	JEQ  nowhere
next:
	// DI: the registers; CX and R8: where pcs go to, and how many
	CMPW const_regsExact(DI), $1 // carry: not exact
	MOVQ const_regsRIP(DI), AX
	SBBQ $-1, AX
	LOOKUP(AX, SI, R10, search)
found:
	MOVQ R10, CURRENT
	MOVQ span_chain(CURRENT), AX
	LEAQ chainNext<>(SB), R9
	TESTQ AX, AX
	JZ   single
call:
	MOVQ SP, SI
	MOVQ span_bias(CURRENT), DX
	MOVQ SP, BX
	LEAQ (const_StackSize+LOCALS)(SP), SP
	ANDQ $~15, SP
	CALL AX
	MOVQ BX, SP
	MOVQ regs+8(FP), DI
	MOVQ STEPS(SP), CX
	ADDQ AX, CX
	MOVQ CX, STEPS(SP)
	// It goes on where a step led out of the object, to one that chainNext does not
	// go on in.
	CMPW const_regsStatus(DI), $const_noInfo
	JEQ  again
done:
	SUBQ FIRST, CURRENT
	SHRQ $const_spanShift, CURRENT
	MOVQ CURRENT, last+48(FP)
return:
	MOVQ STEPS(SP), AX
	MOVQ AX, steps+40(FP)
	RET
again:
	TESTQ AX, AX
	JZ   done
	MOVQ max+32(FP), R8
	SUBQ CX, R8
	JZ   done
	MOVQ pcs+24(FP), AX
	LEAQ (AX)(CX*8), CX
	JMP  next
single:
	MOVQ span_walk(CURRENT), AX
	TESTQ AX, AX
	JNZ  call
	MOVW $const_noInfo, const_regsStatus(DI)
	JMP  done
search:
	MOVQ CX, BX
	MOVQ SI, R9
	CALL spanSearch<>(SB)
	MOVQ BX, CX
	TESTQ R10, R10
	JNZ  found
nowhere:
	MOVQ $-1, AX
	MOVQ AX, last+48(FP)
	MOVW $const_noInfo, const_regsStatus(DI)
	JMP  return

// Where eh_elfs jump to when the walk leaves their object, see abi.SymbolChain: AX is
// the address to look up, plus one, SI and DI are free, R10 is where the walk ends
// with SI 0, and other registers are the walk's.
TEXT chainNext<>(SB), NOSPLIT|NOFRAME, $0-0
	LOOKUP(AX, SI, DI, search)
found:
	CMPQ DI, CURRENT // a hole in the object
	JEQ  leave
	MOVQ span_enter(DI), SI
	TESTQ SI, SI
	JZ   leave
	MOVQ DI, CURRENT
	MOVQ span_bias(DI), R10
	JMP  SI
search:
	PUSHQ CX
	PUSHQ DX
	PUSHQ R9
	PUSHQ R10
	MOVQ SI, R9
	CALL spanSearch<>(SB)
	MOVQ R10, DI
	POPQ R10
	POPQ R9
	POPQ DX
	POPQ CX
	TESTQ DI, DI
	JNZ  found
leave:
	XORL SI, SI
	JMP  R10

// R10 becomes the span of the address in AX, less one, or zero. R9 is where the cache
// has it; CX and DX are used.
TEXT spanSearch<>(SB), NOSPLIT|NOFRAME, $0-0
	// It is the first that ends at AX or above, among CX from R10 on.
	MOVQ FIRST, R10
	MOVQ END, CX
	SUBQ FIRST, CX
	SHRQ $const_spanShift, CX
half:
	TESTQ CX, CX
	JZ   ended
	MOVQ CX, DX
	SHRQ $1, DX
	SHLQ $const_spanShift, DX
	ADDQ R10, DX
	CMPQ AX, span_end(DX)
	JLS  lower
	LEAQ span__size(DX), R10
	DECQ CX
lower:
	SHRQ $1, CX
	JMP  half
ended:
	CMPQ R10, END
	JCC  none
	CMPQ AX, span_start(R10)
	JLS  none
	MOVQ R10, DX
	SUBQ FIRST, DX
	MOVL DX, (R9)
	RET
none:
	XORL R10, R10
	RET
