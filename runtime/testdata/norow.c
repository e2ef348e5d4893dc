/*
 * Steps from code without rows that is known by its instructions: procedure linkage tables,
 * in which each instruction is stepped to, and what signal handlers return to. What is right
 * is what the processor and the kernel say, and from the caller on libunwind.
 *
 * norow tables LOW HIGH: the linker's tables, link-time addresses in hexadecimal
 * norow forms, signals, others
 */
#define UNW_LOCAL_ONLY
#include <errno.h>
#include <libunwind.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../src/internal.h"
#include "check.h"

enum { TRAP_FLAG = 0x100, PAGE_SIZE = 4096 };

/*
 * The tables of old ld with bnd and endbr64, of old gold and ld with bnd alone, and of mold,
 * each with an entry that goes to getppid by way of the first entry. Then what looks like
 * parts of tables, and what handlers return to. None of this has rows.
 */
__asm__(".pushsection .forms, \"ax\"\n"
        ".balign 4096\n"
        "forms:\n"
        "bnd_ibt_first: push forms(%rip); bnd jmp *resolver(%rip); nopl (%rax)\n"
        "bnd_ibt_entry: endbr64; .byte 0x68, 1, 0, 0, 0; .byte 0xf2, 0xe9; .long bnd_ibt_first - . - 4; nop\n"
        ".balign 16\n"
        "bnd_ibt_sec: endbr64; bnd jmp *to_bnd_ibt(%rip); nopl 0(%rax, %rax)\n"
        ".balign 16\n"
        "bnd_first: push forms(%rip); bnd jmp *resolver(%rip); nopl (%rax)\n"
        "bnd_entry: .byte 0x68, 1, 0, 0, 0; .byte 0xf2, 0xe9; .long bnd_first - . - 4; nopl 0(%rax, %rax)\n"
        ".balign 8\n"
        "bnd_sec: bnd jmp *to_bnd(%rip); nop\n"
        ".balign 16\n"
        "mold_first: endbr64; push %r11; push forms(%rip); jmp *resolver(%rip); int3; int3; int3\n"
        ".balign 16\n"
        "mold_entry: endbr64; mov $5, %r11d; jmp *to_mold(%rip)\n"
        "forms_end:\n"
        "resolve: add $16, %rsp; jmp *target(%rip)\n" /* in place of the dynamic linker's */
        "elsewhere: push $0x12345; .byte 0xe9; .long resolve - . - 4\n"
        "tail: jmp *resolver(%rip); hlt; hlt\n"
        "pushes: push %r11; push %rax; mov $1, %r11d; ret; endbr64; ret; push forms(%rip); ret\n"
        "pushes_end: hlt\n"
        "restore_rax: mov $15, %rax; syscall; hlt\n"
        "restore_eax: mov $15, %eax; syscall; hlt\n"
        ".balign 4096\n"
        ".popsection\n"
        ".pushsection .data\n"
        ".balign 8\n"
        "resolver: .quad resolve\n"
        "target: .quad getppid\n"
        "to_bnd_ibt: .quad bnd_ibt_entry\n"
        "to_bnd: .quad bnd_entry\n"
        "to_mold: .quad mold_first\n"
        ".popsection\n");
extern const char forms[], forms_end[], elsewhere[], tail[], pushes[], pushes_end[], restore_rax[], restore_eax[],
    mold_entry[];
extern int bnd_ibt_sec_call(void) __asm__("bnd_ibt_sec"), bnd_sec_call(void) __asm__("bnd_sec"),
    mold_call(void) __asm__("mold_entry");

static uint64_t addr(const void *p) { return (uint64_t)(uintptr_t)p; }
static uint64_t greg(const ucontext_t *c, int i) { return (uint64_t)c->uc_mcontext.gregs[i]; }

/* ------------------------------------------------------------------------------- frames */

static bool by_rows_above = true; /* the program has an eh_elf */

