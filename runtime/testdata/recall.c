/*
 * Walks by remembered rows compared with those of a cursor, which remembers nothing: recall SECONDS SEED PLUGIN-A
 * PLUGIN-B. The plugins' functions have the same addresses, if loaded in turn, and frames of different size.
 */
#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../src/internal.h"

enum { MOST = 200, SIGNAL = 40, THREADS = 3, SHAPES = 12 };
static _Atomic unsigned long walks, wrong, handled;
static volatile bool over;
static const char *plugin[2];
static __thread uint64_t state;
static __thread sigjmp_buf *way_out;
static volatile int sink;

static uint64_t random_word(void) /* xorshift64* */
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1d;
}

static void tell(const char *what, void *const *got, size_t n, void *const *want, size_t m)
{
    if (wrong++ >= 5)
        return;
    printf("%s: %zu frames, not %zu:", what, n, m);
    for (size_t i = 0; i < n || i < m; i++)
        printf(" %p/%p", i < n ? got[i] : NULL, i < m ? want[i] : NULL);
    printf("\n");
}

/* by_cursor goes on with a cursor, of whose frames it has the first. */
static size_t by_cursor(ehu_cursor_t *c, void **pcs, size_t max)
{
    uint64_t pc;
    size_t n = 1;
    while (n < max && ehu_step(c) == 1 && ehu_get_reg(c, EH_ELF_RIP, &pc) == 0)
        pcs[n++] = (void *)(uintptr_t)pc;
    return n;
}

/* as_cursor tells of a walk that is not the one of a cursor at its first frame. */
static void as_cursor(const char *what, void *const *got, size_t n, ehu_cursor_t *c, size_t max)
{
    void *want[MOST] = {got[0]};
    size_t m = by_cursor(c, want, max);
    if (n != m || memcmp(got, want, n * sizeof *got) != 0)
        tell(what, got, n, want, m);
}

__attribute__((noinline, noclone)) static void compare(void)
{
    void *got[MOST];
    size_t max = random_word() % 4 ? MOST : random_word() % 40 + 1, n = 0;
    switch (random_word() % 3) { /* not all walks begin at one place */
    case 0: n = ehu_backtrace(got, max), sink++; break;
    case 1: n = ehu_backtrace(got, max), sink--; break;
    default: n = ehu_backtrace(got, max), sink ^= 1;
    }
    ehu_cursor_t c;
    ehu_cursor_init(&c);
    walks++;
    as_cursor("a walk", got, n, &c, max);
}

static void compare_from(const ucontext_t *u)
{
    void *got[MOST];
    ehu_cursor_t c;
    size_t n = ehu_backtrace_from(u, got, MOST);
    ehu_cursor_init_from(&c, u);
    as_cursor("from a context", got, n, &c, MOST);
}

/* ------------------------------------------------------------------------------- shapes of frames */

#define SHAPE __attribute__((noinline, noclone)) static void
static void down(int n);
SHAPE plain(int n)
{
    down(n);
    sink++;
}
SHAPE many(int n)
{
    long a = sink, b = a ^ n, c = b + sink, d = c ^ sink, e = d + n, f = e ^ sink;
    down(n);
    sink = (int)(a + b + c + d + e + f);
}
SHAPE variable(int n)
{
    volatile char *room = alloca(random_word() % 200 + 1);
    room[0] = 1;
    down(n);
    sink = room[0];
}
SHAPE realigned(int n)
{
    _Alignas(64) volatile char room[64];
    volatile char *more = alloca(random_word() % 100 + 1);
    room[n] = more[0] = 1;
    down(n);
    sink = room[n] + more[0];
}
SHAPE large(int n)
{
    volatile char room[9000];
    room[n] = 1;
    down(n);
    sink = room[n];
}
/* Saves rbp far below the CFA, and changes it. */
void saves_far(int n);
__asm__(".text\n.type saves_far, @function\nsaves_far:\n.cfi_startproc\nsub $1608, %rsp\n.cfi_adjust_cfa_offset 1608\nmov %rbp, 8(%rsp)\n"
        ".cfi_offset rbp, -1608\nmov $7, %ebp\ncall from_far\nmov 8(%rsp), %rbp\n.cfi_restore rbp\nadd $1608, %rsp\n.cfi_adjust_cfa_offset -1608\n"
        "ret\n.cfi_endproc\n.size saves_far, .-saves_far\n");
