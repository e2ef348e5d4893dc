/* Walks by eh_elfs for half a second of CPU time, 20 calls down: from a context, since rows of callers are remembered. */
#include <time.h>

#include "ehunwind.h"

static void *pcs[256];
static volatile int sink;

static __attribute__((noinline, noclone)) void walks(int depth)
{
    if (depth > 0)
        walks(depth - 1);
    static ucontext_t here; /* frames stay small */
    if (depth == 0)
        getcontext(&here);
    for (int i = 0; depth == 0 && clock() < CLOCKS_PER_SEC / 2; i++)
        for (int j = 0; j < 1000; j++)
            ehu_backtrace_from(&here, pcs, 256);
    sink++;
}

int main(void)
{
    ehu_init();
    walks(20);
    return 0;
}