/* same_above compares the frames from those of both cursors up, which must be the same. */
static void same_above(ehu_cursor_t *e, unw_cursor_t *u, void **pcs, size_t n)
{
    size_t depth = 0;
    int mine, theirs;
    do {
        unw_word_t pc, sp;
        uint64_t my_pc = 0, my_sp = 0;
        ehu_get_reg(e, EH_ELF_RIP, &my_pc);
        ehu_get_reg(e, EH_ELF_RSP, &my_sp);
        unw_get_reg(u, UNW_REG_IP, &pc);
        unw_get_reg(u, UNW_REG_SP, &sp);
        check(my_sp == sp && (depth == 0 || my_pc == pc), "frame %zu above: pc %#lx rsp %#lx, libunwind %#lx %#lx",
            depth, (long)my_pc,
              (long)my_sp, (long)pc, (long)sp);
        check(depth < n && addr(pcs[depth]) == my_pc, "frame %zu above: not in the array", depth);
        depth++;
        mine = ehu_step(e);
        theirs = unw_step(u);
    } while (mine > 0 && theirs > 0);
    check(mine == 0 && theirs <= 0 && depth == n &&
        !ehu_is_guessed(e), "after %zu of %zu frames: step %d, libunwind %d", depth, n, mine, theirs);
    num_stacks++;
    num_frames += (long)depth;
}

/* whole reports whether the preload would take it for all there is. */
static void whole(const eh_elf_regs_t *regs, void **pcs, size_t n)
{
    uint64_t again[64];
    enum ehu_worth worth;
    uint64_t stopped;
    size_t k = ehu_try_(regs, again, 64, false, &worth, &stopped);
    check(worth == EHU_WHOLE && k + 1 == n &&
        memcmp(pcs + 1, again, k * 8) == 0, "without guesses %zu frames of %zu, worth %d", k + 1, n, worth);
}

/* from_table steps from an instruction of a table; call is where the call was that led to it. */
static void from_table(const ucontext_t *context, ucontext_t *call)
{
    static const struct { int reg, greg; } kept[] = {{EH_ELF_RBX, REG_RBX}, {EH_ELF_RBP, REG_RBP},
        {EH_ELF_R12, REG_R12},
                                                     {EH_ELF_R13, REG_R13}, {EH_ELF_R14, REG_R14},
                                                     {EH_ELF_R15, REG_R15}};
    uint64_t pc = 0, rsp = 0, value, want = *(const uint64_t *)(uintptr_t)(greg(call, REG_RSP) - 8);
    void *pcs[64];
    ehu_cursor_t e;
    unw_cursor_t u;
    ehu_cursor_init_from(&e, context);
    const eh_elf_regs_t regs = e.walk.regs;
    int status = ehu_step(&e);
    ehu_get_reg(&e, EH_ELF_RIP, &pc);
    ehu_get_reg(&e, EH_ELF_RSP, &rsp);
    check(status == 1 && pc == want &&
        rsp == greg(call, REG_RSP), "at %#lx: step %d to pc %#lx rsp %#lx, not %#lx %#lx",
          (long)greg(context, REG_RIP), status, (long)pc, (long)rsp, (long)want, (long)greg(call, REG_RSP));
    check(!ehu_is_guessed(&e) && !ehu_is_signal_frame(&e), "at %#lx: a guess", (long)greg(context, REG_RIP));
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        check(ehu_get_reg(&e, kept[i].reg, &value) == 0 &&
            value == greg(context, kept[i].greg), "register %d", kept[i].reg);
    if (!by_rows_above)
        return;
    size_t n = ehu_backtrace_from(context, pcs, 64);
    whole(&regs, pcs, n);
    unw_init_local2(&u, call, UNW_INIT_SIGNAL_FRAME);
    same_above(&e, &u, pcs + 1, n - 1);
}

/* ---------------------------------------------------------------------------- stepping */

static uint64_t low, high; /* the tables */
static long distinct;      /* instructions in them */

static void on_trap(int sig, siginfo_t *info, void *arg)
{
    static ucontext_t call;
    static bool seen[1 << 16];
    ucontext_t *context = arg;
    uint64_t at = greg(context, REG_RIP) - low;
    (void)sig;
    (void)info;
    if (at >= high - low) {
        call = *context;
        return;
    }
    distinct += !seen[at % sizeof seen];
    seen[at % sizeof seen] = true;
    from_table(context, &call);
}

