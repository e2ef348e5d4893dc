/*
 * glibc's backtrace in a separate program: trace ROUNDS prints one stack of
 * each shape and, on stderr, the time per call.
 */
#include <execinfo.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAX = 128 };
static int rounds;
static long calls;
static double seconds;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* take is called at the end of each shape of stack. Names are looked up outside of the time:
 * backtrace_symbols allocates. */
static __attribute__((noinline)) void take(void)
{
    void *pcs[MAX];
    int n = 0;
    double begin = now();
    for (int i = 0; i < rounds; i++)
        n = backtrace(pcs, MAX);
    seconds += now() - begin;
    calls += rounds;
    char **names = backtrace_symbols(pcs, n);
    printf("%d frames\n", n);
    for (int i = 0; names && i < n; i++)
        printf("  %s\n", names[i]);
    free(names);
}

static __attribute__((noinline)) int even(int depth);
static __attribute__((noinline)) int odd(int depth) { return depth == 0 ? (take(), 1) : even(depth - 1) + 1; }
static __attribute__((noinline)) int even(int depth)
{
    volatile char frame[64] = {0};
    return depth == 0 ? (take(), frame[0]) : odd(depth - 1) + frame[1];
}

/* Callbacks of libc: frames of another object between the program's. */
static int taken;
static int compare(const void *a, const void *b)
{
    if (!taken++)
        take();
    return *(const int *)a - *(const int *)b;
}
static void visit(const void *node, VISIT which, int depth)
{
    (void)node;
    (void)depth;
    if (which == leaf && taken++ < 3)
        take();
}

int main(int argc, char **argv)
{
    rounds = argc > 1 ? atoi(argv[1]) : 1;
    for (int depth = 0; depth < 100; depth += 9)
        even(depth);
    int numbers[] = {3, 1, 2};
    qsort(numbers, 3, sizeof numbers[0], compare);
    void *root = NULL;
    for (int i = 0; i < 3; i++)
        tsearch(&numbers[i], &root, compare);
    taken = 0;
    twalk(root, visit);
    fprintf(stderr, "%ld calls, %.0f ns each\n", calls, seconds / (double)calls * 1e9);
}
