#include "textflag.h"

// entry is where the process begins in builds with -ldflags '-E main.entry', as make build has
// them; others begin where Go does. The Go run-time reserves some 600 MB of addresses before
// any Go code runs, and ends with a page of registers where RLIMIT_AS does not allow it; so it
// is looked at before. The stack is as the kernel has left it (x86-64 psABI 3.4.1).

#define SYS_write 1
#define SYS_getrlimit 97
#define SYS_exit_group 231
#define RLIMIT_AS 9
#define NEEDED (768 << 20) // bytes

DATA entrymessage<>+0(SB)/64, $"ehasm: the limit on addresses (ulimit -v, RLIMIT_AS) is too low:"
DATA entrymessage<>+64(SB)/26, $" 768 MiB and more, please\n"
GLOBL entrymessage<>(SB), RODATA, $90

TEXT ·entry(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVL $SYS_getrlimit, AX
	MOVL $RLIMIT_AS, DI
	LEAQ -32(SP), SI
	SYSCALL
	TESTQ AX, AX
	JNE  enough
	MOVQ -32(SP), AX
	CMPQ AX, $NEEDED
	JCC  enough
	MOVL $SYS_write, AX
	MOVL $2, DI
	LEAQ entrymessage<>(SB), SI
	MOVL $90, DX
	SYSCALL
	MOVL $SYS_exit_group, AX
	MOVL $1, DI
	SYSCALL
enough:
	JMP _rt0_amd64_linux(SB)
