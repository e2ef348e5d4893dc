/* Signal frames that lead to themselves, or to each other: circle PERIOD. */
#include <execinfo.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unwind.h>

enum { ROOM = 2000000, MOST = 100000 };

static long called;
static _Unwind_Reason_Code call(struct _Unwind_Context *context, void *arg)
{
    (void)context;
    (void)arg;
    return ++called > MOST ? _URC_END_OF_STACK : _URC_NO_REASON;
}

static int period;
static ucontext_t others[8];

static void handler(int sig, siginfo_t *info, void *arg)
{
    static void *pcs[ROOM];
    ucontext_t *context = arg, was = *context;
    greg_t restorer = (greg_t)((uintptr_t *)arg)[-1];
    (void)sig;
    (void)info;
    /* what the signal frame returns to is a signal frame: the next of the circle */
    ucontext_t *at = context;
    for (int i = 0; i < period; i++) {
        ucontext_t *next = i == period - 1 ? context : &others[i];
        at->uc_mcontext.gregs[REG_RIP] = restorer;
        at->uc_mcontext.gregs[REG_RSP] = (greg_t)(uintptr_t)next;
        at = next;
    }
    int frames = backtrace(pcs, ROOM);
    called = 0;
    _Unwind_Backtrace(call, NULL);
    printf("%s %s\n", frames < MOST ? "bounded" : "unbounded",
        called > MOST ? "callbacks as many as wanted" : "few callbacks");
    *context = was;
}

int main(int argc, char **argv)
{
    void *pcs[2];
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    period = argc > 1 ? atoi(argv[1]) : 1;
    setvbuf(stdout, NULL, _IONBF, 0);
    backtrace(pcs, 2);
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    puts("end");
    return 0;
}
