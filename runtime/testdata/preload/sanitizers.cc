// Allocates below 30 frames, throws, and then does what a sanitizer reports: its argument.
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone))

static char *volatile kept;
static volatile int sink;

NOINLINE static void *deep(int n)
{
    void *p = n > 0 ? deep(n - 1) : malloc(100);
    sink += 1;
    return p;
}

NOINLINE static int thrower(int n)
{
    if (n == 0)
        throw n;
    return thrower(n - 1) + 1;
}

static int written;
static void *writes(void *arg)
{
    sink += 1;
    __atomic_store_n(&written, 1, __ATOMIC_RELAXED); /* so that the order is certain, and still a race */
    return arg;
}

NOINLINE static void bad(const char *what)
{
    if (strcmp(what, "address") == 0) {
        kept[100] = 1;
    } else if (strcmp(what, "leak") == 0) {
        kept = nullptr;
        sink += deep(3) != nullptr;
    } else if (strcmp(what, "undefined") == 0) {
        sink = INT_MAX;
        sink = sink + 1;
    } else if (strcmp(what, "thread") == 0) {
        pthread_t t;
        pthread_create(&t, nullptr, writes, nullptr);
        while (!__atomic_load_n(&written, __ATOMIC_RELAXED))
            ;
        writes(nullptr);
        pthread_join(t, nullptr);
    } else if (strcmp(what, "memory") == 0 && kept[7] == 3) {
        sink += 1;
    }
}

int main(int, char **argv)
{
    for (int i = 0; i < 200; i++) {
        free(kept);
        kept = static_cast<char *>(deep(i % 30));
        try {
            thrower(i % 20);
        } catch (int) {
            sink += 1;
        }
    }
    bad(argv[1]);
    free(kept);
    return 0;
}
