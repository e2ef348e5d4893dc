// A preloaded library whose malloc throws at its first call, and one whose first call comes from
// another thread: as tracers do that begin with the first allocation, before any constructor of libgcc's.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

extern "C" void *__libc_malloc(size_t);

static int caught;
static bool begun;

static void *throws(void *)
{
    for (int i = 0; i < 100; i++)
        try {
            throw i;
        } catch (int n) {
            __atomic_fetch_add(&caught, n == i, __ATOMIC_RELAXED);
        }
    return nullptr;
}

static pthread_t thread;

extern "C" void *malloc(size_t n)
{
    if (!begun) {
        begun = true;
        pthread_create(&thread, nullptr, throws, nullptr);
        throws(nullptr);
    }
    return __libc_malloc(n);
}

__attribute__((destructor)) static void report(void)
{
    pthread_join(thread, nullptr);
    printf("caught %d\n", caught);
}
