/*
 * Stacks in all sorts of places, compared. EH_ELFS in the environment is the
 * folder of the eh_elfs; the arguments say what to do.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "original.h"
#include "stacks.h"
#include "stepped.h"

static char *folder(void)
{
    char *dir = getenv("EH_ELFS");
    if (!dir)
        abort();
    return dir;
}

__attribute__((noinline)) static void here(void)
{
    CHECK_HERE(true);
}

/* Called by the library's constructor, when ld.so has just started the process. */
void early_hook(void)
{
    add_main_stack();
    scenario("constructor-of-library");
    load_eh_elfs(folder());
    /* The frame that called _dl_init is _dl_start_user, for which glibc has no
     * unwind table; libunwind and libgcc end there, too. */
    expected_end = EH_ELF_NO_INFO;
    here();
    expected_end = EH_ELF_OUTERMOST;
}

static void __attribute__((constructor)) begin(void)
{
    scenario("constructor");
    here();
}

static void at_end(void)
{
    scenario("atexit");
    here();
    _Exit(summary());
}

static void *thread(void *arg)
{
    pthread_attr_t attr;
    void *low;
    size_t size;
    (void)arg;
    pthread_getattr_np(pthread_self(), &attr);
    pthread_attr_getstack(&attr, &low, &size);
    pthread_attr_destroy(&attr);
    add_stack(low, size);
    here();
    chain(25);
    return NULL;
}

static void calls(void)
{
    scenario("chain");
    at_bottom = here;
    for (int depth = 0; depth <= 100; depth++)
        chain(depth);

    scenario("noreturn");
    for (int depth = 1; depth < 10; depth++)
        jumps(depth);

    scenario("thread");
    pthread_t t;
    if (pthread_create(&t, NULL, thread, NULL) != 0)
        abort();
    pthread_join(t, NULL);

    scenario("dlopen");
    lib_hook = here;
    lib_lazy(1); /* called from a library bound early or late */
    lib_hook = NULL;
}

/* A handler takes its own stack, through __restore_rt, and the stack of the frame that
 * was interrupted. */
static void on_signal(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)info;
    eh_elf_regs_t regs;
    regs_of_context(context, &regs);
    if (check_stack(&regs, NULL, true))
        here();
}

static void handle(int sig, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = handler;
    sa.sa_flags = SA_SIGINFO | flags;
    sigfillset(&sa.sa_mask);
    sigaction(sig, &sa, NULL);
}

static void raise_it(void) { raise(SIGUSR1); }
static void trap(void) { __asm__ volatile("int3"); }
static void fault(void) { __asm__ volatile("xor %%eax, %%eax; movb (%%rax), %%al" : : : "rax", "memory"); }

/* Goes on after the instruction that faulted. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
    on_signal(sig, info, context);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

static void signals(void)
{
    static const struct { const char *name; int flags; } kinds[] = {{"signal", 0}, {"signal-altstack", SA_ONSTACK}};
    static void (*const ways[])(void) = {raise_it, trap, fault};
    for (int k = 0; k < 2; k++) {
        scenario(kinds[k].name);
        handle(SIGUSR1, on_signal, kinds[k].flags);
        handle(SIGTRAP, on_signal, kinds[k].flags);
        handle(SIGSEGV, on_fault, kinds[k].flags);
        for (int way = 0; way < 3; way++) {
            at_bottom = ways[way];
            for (int depth = 0; depth <= 60; depth++)
                chain(depth);
        }
    }
}

static long samples;

/* arm asks for one signal; the handler for the next, lest nothing but it runs. */
static void arm(void)
{
    struct itimerval once = {{0, 0}, {0, 40 + (samples * 7) % 60}};
    setitimer(ITIMER_REAL, &once, NULL);
}

static void on_timer(int sig, siginfo_t *info, void *context)
{
    on_signal(sig, info, context);
    if (++samples < 3000)
        arm();
}

static void nothing(void) {}

static void sampled(void)
{
    scenario("timer");
    handle(SIGALRM, on_timer, SA_ONSTACK);
    at_bottom = nothing;
    arm();
    while (*(volatile long *)&samples < 3000) {
        chain(70);
        busywork();
    }
    count("samples", samples);
}

int main(int argc, char **argv)
{
    static _Alignas(64) char alt[1 << 20];
    stack_t ss = {.ss_sp = alt, .ss_size = sizeof alt};
    sigaltstack(&ss, NULL);
    add_stack(alt, sizeof alt);
    atexit(at_end);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "calls") == 0)
            calls();
        else if (strcmp(argv[i], "signals") == 0)
            signals();
        else if (strcmp(argv[i], "sampled") == 0)
            sampled();
        else if (strcmp(argv[i], "stepped") == 0)
            stepped();
        else if (strcmp(argv[i], "traced") == 0)
            traced();
        else if (strcmp(argv[i], "walk") == 0)
            walk_only();
        else if (strcmp(argv[i], "original") == 0)
            original(false);
        else if (strcmp(argv[i], "original-no-deref") == 0)
            original(true);
        else
            abort();
    }
    return 0;
}
