/* A context whose rsp lies far below the stack in use, where nothing may be mapped. */
#include <stdint.h>
#include <stdio.h>

#include "ehunwind.h"

static ucontext_t context;

/* leaf has a row on rsp, unlike main, which may align it. */
__attribute__((noinline)) static int leaf(void)
{
    void *pcs[8];
    ehu_stats_t s;
    size_t here = ehu_backtrace(pcs, 8);
    context.uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)pcs[0];
    context.uc_mcontext.gregs[REG_RSP] = (greg_t)(uintptr_t)pcs - (1 << 20);
    size_t below = ehu_backtrace_from(&context, pcs, 8);
    ehu_stats(&s);
    printf("here=%d below=%d other stacks=%d\n", (int)here, (int)below, (int)s.other_stacks);
    return 0;
}

int main(void) { return ehu_init() != 0 ? 2 : leaf(); }
