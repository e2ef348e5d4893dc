/* The shared library of the test: calls back, is bound lazily, uses TLS. */
#include <stdlib.h>
#include <string.h>

#include "stacks.h"

void (*lib_hook)(void);

/* Runs before the program's main and its constructors. */
extern void early_hook(void) __attribute__((weak));
static void __attribute__((constructor)) lib_begin(void)
{
    if (early_hook)
        early_hook();
}

__attribute__((noinline)) static long bounce(void (*fn)(long), long depth, char *buf)
{
    memset(buf, (int)depth, 100);
    fn(depth);
    return buf[99] + depth;
}

long lib_bounce(void (*fn)(long), long depth)
{
    char buf[128];
    long sum = bounce(fn, depth, buf);
    return sum + buf[7];
}

long lib_lazy(long n)
{
    if (lib_hook)
        lib_hook();
    return n * 3;
}

static __thread long counter = 7;

long lib_tls(long n)
{
    counter += n;
    return counter;
}

static void (*sort_fn)(long);
static long sort_depth;

static int compare_longs(const void *a, const void *b)
{
    long x = *(const long *)a, y = *(const long *)b;
    if (sort_fn) {
        void (*fn)(long) = sort_fn;
        sort_fn = NULL; /* once */
        fn(sort_depth);
    }
    return (x > y) - (x < y);
}

/* lib_sort calls fn from a comparison of qsort. */
void lib_sort(long depth, void (*fn)(long))
{
    long v[40];
    for (int i = 0; i < 40; i++)
        v[i] = (i * 7919) % 101;
    sort_fn = fn;
    sort_depth = depth;
    qsort(v, 40, sizeof v[0], compare_longs);
    for (int i = 1; i < 40; i++)
        if (v[i - 1] > v[i])
            abort();
}
