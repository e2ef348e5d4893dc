/* Stacks of all sorts, each taken by libehunwind and by libunwind: stacks SCENARIO. */
#define UNW_LOCAL_ONLY
#include <alloca.h>
#include <dlfcn.h>
#include <libunwind.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "stacks.h"

volatile long sink;
void (*bottom)(void);

/* ------------------------------------------------------------------------------ chains */

NOINLINE static long with_saved(int depth, long a, long b, long c)
{
    long x = a * 3, y = b ^ 5, z = c + a, w = a - b;
    chain(depth - 1);
    return x + y + z + w + sink;
}

NOINLINE static void with_alloca(int depth)
{
    char *p = alloca((size_t)(depth % 7 + 1) * 40);
    memset(p, depth, (size_t)(depth % 7 + 1) * 40);
    chain(depth - 1);
    sink += p[3];
}

NOINLINE static void variadic(int depth, ...)
{
    va_list args;
    va_start(args, depth);
    chain(depth - 1);
    sink += va_arg(args, long) + (long)va_arg(args, double);
    va_end(args);
}

NOINLINE static void aligned(int depth)
{
    _Alignas(64) char buffer[128];
    memset(buffer, depth, sizeof buffer);
    chain(depth - 1);
    sink += buffer[depth % 128];
}

NOINLINE static void large(int depth)
{
    char buffer[9000];
    memset(buffer, depth, sizeof buffer);
    chain(depth - 1);
    sink += buffer[depth % 9000];
}

NOINLINE void chain(int depth)
{
    if (depth <= 0) {
        bottom();
    } else {
        switch (depth % 5) {
        case 0: with_saved(depth, depth, sink, 7); break;
        case 1: with_alloca(depth); break;
        case 2: variadic(depth, 3L, 4.0); break;
        case 3: aligned(depth); break;
        default: large(depth); break;
        }
    }
    sink++;
}

static void chains(void)
{
    bottom = check_here;
    for (int depth = 0; depth < 60; depth++)
        chain(depth);
    chain(900 / 2);
}

static int chain_depth;
static int compare_longs(const void *a, const void *b)
{
    static int calls;
    if (calls++ % 16 == 0)
        chain(chain_depth);
    long x = *(const long *)a, y = *(const long *)b;
    return x < y ? -1 : x > y;
}

static void callbacks(void)
{
    long numbers[200];
    bottom = check_here;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 200; i++)
            numbers[i] = i * 7919 % 211;
        chain_depth = round;
        qsort(numbers, 200, sizeof *numbers, compare_longs);
        long key = 5;
        sink += bsearch(&key, numbers, 200, sizeof *numbers, compare_longs) != NULL;
    }
}

/* ----------------------------------------------------------------------------- signals */

static volatile int nested;
static bool forbid_probes;

/* without_probes takes the stack of the handler and the one that it interrupted, in what is known of the memory. */
static void without_probes(const ucontext_t *context)
{
    void *pcs[MAX_FRAMES];
    ehu_stats_t before, after;
    ehu_stats(&before);
    sink += (long)ehu_backtrace_from(context, pcs, MAX_FRAMES);
    sink += (long)ehu_backtrace(pcs, MAX_FRAMES);
    ehu_stats(&after);
    check(after.probes == before.probes, "%lu system calls", (unsigned long)(after.probes - before.probes));
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
    (void)info;
    check_context(context);
    check_here();
    if (forbid_probes)
        without_probes(context);
    if (nested > 0) {
        nested--;
        raise(sig);
    }
    uint8_t *pc = (uint8_t *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    if (sig == SIGILL && pc[0] == 0x0f && pc[1] == 0x0b)
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2; /* over the ud2 */
}

static void raise_it(void) { raise(SIGUSR1); }
static void fault(void) { __asm__ volatile("ud2"); }

static void handle(int flags)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = on_signal;
    sa.sa_flags = SA_SIGINFO | SA_NODEFER | flags;
    sigaction(SIGUSR1, &sa, NULL);
    sigaction(SIGILL, &sa, NULL);
}

static void all_signals(int flags)
{
    static void (*const ways[])(void) = {raise_it, fault};
    handle(flags);
    for (int i = 0; i < 20; i++) {
        bottom = ways[i % 2];
        nested = flags & SA_ONSTACK && i % 2 ? 0 : i % 3;
        chain(i);
    }
}

static void signals(void)
{
    all_signals(0);
    size_t size = 1 << 18;
    char *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t alt = {.ss_sp = mapped, .ss_size = size};
    sigaltstack(&alt, NULL);
    all_signals(SA_ONSTACK);
    static char inside[1 << 18]; /* an alternate stack in .bss */
    alt.ss_sp = inside;
    sigaltstack(&alt, NULL);
    all_signals(SA_ONSTACK);
    alt.ss_flags = SS_DISABLE;
    sigaltstack(&alt, NULL);
    munmap(mapped, size);
}