void from_far(int n);
void from_far(int n)
{
    down(n);
    sink++;
}
SHAPE far(int n)
{
    volatile char *room = alloca(random_word() % 200 + 1);
    room[0] = 1;
    saves_far(n);
    sink = room[0];
}
static void (*const shapes[SHAPES])(int) = {plain, many, variable, large, far, plain, many, variable, large, far, plain,
    realigned};

static void down(int n)
{
    if (n <= 0 || random_word() % 16 == 0)
        compare();
    for (int i = random_word() % 16 == 0; n > 0 && i >= 0; i--)
        shapes[random_word() % SHAPES](n - 1);
}

/* ------------------------------------------------------------------------------- what disturbs */

static void handler(int s, siginfo_t *info, void *context)
{
    (void)s, (void)info;
    handled++;
    compare();
    compare_from(context);
    if (way_out && random_word() % 8 == 0)
        siglongjmp(*way_out, 1);
}

static void with_plugin(int which)
{
    void *h = dlopen(plugin[which], RTLD_NOW);
    void (*call)(void (*)(void)) = NULL;
    volatile char *room = alloca(which ? 16 : 64); /* so that both have the same rsp */
    room[0] = 1;
    if (h)
        *(void **)&call = dlsym(h, "plugin_calls");
    if (!call)
        abort();
    ehu_refresh();
    call(compare);
    call(compare);
    dlclose(h);
    ehu_refresh();
}

static void *of_large, *of_variable;
static ucontext_t caller, coroutine;
static void in_coroutine(void)
{
    for (;;) {
        compare();
        swapcontext(&coroutine, &caller);
    }
}
/* A coroutine on the thread's own stack. */
static void in_array(void)
{
    char room[65536];
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = room;
    coroutine.uc_stack.ss_size = sizeof room;
    coroutine.uc_link = of_large; /* the word behind its first frame; it never returns */
    makecontext(&coroutine, in_coroutine, 0);
    for (int i = 0; i < 4; i++)
        swapcontext(&caller, &coroutine);
}

/* A function whose return address is null, as some programs begin their stacks. */
static jmp_buf begun;
__attribute__((used)) static void called_by_none(void)
{
    compare();
    longjmp(begun, 1);
}
static void by_none(void)
{
    if (setjmp(begun) == 0)
        __asm__ volatile("and $-16, %%rsp; push $0; jmp called_by_none" ::: "memory");
}

/* At each instruction of a walk, others change all that is remembered. */
static _Thread_local volatile long instructions, turns; /* turns: until a load */
static __attribute__((always_inline)) inline void single_step(bool on)
{
    if (on)
        __asm__ volatile("sub $128, %%rsp; pushf; orq $0x100, (%%rsp); popf; add $128, %%rsp" : : : "memory", "cc");
    else
        __asm__ volatile("sub $128, %%rsp; pushf; andq $~0x100, (%%rsp); popf; add $128, %%rsp" : : : "memory", "cc");
}
static void trap(int s, siginfo_t *info, void *context)
{
    (void)s, (void)info;
    if (turns > 0) {
        if (--turns == 0) {
            with_plugin(instructions++ % 2);
            ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~0x100; /* no more steps: a memset has thousands */
        }
        return;
    }
    compare_from(context);
    down(3);
    if (random_word() % 4 == 0) /* not at each turn of a loop that waits for the table to stay */
        with_plugin(instructions++ % 2);
}
__attribute__((noinline, noclone)) static void stepped(int n)
{
    if (n > 0) {
        stepped(n - 1);
        sink++;
        return;
    }
    void *want[MOST], *got[MOST];
    size_t m = 0, k = 0;
    for (int i = 0; i < 4; i++) {
        instructions = 0;
        if (i == 3)
            single_step(true);
        k = ehu_backtrace(got, MOST);
        if (i == 3)
            single_step(false);
        if (i == 0)
            memcpy(want, got, sizeof want), m = k;
    }
    if (k != m || memcmp(got + 1, want + 1, (k - 1) * sizeof *got) != 0)
        tell("a walk in steps", got, k, want, m);
}

