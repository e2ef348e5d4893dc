/* A handler leaves an allocation at each of its instructions, by siglongjmp. What follows is counted. */
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 1000, TIMES = 2000, TRAP = 1 << 8 };

static sigjmp_buf out;
static volatile long steps, left;
static volatile size_t a = (1ull << 32) + 1, b = 1ull << 32; /* the product is beyond 2^64: there is no object */

static void on_step(int sig)
{
    (void)sig;
    if (--left < 0)
        siglongjmp(out, 1);
}

static __attribute__((noinline)) void after(void)
{
    for (int i = 0; i < TIMES; i++) {
        void *volatile p = malloc(BYTES);
        free(p);
    }
}

int main(void)
{
    struct sigaction act = {.sa_handler = on_step};
    volatile bool over = false;
    sigaction(SIGTRAP, &act, NULL);
    for (; !over; steps++) {
        left = steps;
        if (sigsetjmp(out, 1) == 0) {
            __asm__ volatile("pushfq; orq %0, (%%rsp); popfq" : : "i"(TRAP) : "cc", "memory");
            void *volatile p = calloc(a, b);
            __asm__ volatile("pushfq; andq %0, (%%rsp); popfq" : : "i"(~TRAP) : "cc", "memory");
            over = p == NULL;
        }
        after();
    }
    printf("%ld %ld\n", steps, steps * BYTES * TIMES);
    return 0;
}
