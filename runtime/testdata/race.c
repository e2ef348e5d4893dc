/* Threads walk without pause while objects and regions of code come and go. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "ehunwind.h"
#include "jit.h"

static _Atomic int stop;
static _Atomic long walks, odd, through;

/* A region that is code at times, and a stack with a frame that returns to it. */
enum { SIZE = 8192 };
static char *region;
static uint64_t fake[512];

static void walk_fake(void)
{
    void *pcs[8];
    ucontext_t context = {.uc_flags = 0};
    context.uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)region + 8;
    context.uc_mcontext.gregs[REG_RSP] = (greg_t)(uintptr_t)(fake + 100);
    context.uc_mcontext.gregs[REG_RBP] = (greg_t)(uintptr_t)(fake + 110);
    size_t n = ehu_backtrace_from(&context, pcs, 8);
    odd += n != 1 && n != 2;
    through += n == 2;
}

static void *walker(void *arg)
{
    (void)arg;
    void *pcs[64];
    size_t first = 0;
    while (!atomic_load(&stop)) {
        size_t n = ehu_backtrace(pcs, 64);
        if (first == 0)
            first = n;
        odd += n != first;
        walk_fake();
        walks++;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t t[3];
    int rounds = argc > 1 ? atoi(argv[1]) : 50;
    ehu_stats_t s;
    region = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fake[111] = (uint64_t)(uintptr_t)region + 100;
    if (region == MAP_FAILED || ehu_init() != 0)
        return 2;
    forbid_query();
    for (int i = 0; i < 3; i++)
        if (pthread_create(&t[i], NULL, walker, NULL) != 0)
            return 2;
    for (int i = 0; i < rounds; i++) {
        void *handle = dlopen(getenv("PLUGIN"), RTLD_NOW);
        if (!handle || ehu_refresh() != 1)
            return 2;
        dlclose(handle);
        mprotect(region, SIZE, i % 2 ? PROT_NONE : PROT_READ | PROT_EXEC);
        if (ehu_refresh() != 1)
            return 2;
        for (long before = walks; walks < before + 10;) /* some walks with each table */
            ;
    }
    mprotect(region, SIZE, PROT_READ | PROT_EXEC);
    while (through == 0) /* sooner or later the region is seen */
        ;
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    ehu_stats(&s);
    printf("refreshes=%d odd=%ld\n", (int)s.refreshes, (long)odd);
    return odd != 0 || s.refreshes != (uint64_t)rounds * 2 + 1;
}