/* A walk that begins along remembered frames and comes off them; others load before its instruction n, if it has one. */
__attribute__((noinline, noclone)) static void loaded(long n)
{
    void *got[MOST];
    turns = n;
    single_step(n > 0);
    size_t k = ehu_backtrace(got, MOST);
    single_step(false);
    turns = 0;
    ehu_cursor_t c;
    ehu_cursor_init(&c);
    walks++;
    as_cursor("a walk in which others load", got, k, &c, MOST);
}
__attribute__((noinline, noclone)) static void same(long n, int deep)
{
    if (deep > 0)
        same(n, deep - 1);
    else
        loaded(n);
    sink++;
}
__attribute__((noinline, noclone)) static void by_turns(long n, int deep, int other)
{
    if (other) {
        __asm__ volatile("nop"); /* which keeps two calls */
        same(n, deep);
    } else {
        same(n, deep);
    }
    sink++;
}
static void loads(void)
{
    for (long n = 30; n < 160; n += 4) {
        int deep = 10 + (int)(n / 4 % 3); /* at one depth, another frame may have the innermost one's place */
        by_turns(0, deep, 0);
        by_turns(0, deep, 1);
        by_turns(n, deep, 1);
    }
}

/* A walk that goes on to the end behind a full array is one. */
__attribute__((noinline, noclone)) static void from_here(void)
{
    ucontext_t context;
    eh_elf_regs_t r;
    getcontext(&context);
    ehu_regs_of_(&r, &context);
    r.exact = 0;
    for (int i = 0; i < 600; i++) { /* the first ones may go without memory */
        void *all[MOST];
        if (i % 3 == 0) /* the frames behind the array are remembered, too */
            ehu_backtrace_end_(all, MOST, &r, NULL);
        ehu_stats_t then, now;
        uint64_t pcs[8], stopped;
        enum ehu_worth worth;
        ehu_stats(&then);
        size_t k = ehu_try_(&r, pcs, 8, true, &worth, &stopped);
        ehu_stats(&now);
        if (k <= 12 || worth != EHU_WHOLE || now.walks - then.walks != 1)
            tell("beyond the array", (void **)(void *)pcs, 2, (void **)(void *)pcs, 2);
    }
}
__attribute__((noinline, noclone)) static void beyond(int n)
{
    if (n > 0)
        beyond(n - 1);
    else
        from_here();
    sink++;
}

/* Frames whose words lie elsewhere: frames is what the walk must find. */
static void astray(const char *what, size_t frames, void *pc, uint64_t rsp, uint64_t rbp)
{
    for (int i = 0; i < 2; i++) {
        void *got[8];
        struct ehu_end end;
        eh_elf_regs_t r = {.valid = FRAME_MASK};
        r.reg[EH_ELF_RIP] = (uint64_t)(uintptr_t)pc;
        r.reg[EH_ELF_RSP] = rsp;
        r.reg[EH_ELF_RBP] = rbp;
        size_t n = ehu_backtrace_end_(got, 8, &r, &end);
        if (n != frames)
            tell(what, got, n, got, frames);
    }
}

__attribute__((noinline, noclone)) static void note(void **to)
{
    void *pcs[2];
    ehu_backtrace(pcs, 2);
    *to = pcs[1];
}
__attribute__((noinline, noclone)) static void big(void)
{
    volatile char room[9000];
    room[0] = 1;
    note(&of_large);
    sink = room[0];
}
__attribute__((noinline, noclone)) static void by_rbp(int n)
{
    volatile char *room = alloca((size_t)n);
    room[0] = 1;
    note(&of_variable);
    sink = room[0];
}

