/*
 * The trap flag makes the kernel send SIGTRAP after every instruction. The handler
 * keeps the list of calls as the machine makes them: a call instruction adds its
 * return address, the stack pointer and the callee-saved registers that the caller
 * will find again; a ret takes the last one off, and they must be as noted. So
 * every frame is known at every instruction, whatever an unwinder says.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "stacks.h"
#include "stepped.h"

static struct { uint64_t pc, rsp; uint32_t what; } last; /* the instruction that was to be executed next */
enum { ORDINARY, CALL, RET, SYSCALL };

static eh_elf_regs_t calls[MAX_FRAMES]; /* outermost first */
static int num_calls;
static bool done;

/* kind_of tells calls and returns from other instructions (Intel SDM vol. 2). */
static uint32_t kind_of(uint64_t pc)
{
    const uint8_t *p = (const uint8_t *)(uintptr_t)pc;
    while (*p == 0x66 || *p == 0x67 || *p == 0xf2 || *p == 0xf3 || *p == 0x2e || *p == 0x3e || (*p & 0xf0) == 0x40)
        p++; /* prefixes */
    if (*p == 0xe8 || (*p == 0xff && (p[1] >> 3 & 7) == 2))
        return CALL;
    if (*p == 0x0f && p[1] == 0x05)
        return SYSCALL;
    return *p == 0xc3 || *p == 0xc2 ? RET : ORDINARY;
}

/* note_call keeps what the frame that returns to pc will find. */
static void note_call(uint64_t pc, uint64_t rsp, const uint64_t reg[])
{
    if (num_calls == MAX_FRAMES - 2)
        abort();
    eh_elf_regs_t *c = &calls[num_calls++];
    memset(c, 0, sizeof *c);
    for (int i = 0; i < NUM_SAVED; i++)
        c->reg[saved[i]] = reg[saved[i]];
    c->reg[EH_ELF_RIP] = pc;
    c->reg[EH_ELF_RSP] = rsp;
    c->valid = SAVED_BITS | 1u << EH_ELF_RIP | 1u << EH_ELF_RSP;
}

/* follow brings the list of calls up to date after an instruction. */
static void follow(const eh_elf_regs_t *now)
{
    uint64_t rsp = now->reg[EH_ELF_RSP];
    /* After a system call the trap may come one instruction late. */
    if (last.what == SYSCALL && now->reg[EH_ELF_RIP] != last.pc + 2)
        last.what = kind_of(last.pc + 2);
    if (last.what == CALL && rsp == last.rsp - 8)
        note_call(*(const uint64_t *)(uintptr_t)rsp, last.rsp, now->reg);
    if (last.what == RET) {
        eh_elf_regs_t *c = &calls[--num_calls];
        for (int r = 0; r < EH_ELF_NUM_REGS; r++)
            if (c->valid & 1u << r && c->reg[r] != now->reg[r])
                fail("call returning to %#lx: register %d was %#lx and is %#lx", (unsigned long)c->reg[EH_ELF_RIP], r,
                     (unsigned long)c->reg[r], (unsigned long)now->reg[r]);
    }
    last.pc = now->reg[EH_ELF_RIP];
    last.rsp = rsp;
    last.what = kind_of(last.pc);
}

/* count_step says where the steps were. */
static void count_step(void)
{
    const struct object *o = object_of(last.pc);
    const uint8_t *p = (const uint8_t *)(uintptr_t)last.pc;
    count("steps", 1);
    if (last.what == CALL)
        count("calls", 1);
    if (strncmp(o->name, "ld-linux", 8) == 0)
        count("steps-in-loader", 1); /* binding lazily */
    if (strncmp(o->name, "libc.so", 7) == 0)
        count("steps-in-libc", 1);
    if (strstr(o->name, "vdso"))
        count("steps-in-vdso", 1);
    if (p[0] == 0xff && p[1] == 0x25)
        count("plt-jumps", 1);
    if ((p[0] == 0x68 && p[5] == 0xe9) || p[0] == 0xe9)
        count("plt-pushes-and-tail-calls", 1);
}

static void on_step(int sig, siginfo_t *info, void *context)
{
    static eh_elf_regs_t now;
    static struct known known;
    static long steps;
    ucontext_t *uc = context;
    (void)sig;
    (void)info;
    regs_of_context(uc, &now);
    follow(&now);
    if (now.reg[EH_ELF_RIP] == (uintptr_t)step_return) {
        uc->uc_mcontext.gregs[REG_EFL] &= ~0x100L;
        done = num_calls == 0;
        return;
    }
    known.len = 0;
    for (int i = num_calls; i-- > 0;)
        known.frame[known.len++] = calls[i];
    check_stack(&now, &known, steps++ % 4 == 0);
    count_step();
}

/* step runs fn one instruction at a time. */
static void step(const char *name, void (*fn)(void), int flags)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = on_step;
    sa.sa_flags = SA_SIGINFO | flags;
    sigfillset(&sa.sa_mask);
    sigaction(SIGTRAP, &sa, NULL);
    scenario(name);
    memset(&last, 0, sizeof last);
    num_calls = 1;
    eh_elf_regs_t *base = &calls[0];
    memset(base, 0, sizeof *base);
    base->reg[EH_ELF_RIP] = (uintptr_t)step_return;
    for (int i = 0; i < NUM_SAVED; i++)
        base->reg[saved[i]] = step_saved[i];
    base->valid = SAVED_BITS | 1u << EH_ELF_RIP;
    done = false;
    step_call(fn);
    if (!done)
        fail("stepping did not end where it began");
}

/* What walk_work walks over: a stack taken before. */
static eh_elf_regs_t walk_start;
static char walk_stack[4096];
static uint64_t walk_low, walk_size;

