/* Walks for half a second of CPU time, 20 calls down. */
#include <time.h>

#include "ehunwind.h"

static void *pcs[256];
static volatile int sink;

static __attribute__((noinline, noclone)) void walks(int depth)
{
    if (depth > 0)
        walks(depth - 1);
    for (int i = 0; depth == 0 && clock() < CLOCKS_PER_SEC / 2; i++)
        for (int j = 0; j < 1000; j++)
            ehu_backtrace(pcs, 256);
    sink++;
}

int main(void)
{
    ehu_init();
    walks(20);
    return 0;
}