static inline void stepping(bool on)
{
    uint64_t flags = __builtin_ia32_readeflags_u64();
    __builtin_ia32_writeeflags_u64(on ? flags | TRAP_FLAG : flags & ~(uint64_t)TRAP_FLAG);
    __asm__ volatile("nop; nop"); /* the first trap is after the next instruction */
}

static int (*volatile random_function)(void);
static volatile long sum;

__attribute__((noinline)) static void by_tables(void)
{
    stepping(true);
    for (int i = 0; i < 2; i++)
        sum += getppid() + (long)getuid() + rand();
    stepping(false);
}

__attribute__((noinline)) static void by_forms(void)
{
    stepping(true);
    for (int i = 0; i < 2; i++)
        sum += bnd_ibt_sec_call() + bnd_sec_call() + mold_call();
    stepping(false);
}

static void step_through(void (*calls)(void))
{
    struct sigaction sa = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &sa, NULL);
    calls();
    printf("instructions=%ld ", distinct);
}

/* ----------------------------------------------------------------------------- signals */

static uint64_t restorer;
static int handled;

static void on_signal(int sig, siginfo_t *info, void *context)
{
    static const int place[] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8,
                                REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
    void *pcs[64];
    ehu_cursor_t e;
    unw_cursor_t u;
    uint64_t pc = 0, value;
    size_t depth = 1;
    (void)sig;
    (void)info;
    ehu_cursor_init(&e);
    const eh_elf_regs_t regs = e.walk.regs;
    size_t n = ehu_backtrace(pcs, 64);
    pcs[0] = (void *)(uintptr_t)regs.reg[EH_ELF_RIP];
    whole(&regs, pcs, n);
    while (ehu_step(&e) == 1 && ehu_get_reg(&e, EH_ELF_RIP, &pc) == 0 && pc != restorer)
        depth++;
    check(pc == restorer && ehu_step(&e) == 1 && ehu_is_signal_frame(&e), "not to where the signal came");
    for (int i = 0; i < EH_ELF_NUM_REGS; i++)
        check(ehu_get_reg(&e, i, &value) == 0 && value == greg(context, place[i]), "register %d", i);
    unw_init_local2(&u, context, UNW_INIT_SIGNAL_FRAME);
    same_above(&e, &u, pcs + depth + 1, n - depth - 1);
    handled++;

    /* In the middle of the instructions, and where the stack ends before the context does. */
    ucontext_t at = *(ucontext_t *)context;
    at.uc_mcontext.gregs[REG_RSP] = (greg_t)addr(context);
    for (int i = 0; i < 16; i++) {
        at.uc_mcontext.gregs[REG_RIP] = (greg_t)restorer + i;
        at.uc_mcontext.gregs[REG_RBP] = 1;
        size_t length = *(const uint8_t *)(uintptr_t)restorer == 0xb8 ? 5 : 7;
        ehu_cursor_init_from(&e, &at);
        int status = ehu_step(&e);
        if (i == 0 || (size_t)i == length)
            check(status == 1 && ehu_get_reg(&e, EH_ELF_RIP, &pc) == 0 &&
                pc == greg(context, REG_RIP), "at +%d: %d", i, status);
    }
}

static void signals(void)
{
    static char other[64 << 10];
    const stack_t stack = {.ss_sp = other, .ss_size = sizeof other};
    const char *const restorers[] = {restore_rax, restore_eax};
    sigaltstack(&stack, NULL);
    for (int i = 0; i < 4; i++) {
        struct {
            void (*handler)(int, siginfo_t *, void *);
            unsigned long flags;
            const char *restorer;
            uint64_t mask;
        } action = {on_signal, SA_SIGINFO | 0x04000000 /* SA_RESTORER */ | (i / 2 ? SA_ONSTACK : 0), restorers[i % 2],
            0};
        restorer = addr(restorers[i % 2]);
        check(syscall(SYS_rt_sigaction, SIGUSR1, &action, NULL, 8L) == 0, "rt_sigaction");
        raise(SIGUSR1);
        check(handled == i + 1, "not handled");
    }
}

