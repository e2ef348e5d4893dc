/*
 * A program whose allocations are known: heap N. Of three functions one frees what it allocates, one keeps it, and one
 * has half of it; in two threads, and with each function of the family. It prints what each has asked for, and keeps.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))
#define KEEP(p) __asm__ volatile("" : : "r"(p) : "memory")

static size_t sizes[] = {24, 100, 512, 4000, 70000, 1500000};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

APART static void temporary(size_t n)
{
    void *p = malloc(n);
    KEEP(p);
    free(p);
}

APART static void *kept(size_t n)
{
    void *p = calloc(n / 4, 4);
    KEEP(p);
    return p;
}

APART static void *grown(size_t n)
{
    char *p = malloc(n / 2);
    KEEP(p);
    p = realloc(p, n);
    KEEP(p);
    return p;
}

APART static void *aligned(size_t n)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, n) != 0)
        abort();
    KEEP(p);
    free(p);
    p = aligned_alloc(64, (n + 63) / 64 * 64);
    KEEP(p);
    free(p);
    p = memalign(32, n);
    KEEP(p);
    return p;
}

/* never asks for more than there can be. */
APART static void never(void)
{
    volatile size_t most = ((size_t)1 << 63) + ((size_t)1 << 40), all = -(size_t)1;
    if (malloc(most) || malloc(most) || malloc(all) || calloc(most, 1) || realloc(NULL, most) || memalign(64, most))
        abort();
}

static long times;

static void *work(void *arg)
{
    (void)arg;
    never();
    for (long i = 0; i < times; i++, never())
        for (int s = 0; s < SIZES; s++) {
            long k = s < 4 ? 200 : 1;
            for (long j = 0; j < k; j++) {
                temporary(sizes[s]);
                void *p = kept(sizes[s]);
                if (i % 4) /* a quarter stays */
                    free(p);
                p = grown(sizes[s]);
                if (i % 2) /* half of it stays */
                    free(p);
                free(aligned(sizes[s]));
            }
        }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t other;
    if (argc > 2 && strcmp(argv[2], "child") == 0 && fork() > 0) {
        wait(NULL);
        return 0;
    }
    times = argc > 1 ? atol(argv[1]) : 1;
    pthread_create(&other, NULL, work, NULL);
    work(NULL);
    pthread_join(other, NULL);
    double all = 0, rounded = 0;
    for (int s = 0; s < SIZES; s++) {
        double calls = 2 * (double)times * (s < 4 ? 200 : 1);
        all += calls * (double)sizes[s];
        rounded += calls * (double)((sizes[s] + 63) / 64 * 64 - sizes[s]); /* aligned_alloc wants a multiple */
    }
    printf("temporary %.0f 0\nkept %.0f %.0f\ngrown %.0f %.0f\naligned %.0f 0\n", all, all, all / 4, all * 1.5, all / 2,
        all * 3 + rounded);
    return 0;
}