/*
 * A function with its CFA in rax across a call, as cipher assembly has it: the
 * psABI lets the callee change rax, and no table says that this one does not.
 */
void cfa_in_rax(void);
__asm__(".text\n"
        ".type cfa_in_rax, @function\n"
        "cfa_in_rax:\n"
        ".cfi_startproc\n"
        "mov %rsp, %rax\n"
        ".cfi_def_cfa_register %rax\n"
        "push %rbx\n"
        ".cfi_offset %rbx, -16\n"
        "sub $100, %rsp\n"
        "and $-64, %rsp\n"
        "call 1f\n"
        "mov -8(%rax), %rbx\n"
        ".cfi_restore %rbx\n"
        "mov %rax, %rsp\n"
        ".cfi_def_cfa_register %rsp\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size cfa_in_rax, .-cfa_in_rax\n"
        "1:\n"
        ".cfi_startproc\n"
        "ud2\n"
        "ret\n"
        ".cfi_endproc\n");

/* A function with its return address in a register, as vfork has it: its CFA is its rsp. */
void return_in_rdi(void);
__asm__(".text\n"
        ".type return_in_rdi, @function\n"
        "return_in_rdi:\n"
        ".cfi_startproc\n"
        "pop %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        ".cfi_register %rip, %rdi\n"
        "ud2\n"
        "push %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        ".cfi_rel_offset %rip, 0\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size return_in_rdi, .-return_in_rdi\n");

/* A leaf with its caller's registers below its rsp, down to the end of the red zone. */
void in_red_zone(void);
__asm__(".text\n"
        ".type in_red_zone, @function\n"
        "in_red_zone:\n"
        ".cfi_startproc\n"
        "mov %rbx, -8(%rsp)\n"
        ".cfi_offset %rbx, -16\n"
        "mov %r12, -128(%rsp)\n"
        ".cfi_offset %r12, -136\n"
        "mov $1, %ebx\n"
        "mov $2, %r12d\n"
        "ud2\n"
        "mov -8(%rsp), %rbx\n"
        ".cfi_restore %rbx\n"
        "mov -128(%rsp), %r12\n"
        ".cfi_restore %r12\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size in_red_zone, .-in_red_zone\n");

static void assembly(void)
{
    handle(0);
    bottom = return_in_rdi;
    for (int i = 0; i < 5; i++)
        chain(i);
    bottom = in_red_zone;
    chain(9); /* the stack is known so far down */
    forbid_probes = true;
    for (int i = 0; i < 5; i++)
        chain(i);
    forbid_probes = false;
    static char space[1 << 16]; /* the same from a stack of the handler's own */
    stack_t alt = {.ss_sp = space, .ss_size = sizeof space};
    sigaltstack(&alt, NULL);
    handle(SA_ONSTACK);
    for (int i = 0; i < 5; i++)
        chain(i);
    alt.ss_flags = SS_DISABLE;
    sigaltstack(&alt, NULL);
    handle(0);
    expect_guesses = true;
    bottom = cfa_in_rax;
    for (int i = 0; i < 5; i++)
        chain(i);
    check(num_guessed > 0, "nothing was guessed");
}

/* ----------------------------------------------------------------------------- threads */

static pthread_barrier_t together;

static void *thread(void *arg)
{
    long i = (long)arg;
    pthread_barrier_wait(&together);
    if (i % 2)
        ehu_thread_init();
    for (int k = 0; k < 10; k++) { /* the first walk of half of the threads is one in a handler */
        raise(SIGUSR1);
        check_here();
        fault();
    }
    return NULL;
}

static void threads(void)
{
    enum { N = 8 };
    pthread_t t[N];
    handle(0);
    pthread_barrier_init(&together, NULL, N);
    for (long i = 0; i < N; i++) {
        pthread_attr_t attr;
        pthread_attr_init(&attr);
        if (i >= N / 2)
            pthread_attr_setstacksize(&attr, 64 << 10);
        if (pthread_create(&t[i], &attr, thread, (void *)i) != 0)
            abort();
        pthread_attr_destroy(&attr);
    }
    for (int i = 0; i < N; i++)
        pthread_join(t[i], NULL);
}

/* deep_thread has its known stack grow under it: each walk begins deeper than all before. */
static void *deep_thread(void *arg)
{
    (void)arg;
    ehu_stats_t before, after;
    void *pcs[MAX_FRAMES];
    bottom = check_here;
    for (int depth = 0; depth < 100; depth += 5)
        chain(depth);
    ehu_stats(&before);
    for (int i = 0; i < 100; i++)
        sink += (long)ehu_backtrace(pcs, MAX_FRAMES);
    ehu_stats(&after);
    check(after.probes == before.probes, "%lu system calls in walks of a known stack",
          (unsigned long)(after.probes - before.probes));
    check(after.walks - before.walks == 100, "%lu walks counted", (unsigned long)(after.walks - before.walks));
    return NULL;
}

static void deep(void)
{
    pthread_t t;
    deep_thread(NULL);
    if (pthread_create(&t, NULL, deep_thread, NULL) != 0)
        abort();
    pthread_join(t, NULL);
}

/* -------------------------------------------------------------------------- coroutines */

static ucontext_t scheduler, coroutine[2];

static void body(int self)
{
    for (int i = 0; i < 5; i++) {
        bottom = check_here;
        chain(i);
        bottom = i % 2 ? raise_it : fault;
        chain(i);
        swapcontext(&coroutine[self], &scheduler);
    }
}

/* One that begins in libc. libunwind leaves its outermost frame by what qsort has in rbp. */
static void coroutine_of_libc(void)
{
    enum { N = 20 };
    static char stack[1 << 16];
    static long numbers[N];
    for (int i = 0; i < N; i++)
        numbers[i] = i * 7 % N;
    bottom = check_here;
    chain_depth = 0;
    getcontext(&coroutine[0]);
    coroutine[0].uc_stack.ss_sp = stack;
    coroutine[0].uc_stack.ss_size = sizeof stack;
    coroutine[0].uc_link = &scheduler;
    makecontext(&coroutine[0], (void (*)(void))qsort, 4, numbers, (size_t)N, sizeof *numbers, compare_longs);
    theirs_may_go_on = true;
    swapcontext(&scheduler, &coroutine[0]);
    theirs_may_go_on = false;
    check(numbers[0] == 0 && numbers[N - 1] == N - 1, "qsort in a context");
}

static void coroutines(void)
{
    enum { SIZE = 1 << 18 };
    handle(0);
    char *stack[2] = {malloc(SIZE), mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};
    for (int i = 0; i < 2; i++) {
        getcontext(&coroutine[i]);
        coroutine[i].uc_stack.ss_sp = stack[i];
        coroutine[i].uc_stack.ss_size = SIZE;
        coroutine[i].uc_link = &scheduler;
        makecontext(&coroutine[i], (void (*)(void))body, 1, i);
    }
    for (int round = 0; round < 6; round++)
        for (int i = 0; i < 2; i++)
            swapcontext(&scheduler, &coroutine[i]);
    munmap(stack[1], SIZE);
    free(stack[0]);
    coroutine_of_libc();
    bottom = check_here;
    chain(5);
}

static void *coroutine_thread(void *arg)
{
    (void)arg;
    coroutines();
    return NULL;
}

static void coroutines_everywhere(void)
{
    pthread_t t;
    coroutines();
    if (pthread_create(&t, NULL, coroutine_thread, NULL) != 0)
        abort();
    pthread_join(t, NULL);
}

/* ---------------------------------------------------------------------- dlopen, dlclose */

static int eh_elf_mappings(void)
{
    char line[1024];
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        n += strstr(line, EH_ELF_SUFFIX) != NULL;
    if (maps)
        fclose(maps);
    return n;
}

static void loading(void)
{
    const char *path = getenv("PLUGIN");
    int mappings = eh_elf_mappings();
    ehu_stats_t stats;
    bottom = check_here;
    for (int i = 0; i < 20; i++) {
        void *handle = dlopen(path, RTLD_NOW);
        if (!handle) {
            check(false, "%s", dlerror());
            return;
        }
        check(ehu_refresh() == 1, "an object came");
        check(ehu_refresh() == 0, "nothing changed");
        void (*plugin)(void (*)(int), int);
        *(void **)&plugin = dlsym(handle, "plugin");
        plugin(chain, 3);
        ehu_stats(&stats);
        check(stats.objects == stats.eh_elfs, "%ld of %ld objects have an eh_elf", (long)stats.eh_elfs,
            (long)stats.objects);
        dlclose(handle);
        check(ehu_refresh() == 1, "an object went");
        int now = eh_elf_mappings();
        if (i == 0 && now == mappings + 2)
            mappings = now; /* libehunwind-preload is there, too: it gives them back when it next takes a stack */
        check(now == mappings, "%d mappings of eh_elfs, %d before", now, mappings);
        chain(3);
    }
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } scenarios[] = {
        {"chains", chains}, {"callbacks", callbacks}, {"signals", signals}, {"threads", threads}, {"deep", deep},
        {"assembly", assembly}, {"overflow", overflow}, {"forks", forks},
        {"coroutines", coroutines_everywhere}, {"loading", loading},
    };
    unw_set_caching_policy(unw_local_addr_space, UNW_CACHE_NONE); /* its cache mixes up a pc and a return address */
    expect_guesses = getenv("GUESSES") != NULL;
    if (expect_guesses)
        expected_end = EH_ELF_NO_INFO; /* at _start, which has no frame pointer */
    if (getenv("NO_READV"))
        forbid_readv();
    if (ehu_init() != 0)
        return 2;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (argc > 1 && strcmp(argv[1], scenarios[i].name) == 0) {
            scenarios[i].run();
            return summary(argv[1]);
        }
    return 2;
}
