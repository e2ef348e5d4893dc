/* Walks its own stack with libunwind, at the bottom of recursion and callbacks, and compares each
 * with backtrace(3). Prints frames and walks that differ. */
#define UNW_LOCAL_ONLY
#include <execinfo.h>
#include <libunwind.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX = 512 };
static long frames, walks, differ;

static __attribute__((noinline)) void compare(void)
{
    void *want[MAX];
    unw_word_t got[MAX];
    unw_context_t context;
    unw_cursor_t cursor;
    int n = 0, m = backtrace(want, MAX);
    unw_getcontext(&context);
    if (unw_init_local(&cursor, &context) != 0) {
        puts("unw_init_local fails");
        exit(1);
    }
    do {
        unw_get_reg(&cursor, UNW_REG_IP, &got[n++]);
    } while (n < MAX && unw_step(&cursor) > 0);
    while (n > 0 && got[n - 1] == 0)
        n--;
    int same = n == m;
    for (int i = 1; same && i < n; i++) /* the first is inside this function */
        same = got[i] == (unw_word_t)want[i];
    walks++;
    frames += n;
    if (!same && differ++ < 5) {
        printf("differs: %d frames, backtrace has %d\n", n, m);
        for (int i = 0; i < n || i < m; i++)
            printf("  %#14lx %#14lx\n", i < n ? (long)got[i] : 0L, i < m ? (long)want[i] : 0L);
    }
}

static int order(const void *a, const void *b)
{
    if (walks % 3 == 0)
        compare();
    walks++;
    return *(const int *)a - *(const int *)b;
}

static __attribute__((noinline)) int down(int n, volatile int *p)
{
    char room[n * 7 % 300 + 1];
    room[0] = (char)n;
    if (n == 0) {
        int a[40];
        for (int i = 0; i < 40; i++)
            a[i] = i * 37 % 41;
        qsort(a, 40, sizeof a[0], order);
        compare();
        return a[3];
    }
    *p += down(n - 1, p) + room[0];
    return *p;
}

int main(void)
{
    volatile int sum = 0;
    for (int i = 0; i < 60; i++)
        down(i, &sum);
    printf("%ld frames, %ld walks differ\n", frames, differ);
    return differ != 0;
}
