/* How many instructions a walk takes, by single steps. Each argument is a depth of calls and gives a line: "NAME FRAMES INSTRUCTIONS, ...". */
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unwind.h>

#include "../src/internal.h"

int unw_backtrace(void **pcs, int n);

enum { MOST = 256 };
static void *pcs[MOST];
static volatile sig_atomic_t steps;
static size_t frames;

static void count(int sig) { steps += sig != 0; }

static inline __attribute__((always_inline)) void single_step(bool on)
{
    if (on)
        __asm__ volatile("sub $128, %%rsp; pushf; orq $0x100, (%%rsp); popf; add $128, %%rsp" : : : "memory", "cc");
    else
        __asm__ volatile("sub $128, %%rsp; pushf; andq $~0x100, (%%rsp); popf; add $128, %%rsp" : : : "memory", "cc");
}

static void nothing(void) {}
static void by_ehu_backtrace(void) { frames = ehu_backtrace(pcs, MOST); }
static void by_backtrace(void) { frames = (size_t)backtrace(pcs, MOST); }
static void by_unw_backtrace(void) { frames = (size_t)unw_backtrace(pcs, MOST); }

static _Unwind_Reason_Code take(struct _Unwind_Context *c, void *arg)
{
    (void)arg;
    pcs[frames++] = (void *)_Unwind_GetIP(c);
    return _URC_NO_REASON;
}

static void by_unwind_backtrace(void)
{
    frames = 0;
    _Unwind_Backtrace(take, NULL);
}

static void by_cursor(void)
{
    ehu_cursor_t c;
    uint64_t pc;
    frames = 0;
    ehu_cursor_init(&c);
    do {
        ehu_get_reg(&c, EH_ELF_RIP, &pc);
        pcs[frames++] = (void *)pc;
    } while (ehu_step(&c) == 1);
}

/* What the heap recorder does with its caller's registers. */
static void by_recorder(void)
{
    struct ehu_end end;
    eh_elf_regs_t regs = {.valid = 1 << EH_ELF_RBX | 1 << EH_ELF_RBP | 1 << EH_ELF_RSP | 0xfu << EH_ELF_R12 | 1 << EH_ELF_RIP};
    __asm__ volatile("mov %%rbx, %0; mov %%rbp, %1; mov %%rsp, %2; mov %%r12, %3; mov %%r13, %4; mov %%r14, %5; mov %%r15, %6"
                     : "=m"(regs.reg[EH_ELF_RBX]), "=m"(regs.reg[EH_ELF_RBP]), "=m"(regs.reg[EH_ELF_RSP]),
                         "=m"(regs.reg[EH_ELF_R12]),
                       "=m"(regs.reg[EH_ELF_R13]), "=m"(regs.reg[EH_ELF_R14]), "=m"(regs.reg[EH_ELF_R15]));
    __asm__ volatile("lea 0(%%rip), %%rax; mov %%rax, %0" : "=m"(regs.reg[EH_ELF_RIP]) : : "rax");
    frames = ehu_backtrace_end_(pcs, MOST, &regs, &end);
}

static const struct {
    const char *name;
    void (*walk)(void);
} walks[] = {
    {"nothing", nothing}, {"ehu_backtrace", by_ehu_backtrace}, {"backtrace", by_backtrace},
        {"unw_backtrace", by_unw_backtrace},
    {"_Unwind_Backtrace", by_unwind_backtrace}, {"cursor", by_cursor}, {"recorder", by_recorder},
};

static __attribute__((noinline, noclone)) long counted(void (*walk)(void))
{
    static volatile int warm = 2000; /* not unrolled: a call elsewhere is another stack */
    for (int i = 0; i <= warm; i++) {
        steps = 0;
        if (i == warm)
            single_step(true);
        walk();
    }
    single_step(false);
    return steps;
}

static __attribute__((noinline, noclone)) void at_depth(int depth)
{
    if (depth > 0) {
        at_depth(depth - 1);
        __asm__ volatile("");
        return;
    }
    long none = 0;
    for (size_t i = 0; i < sizeof walks / sizeof *walks; i++) {
        long n = counted(walks[i].walk);
        if (i == 0)
            none = n;
        else
            printf("%s%s %zu %ld", i > 1 ? ", " : "", walks[i].name, frames, n - none);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = count};
    sigaction(SIGTRAP, &action, NULL);
    if (ehu_init() != 0)
        return 1;
    for (int i = 1; i < argc; i++)
        at_depth(atoi(argv[i]));
    return 0;
}