/* accessible maps pages that can be read, between others that cannot. */
static char *accessible(size_t size)
{
    char *pages = mmap(NULL, size + 5 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + PAGE, size, PROT_READ | PROT_WRITE) != 0)
        abort();
    return pages + PAGE;
}

/* Return addresses with rows of all kinds, in code that is never executed. */
#define ROW(n, cfi) cfi "\nnop\nrow_" #n ": nop\n"
extern char row_0[], row_1[], row_2[], row_3[], row_4[], row_5[], row_6[], row_7[], row_8[];
static char *const rows[] = {row_0, row_1, row_2, row_3, row_4, row_4, row_4, row_5, row_6, row_7, row_8};
__asm__(".text\n.type all_rows, @function\nall_rows:\n.cfi_startproc\n"
    ROW(0, ".cfi_def_cfa_offset 16")
    ROW(1, ".cfi_offset rbp, -16")
    ROW(2, ".cfi_def_cfa_offset 32")
    ROW(3, ".cfi_offset rbp, -32")
    ROW(4, ".cfi_def_cfa rbp, 16\n.cfi_offset rbp, -16")
    ROW(5, ".cfi_def_cfa rbp, 32\n.cfi_same_value rbp")
    ROW(6, ".cfi_def_cfa rsp, 16\n.cfi_undefined rip")
    ROW(7, ".cfi_restore rip\n.cfi_escape 0xf, 3, 0x77, 16, 6") /* the CFA is in a word */
    ROW(8, ".cfi_def_cfa rsp, 48\n.cfi_offset rbp, -16")
    ".cfi_endproc\n.size all_rows, .-all_rows\n");

/* Stacks of which words change between walks: pairs of rbp, or anything, and a return address. */
enum { WORDS = 200, OUTERMOST = 8 };
static uint64_t pair_word(const uint64_t *words, size_t i)
{
    uint64_t r = random_word() >> 8;
    if (i % 2 == 1)
        return (uint64_t)(uintptr_t)rows[r % (random_word() % 16 ? OUTERMOST : sizeof rows / sizeof *rows)];
    if (r % 16 == 0)
        return r >> 8;
    return (uint64_t)(uintptr_t)&words[(i + 2 + 2 * (r % 3)) % WORDS];
}

__attribute__((noinline)) static void made_up(int walks_left)
{
    uint64_t words[WORDS + 16] = {0}, seen[MOST];
    eh_elf_regs_t r = {.valid = FRAME_MASK};
    size_t frames = 0;
    for (; walks_left > 0; walks_left--) {
        uint64_t what = random_word() >> 8, i = (what >> 8) % WORDS;
        if (frames == 0 || what % 64 == 0) {
            for (i = 0; i < WORDS; i++)
                words[i] = pair_word(words, i);
            i = 2 * (what >> 8) % 20;
            r.reg[EH_ELF_RIP] = (uint64_t)(uintptr_t)rows[(what >> 16) % OUTERMOST];
            r.reg[EH_ELF_RSP] = (uint64_t)(uintptr_t)&words[i];
            r.reg[EH_ELF_RBP] = (uint64_t)(uintptr_t)&words[i + 2];
        } else if (what % 8 == 0) {
            words[i] = pair_word(words, i);
        } else if (what % 16 == 1) {
            r.reg[EH_ELF_RBP] = pair_word(words, i & ~(size_t)1);
        } else if (what % 16 == 2) {
            r.reg[EH_ELF_RIP] = seen[i % frames];
        } else if (what % 16 == 3) {
            r.reg[EH_ELF_RSP] += 16 * (i % 3) - 16;
        } else if (what % 16 == 4) { /* where rbp may have been saved */
            r.reg[EH_ELF_RIP] = words[i & ~(size_t)1];
            r.reg[EH_ELF_RSP] = (uint64_t)(uintptr_t)&words[i | 1];
        }
        void *got[MOST], *want[MOST];
        ehu_cursor_t c;
        size_t max = what >> 16 & 3 ? MOST : (what >> 20) % 24 + 1, n = ehu_backtrace_end_(got, max, &r, NULL);
        c.walk.regs = r;
        ehu_cursor_start_(&c);
        c.next = UINT16_MAX; /* by single steps */
        want[0] = got[0];
        size_t m = by_cursor(&c, want, max);
        if (ehu_status(&c) == EHU_NOT_RISING) /* no real stack: others notice it later */
            m = 1;
        else if (n != m || memcmp(got, want, n * sizeof *got) != 0)
            tell("a walk that is made up", got, n, want, m);
        memcpy(seen, want, (frames = m) * sizeof *want);
        walks++;
    }
}