/* ------------------------------------------------------------------------------ others */

/* step_at is what a step from pc says. No frame pointer helps it. */
static int step_at(uint64_t pc, uint64_t rsp)
{
    ucontext_t context;
    ehu_cursor_t e;
    getcontext(&context);
    context.uc_mcontext.gregs[REG_RIP] = (greg_t)pc;
    context.uc_mcontext.gregs[REG_RSP] = (greg_t)rsp;
    context.uc_mcontext.gregs[REG_RBP] = 1;
    ehu_cursor_init_from(&e, &context);
    return ehu_step(&e);
}

static void others(void)
{
    uint64_t words[64] = {addr(&others) + 1, addr(&others) + 1, addr(&others) + 1};
    for (const char *p = elsewhere; p < pushes_end; p++)
        check(step_at(addr(p), addr(words)) == EH_ELF_NO_INFO, "a table at %#lx", (long)addr(p));
    check(step_at(addr(mold_entry), addr(words)) == 1, "no table");
    ehu_cursor_t e;
    ehu_cursor_init(&e); /* a return address is not in a table */
    e.walk.regs.reg[EH_ELF_RIP] = addr(mold_entry);
    e.walk.regs.reg[EH_ELF_RBP] = 1;
    check(ehu_step(&e) == EH_ELF_NO_INFO, "a return address");

    /* A stack that ends too soon, or leads astray. */
    char *pages = mmap(NULL, 2 * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + PAGE_SIZE, PAGE_SIZE, PROT_NONE);
    for (uint64_t cfa = 8; cfa <= 24; cfa += 8)
        for (uint64_t above = 0; above <= 24; above += 8) {
            static const int offset[] = {0, 6, 12}; /* in mold's first entry: endbr64, push, jmp */
            uint64_t pc = addr(mold_entry) - 32 + (uint64_t)offset[cfa / 8 - 1];
            memset(pages, 0, PAGE_SIZE);
            int status = step_at(pc, addr(pages) + PAGE_SIZE - above);
            check(status == (above >= cfa ? 0 : EH_ELF_UNREADABLE), "cfa %d, %d bytes of stack: %d", (int)cfa,
                  (int)above, status); /* 0: a return address of zero */
            memset(pages, 0x11, PAGE_SIZE);
            check(above < cfa || step_at(pc, addr(pages) + PAGE_SIZE - above) == EHU_NO_OBJECT,
                "a word that is no return address");
        }

    /* Code that cannot be read. */
    for (int prot = 0; prot < 2; prot++) {
        mprotect((void *)(uintptr_t)forms, PAGE_SIZE, prot ? PROT_EXEC : PROT_NONE);
        int status = step_at(addr(mold_entry), addr(words));
        check(status == EH_ELF_NO_INFO || (prot && status == 1), "code that cannot be read: %d", status);
    }
    mprotect((void *)(uintptr_t)forms, PAGE_SIZE, PROT_READ | PROT_EXEC);
    errno = 5;
    step_at(addr(tail), addr(words));
    check(errno == 5, "errno");
}

static int base(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(uint64_t *)arg = info->dlpi_addr;
    return 1;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    random_function = rand; /* in .plt.got */
    by_rows_above = getenv("NO_ROWS") == NULL;
    if (ehu_init() != 0)
        return 2;
    if (strcmp(what, "tables") == 0 && argc == 4) {
        uint64_t bias;
        dl_iterate_phdr(base, &bias);
        low = bias + strtoull(argv[2], NULL, 16);
        high = bias + strtoull(argv[3], NULL, 16);
        step_through(by_tables);
    } else if (strcmp(what, "forms") == 0) {
        low = addr(forms);
        high = addr(forms_end);
        step_through(by_forms);
    } else if (strcmp(what, "signals") == 0) {
        signals();
    } else if (strcmp(what, "others") == 0) {
        others();
    } else {
        return 2;
    }
    return summary(what);
}
