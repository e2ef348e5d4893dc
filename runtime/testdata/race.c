/* Threads walk without pause while objects come and go. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "ehunwind.h"

static _Atomic int stop;
static _Atomic long walks, odd;

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
        walks++;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t t[3];
    int rounds = argc > 1 ? atoi(argv[1]) : 50;
    ehu_stats_t s;
    if (ehu_init() != 0)
        return 2;
    for (int i = 0; i < 3; i++)
        if (pthread_create(&t[i], NULL, walker, NULL) != 0)
            return 2;
    for (int i = 0; i < rounds; i++) {
        void *handle = dlopen(getenv("PLUGIN"), RTLD_NOW);
        if (!handle || ehu_refresh() != 1)
            return 2;
        dlclose(handle);
        if (ehu_refresh() != 1)
            return 2;
        for (long before = walks; walks < before + 10;) /* some walks with each table */
            ;
    }
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    ehu_stats(&s);
    printf("refreshes=%d odd=%ld\n", (int)s.refreshes, (long)odd);
    return odd != 0 || s.refreshes != (uint64_t)rounds * 2 + 1;
}