static void *strays(void *arg)
{
    state = 1;
    uint64_t words[528] = {0}, other = (uint64_t)(uintptr_t)accessible(PAGE);
    big();
    by_rbp(100);
    words[9] = (uint64_t)(uintptr_t)of_large;
    astray("behind the stack", 1, of_large, ehu_own_stack_.hi - 64, 0);
    astray("downwards", 1, of_variable, (uint64_t)(uintptr_t)&words[40], (uint64_t)(uintptr_t)&words[8]);
    astray("at the start of memory", 1, of_variable, (uint64_t)(uintptr_t)&words[40], (uint64_t)-8);
    words[45] = (uint64_t)(uintptr_t)of_large;
    words[51] = (uint64_t)(uintptr_t)of_variable;
    for (int i = 44; i <= 50; i += 6) { /* a frame whose caller was not found before: by rbp alone */
        void *got[3], *want[2] = {of_variable, (void *)(uintptr_t)words[i + 1]};
        eh_elf_regs_t r = {.valid = FRAME_MASK};
        r.reg[EH_ELF_RIP] = (uint64_t)(uintptr_t)of_variable;
        r.reg[EH_ELF_RSP] = (uint64_t)(uintptr_t)&words[40];
        r.reg[EH_ELF_RBP] = (uint64_t)(uintptr_t)&words[i];
        size_t n = ehu_backtrace_end_(got, 3, &r, NULL);
        if (n != 2 || got[1] != want[1])
            tell("by rbp", got, n, want, 2);
    }
    words[12] = (uint64_t)(uintptr_t)&words[20];
    words[13] = (uint64_t)(uintptr_t)of_variable;
    words[21] = (uint64_t)(uintptr_t)of_large;
    for (int i = 0; i < 3; i++) { /* the outer frame; the inner one, which leads to it; and to another */
        void *got[4];
        eh_elf_regs_t r = {.valid = FRAME_MASK};
        r.reg[EH_ELF_RIP] = (uint64_t)(uintptr_t)of_variable;
        r.reg[EH_ELF_RSP] = (uint64_t)(uintptr_t)&words[i ? 10 : 14];
        r.reg[EH_ELF_RBP] = (uint64_t)(uintptr_t)&words[i ? 12 : 20];
        if (i == 2)
            words[13] = (uint64_t)(uintptr_t)of_large;
        void *want[3] = {of_variable, (void *)(uintptr_t)words[i ? 13 : 21], of_large};
        size_t n = ehu_backtrace_end_(got, 4, &r, NULL), m = i == 1 ? 3 : 2;
        if (n != m || memcmp(got, want, n * sizeof *got) != 0)
            tell("by a link", got, n, want, m);
    }
    astray("on another stack", 1, of_large, other + 1024, 0);
    /* rbp was saved below the stack's first byte */
    uint64_t first = (uint64_t)(uintptr_t)arg, known = ehu_own_stack_.lo;
    *(void **)arg = of_large;
    ehu_own_stack_.lo = first;
    astray("below the stack", 2, of_variable, first, first - 8);
    ehu_own_stack_.lo = known;
    made_up(50000);
    /* The same pc, and rsp from the end of the stack, with the same rbp: the caller is not the one of before. Some of
     * these distances and frames have one place for both. */
    uint64_t end = ehu_own_stack_.hi;
    enum { FRAMES = 20, DISTANCES = 6, RBP = 14 };
    for (uint64_t i = 0; i < 3 * FRAMES * DISTANCES * 2; i++) {
        void *got[3];
        eh_elf_regs_t r = {.valid = FRAME_MASK};
        bool again = i % 3 == 2;
        uint64_t *frame = &words[24 * (i / 3 % FRAMES)], far = 2 * (1 + i / (3 * FRAMES) % DISTANCES);
        r.reg[EH_ELF_RIP] = (uint64_t)(uintptr_t)of_variable;
        r.reg[EH_ELF_RSP] = (uint64_t)(uintptr_t)(frame + (again ? far : 0));
        r.reg[EH_ELF_RBP] = (uint64_t)(uintptr_t)(frame + RBP);
        frame[RBP] = 0;
        frame[RBP + 1] = (uint64_t)(uintptr_t)(again ? of_large : of_variable);
        frame[RBP + 3] = (uint64_t)(uintptr_t)of_variable;
        ehu_own_stack_.hi = again ? end : end - 8 * far;
        size_t n = ehu_backtrace_end_(got, 3, &r, NULL);
        if (n != 2 || got[1] != (void *)(uintptr_t)frame[RBP + 1])
            tell("with another end", got, n, (void *[]){of_variable, (void *)(uintptr_t)frame[RBP + 1]}, 2);
    }
    ehu_own_stack_.hi = end;
    return NULL;
}