__attribute__((noinline)) static void take_walk_stack(void)
{
    capture(&walk_start);
    walk_low = walk_start.reg[EH_ELF_RSP];
    eh_elf_memory_t mem;
    make_memory(MEM_WINDOW, walk_low, &mem);
    for (walk_size = 0; walk_size < sizeof walk_stack && readable(walk_low + walk_size); walk_size += 8)
        memcpy(walk_stack + walk_size, (const void *)(uintptr_t)(walk_low + walk_size), 8);
}

static int read_copy(void *arg, uint64_t addr, uint64_t *word)
{
    (void)arg;
    if (addr < walk_low || addr > walk_low + walk_size - 8)
        return 1;
    memcpy(word, walk_stack + (addr - walk_low), 8);
    return 0;
}

static uintptr_t deref_copy(uintptr_t addr)
{
    uint64_t word = 0;
    return read_copy(NULL, addr, &word) == 0 ? word : 0;
}

static void walk_with(const eh_elf_memory_t *mem, uint64_t *pcs)
{
    eh_elf_regs_t regs = walk_start;
    const struct object *o;
    while ((o = object_of(regs.reg[EH_ELF_RIP] - 1)) && o->walk(&regs, mem, o->bias, pcs, 20) > 0)
        continue;
    if (regs.status != EH_ELF_OUTERMOST)
        fail("stepped walk: status %d", regs.status);
}

size_t chain_call(eh_elf_regs_t *regs, const eh_elf_memory_t *mem, uint64_t bias, uint64_t *pcs, size_t max,
    void *place[3]);

/* walk_chain walks through two objects in one call. */
static void walk_chain(const eh_elf_memory_t *mem)
{
    enum { CHAIN_NEXT = 2 };
    eh_elf_regs_t regs = walk_start, want = walk_start;
    uint64_t pcs[40], want_pcs[40];
    const struct object *first = object_of(regs.reg[EH_ELF_RIP] - 1);
    size_t n = first->walk(&want, mem, first->bias, want_pcs, 20);
    const struct object *second = object_of(want.reg[EH_ELF_RIP] - 1);
    n += second->walk(&want, mem, second->bias, want_pcs + n, 20);
    void *place[] = {first->chain, second->chain + CHAIN_NEXT, (void *)(uintptr_t)second->bias};
    size_t k = chain_call(&regs, mem, first->bias, pcs, 40, place);
    size_t same = 0; /* memcmp is bound at its first call, which takes a debugger long */
    while (same < n && pcs[same] == want_pcs[same])
        same++;
    if (first == second || k != n || same != n || regs.status != want.status || regs.valid != want.valid ||
        regs.exact != want.exact)
        fail("chain: %zu steps to status %d, not %zu to %d", k, regs.status, n, want.status);
    for (int i = 0; i < EH_ELF_NUM_REGS; i++)
        if (regs.valid & 1u << i && regs.reg[i] != want.reg[i])
            fail("chain: register %d is %lx, not %lx", i, (unsigned long)regs.reg[i], (unsigned long)want.reg[i]);
}

/* walk_work walks with eh_elfs: on the fast path, through the callback, in a chain of
 * two, and by way of the original interface. */
static void walk_work(void)
{
    uint64_t pcs[20];
    eh_elf_memory_t window = {walk_low, walk_size, walk_stack, NULL, NULL};
    eh_elf_memory_t callback = {0, 0, NULL, read_copy, NULL};
    walk_with(&window, pcs);
    walk_with(&callback, NULL);
    walk_chain(&window);
    walk_chain(&callback);
    const struct object *o = object_of(walk_start.reg[EH_ELF_RIP]);
    unwind_context_t c = {0, walk_start.reg[EH_ELF_RIP], walk_start.reg[EH_ELF_RSP], walk_start.reg[EH_ELF_RBP],
                          walk_start.reg[EH_ELF_RBX]};
    c = o->step(c, c.rip - o->bias, deref_copy);
    if (!(c.flags & EH_ELF_FLAG_RIP))
        fail("stepped _eh_elf: flags %#x", c.flags);
}

/* Goes on in the single steps of a tracer, up to step_return. */
static void traced_work(void)
{
    __asm__ volatile("int3");
    stepped_calls();
}

/* record prints the frames below the call that will be traced, as libunwind has them. */
static void record(void)
{
    static struct stack s;
    eh_elf_regs_t here;
    capture(&here);
    take_libunwind(&here, &s);
    int i = 0;
    while (i < s.len && s.frame[i].reg[EH_ELF_RIP] != (uintptr_t)step_return)
        i++;
    for (; i < s.len; i++) {
        printf("frame %lx %lx", (unsigned long)s.frame[i].reg[EH_ELF_RIP], (unsigned long)s.frame[i].reg[EH_ELF_RSP]);
        for (int r = 0; r < NUM_SAVED; r++)
            printf(" %lx", (unsigned long)s.frame[i].reg[saved[r]]);
        putchar('\n');
    }
    fflush(stdout);
}

/* traced makes one call twice, from the same place. */
void traced(void)
{
    void (*volatile fns[])(void) = {record, traced_work};
    for (volatile int i = 0; i < 2; i++)
        quiet_call(fns[i]);
}

/* walk_only walks, for a debugger to look at. */
void walk_only(void)
{
    take_walk_stack();
    walk_work();
}

void stepped(void)
{
    step("stepped-altstack", stepped_work, SA_ONSTACK); /* binds what is bound lazily */
    step("stepped", stepped_calls, 0);
    take_walk_stack();
    step("stepped-walk", walk_work, SA_ONSTACK);
}
