/*
 * A malloc like a heap profiler's that counts: says how often it was called before
 * main, and while a library comes and goes; and by how many pages the process has grown
 * meanwhile: a table that is not given back would show there.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "../pages.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);

static long calls;

void *malloc(size_t size)
{
    calls++;
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    calls++;
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    calls++;
    return __libc_realloc(p, size);
}

static void come_and_go(const char *path, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        void *handle = dlopen(path, RTLD_NOW);
        if (!handle || dlclose(handle) != 0)
            exit(2);
    }
}

int main(int argc, char **argv)
{
    long before = calls;
    if (argc < 2)
        return 2;
    come_and_go(argv[1], 10);
    long some = pages();
    long start = calls;
    come_and_go(argv[1], 100);
    long loading = calls - start;
    printf("calls %ld, %ld; pages %+ld\n", before, loading, pages() - some);
}
