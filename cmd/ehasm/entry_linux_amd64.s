#include "textflag.h"

// entry is where the process begins in builds with -ldflags '-E main.entry', as make build has
// them; others begin where Go does. The Go run-time reserves 600 MB of addresses before any Go
// code runs, then 512 MB, then 64 MB and more for the heap (runtime/mpagealloc_64bit.go), and ends with a
// page of registers where RLIMIT_AS does not allow the first or the last. Where it does not allow the
// second it goes on, with an index that begins at address 0: that is no place to work in. Of what can
// be written (RLIMIT_DATA) it takes 80 MB. And
// packages that open a file as they are initialised have it do so where descriptors are
// short (RLIMIT_NOFILE). So both are looked at before. Two more things can only be done here:
// the run-time opens /dev/null in place of a standard output that is closed, and golang-asm
// looks at the environment as it is initialised (see package goenv). The stack is as the kernel
// has left it (x86-64 psABI 3.4.1); the 64 bytes below it are used.

#define SYS_write 1
#define SYS_open 2
#define SYS_close 3
#define SYS_fcntl 72
#define SYS_getrlimit 97
#define SYS_exit_group 231
#define F_GETFD 1
#define EBADF 9
#define RLIMIT_DATA 2
#define RLIMIT_AS 9
#define NEEDED (1536 << 20) // bytes of addresses
#define NEEDED_DATA (128 << 20) // bytes of them that can be written to
#define DESCRIPTORS 6 // two of the run-time, two of packages, one to read, one to write
#define O_CLOEXEC 0x80000
#define HIDDEN 144 // bytes of hiddennames
#define HIDE 1 // goenv.Hide
#define EMFILE 24
#define ENFILE 23

DATA entrymessage<>+0(SB)/64, $"ehasm: the limit on addresses (ulimit -v, RLIMIT_AS) is too low:"
DATA entrymessage<>+64(SB)/27, $" 1536 MiB and more, please\n"
GLOBL entrymessage<>(SB), RODATA, $91

DATA datamessage<>+0(SB)/64, $"ehasm: the limit on data (ulimit -d, RLIMIT_DATA) is too low: 12"
DATA datamessage<>+64(SB)/24, $"8 MiB and more, please\n\x00"
GLOBL datamessage<>(SB), RODATA, $88

DATA fewmessage<>+0(SB)/64, $"ehasm: the limit on open files (ulimit -n, RLIMIT_NOFILE) is too"
DATA fewmessage<>+64(SB)/39, $" low: 6 more than are open now, please\n"
GLOBL fewmessage<>(SB), RODATA, $103

DATA devnull<>+0(SB)/10, $"/dev/null\x00"
GLOBL devnull<>(SB), RODATA, $10

// What follows GO in the names that goenv.Names lists, with "=", each with a mask of its bytes.
DATA hiddennames<>+0(SB)/8, $"OS=\x00\x00\x00\x00\x00"
DATA hiddennames<>+8(SB)/8, $0xffffff
DATA hiddennames<>+16(SB)/8, $"ARCH=\x00\x00\x00"
DATA hiddennames<>+24(SB)/8, $0xffffffffff
DATA hiddennames<>+32(SB)/8, $"ARM=\x00\x00\x00\x00"
DATA hiddennames<>+40(SB)/8, $0xffffffff
DATA hiddennames<>+48(SB)/8, $"386=\x00\x00\x00\x00"
DATA hiddennames<>+56(SB)/8, $0xffffffff
DATA hiddennames<>+64(SB)/8, $"MIPS=\x00\x00\x00"
DATA hiddennames<>+72(SB)/8, $0xffffffffff
DATA hiddennames<>+80(SB)/8, $"MIPS64=\x00"
DATA hiddennames<>+88(SB)/8, $0xffffffffffffff
DATA hiddennames<>+96(SB)/8, $"PPC64=\x00\x00"
DATA hiddennames<>+104(SB)/8, $0xffffffffffff
DATA hiddennames<>+112(SB)/8, $"WASM=\x00\x00\x00"
DATA hiddennames<>+120(SB)/8, $0xffffffffff
DATA hiddennames<>+128(SB)/8, $"AMD64=\x00\x00"
DATA hiddennames<>+136(SB)/8, $0xffffffffffff
GLOBL hiddennames<>(SB), RODATA, $144

TEXT ·entry(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVL $SYS_fcntl, AX
	MOVL $1, DI
	MOVL $F_GETFD, SI
	SYSCALL
	CMPQ AX, $-EBADF
	SETEQ ·outputClosed(SB)
	MOVL $SYS_getrlimit, AX
	MOVL $RLIMIT_AS, DI
	LEAQ -32(SP), SI
	SYSCALL
	TESTQ AX, AX
	JNE  data
	MOVQ -32(SP), AX
	CMPQ AX, $NEEDED
	JCC  data
	LEAQ entrymessage<>(SB), SI
	MOVL $91, DX
	JMP  end
data:
	MOVL $SYS_getrlimit, AX
	MOVL $RLIMIT_DATA, DI
	LEAQ -32(SP), SI
	SYSCALL
	TESTQ AX, AX
	JNE  enough
	MOVQ -32(SP), AX
	CMPQ AX, $NEEDED_DATA
	JCC  enough
	LEAQ datamessage<>(SB), SI
	MOVL $87, DX
	JMP  end
enough:
	XORL R12, R12 // descriptors opened
more:
	MOVL $SYS_open, AX
	LEAQ devnull<>(SB), DI
	MOVL $O_CLOEXEC, SI
	XORL DX, DX
	SYSCALL
	CMPQ AX, $-EMFILE
	JEQ  few
	CMPQ AX, $-ENFILE
	JEQ  few
	TESTQ AX, AX
	JLT  closing // no /dev here
	MOVL AX, -64(SP)(R12*4)
	INCL R12
	CMPL R12, $DESCRIPTORS
	JLT  more
closing:
	TESTL R12, R12
	JEQ  begin
	DECL R12
	MOVL -64(SP)(R12*4), DI
	MOVL $SYS_close, AX
	SYSCALL
	JMP  closing
few:
	LEAQ fewmessage<>(SB), SI
	MOVL $103, DX
end: // with the DX bytes at SI for the last words
	MOVL $SYS_write, AX
	MOVL $2, DI
	SYSCALL
	MOVL $SYS_exit_group, AX
	MOVL $1, DI
	SYSCALL
begin:
	MOVQ 0(SP), AX // argc
	LEAQ 16(SP)(AX*8), BX // the environment
variable:
	MOVQ (BX), DI
	ADDQ $8, BX
	TESTQ DI, DI
	JEQ  start
	CMPW (DI), $0x4f47 // GO
	JNE  variable
	MOVQ 2(DI), AX // 8 bytes: after the last variable are the program's name and a zero word
	LEAQ hiddennames<>(SB), SI
name:
	MOVQ AX, DX
	ANDQ 8(SI), DX
	CMPQ DX, (SI)
	JEQ  hide
	ADDQ $16, SI
	LEAQ hiddennames<>+HIDDEN(SB), DX
	CMPQ SI, DX
	JNE  name
	JMP  variable
hide:
	MOVB $HIDE, (DI)
	JMP  variable
start:
	JMP _rt0_amd64_linux(SB)