/* ------------------------------------------------------------------------------- threads */

static void *worker(void *seed)
{
    state = (uint64_t)(uintptr_t)seed * 0x9e3779b97f4a7c15 + 1;
    struct sigevent e = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGNAL};
    e._sigev_un._tid = (int)syscall(SYS_gettid);
    timer_t timer;
    struct itimerspec every = {{0, 200000}, {0, 200000}};
    if (timer_create(CLOCK_MONOTONIC, &e, &timer) != 0 || timer_settime(timer, 0, &every, NULL) != 0)
        abort();
    while (!over) {
        sigjmp_buf here;
        way_out = random_word() % 64 == 0 ? &here : NULL;
        if (sigsetjmp(here, 1) == 0)
            for (int i = 0; i < 4; i++)
                down((int)(random_word() % 40));
        way_out = NULL;
    }
    timer_delete(timer);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 5 || ehu_init() != 0)
        return 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    plugin[0] = argv[3];
    plugin[1] = argv[4];
    state = strtoull(argv[2], NULL, 10) + 1;
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGNAL, &action, NULL);
    action.sa_sigaction = trap;
    sigaction(SIGTRAP, &action, NULL);
    pthread_t t[THREADS];
    pthread_attr_t a;
    enum { SIZE = 1 << 18 };
    pthread_attr_init(&a);
    char *stack = accessible(SIZE);
    pthread_attr_setstack(&a, stack, SIZE);
    if (pthread_create(&t[0], &a, strays, stack) != 0 || pthread_join(t[0], NULL) != 0)
        return 2;
    for (int i = 0; i < 4; i++) /* while nothing is remembered */
        by_none();
    for (int i = 0; i < 40; i++) {
        for (int j = 0; j < 50; j++)
            down(30);
        in_array();
        for (int j = 0; j < 2; j++) /* at the same place of the stack */
            with_plugin(j);
    }
    beyond(12);
    loads();
    stepped(12);
    unsigned long before = ehu_recalled_walks_();
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&t[i], NULL, worker, (void *)(uintptr_t)(state + (uint64_t)i)) != 0)
            return 2;
    for (time_t end = time(NULL) + atoi(argv[1]); time(NULL) < end;) {
        down((int)(random_word() % 40));
        with_plugin(random_word() % 2);
        pid_t child = fork();
        if (child == 0) {
            down(20);
            _exit(wrong != 0);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            wrong++;
        usleep(1000);
    }
    over = true;
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    printf("%lu walks, %lu in handlers, %lu and %lu recalled, %lu wrong\n", walks, handled, before,
        ehu_recalled_walks_() - before, wrong);
    return wrong != 0;
}
