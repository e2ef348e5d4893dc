/*
 * Walks of stacks that were overwritten: they must end, within memory that is
 * theirs to read. The fake stack lies between two inaccessible pages, so a word read
 * outside it is a crash.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

static long failures, frames, walks;

static uint64_t state = 88172645463325252u;
static uint64_t random64(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* Addresses that look like return addresses: all over the code of libc and of this program. */
static uint64_t some_pc(void)
{
    static const void *const functions[] = {(void *)qsort, (void *)printf, (void *)malloc, (void *)abort,
        (void *)system};
    uint64_t f = (uint64_t)(uintptr_t)functions[random64() % 5];
    return random64() % 4 == 0 ? (uint64_t)(uintptr_t)some_pc + random64() % 256 : f + random64() % 65536;
}

static char *stack;
enum { SIZE = 64 << 10, GUARD = 4096, THREAD = 256 << 10 };

static uint64_t some_word(void)
{
    switch (random64() % 8) {
    case 0: return random64();
    case 1: return random64() % 4096;
    case 2: return (uint64_t)(uintptr_t)stack + random64() % SIZE; /* leads up, down and in circles */
    case 3: return ((uint64_t)(uintptr_t)stack + random64() % SIZE) & ~7u;
    case 4: return (uint64_t)(uintptr_t)stack + SIZE - random64() % 32;
    default: return some_pc();
    }
}

static void walk(const ucontext_t *context)
{
    void *pcs[300];
    ehu_cursor_t c;
    size_t n = ehu_backtrace_from(context, pcs, 300);
    uint64_t below = 0, rsp;
    int depth = 0, exact = 1;
    failures += n < 1 || n > 300;
    frames += (long)n;
    walks++;
    ehu_cursor_init_from(&c, context);
    do {
        if (ehu_get_reg(&c, EH_ELF_RSP, &rsp) != 0 || (depth > 0 && rsp < below + 8 * !exact &&
            !ehu_is_signal_frame(&c))) {
            failures++;
            return;
        }
        below = rsp;
        exact = ehu_is_signal_frame(&c);
        depth++;
    } while (depth < 10000 && ehu_step(&c) == 1);
    failures += depth == 10000;
    /* The same with pcs alone, up to some frame. */
    int first = (int)(random64() % 20);
    uint64_t pc;
    ehu_cursor_init_from(&c, context);
    for (depth = 0; depth < 10000; depth++) {
        failures += ehu_get_reg(&c, EH_ELF_RIP, &pc) != 0;
        if (depth >= first)
            ehu_get_reg(&c, EH_ELF_RSP, &rsp);
        if (ehu_step(&c) != 1)
            break;
    }
    failures += depth == 10000;
}

static long rounds = 100;

static void *walk_all(void *arg)
{
    ucontext_t context;
    (void)arg;
    memset(&context, 0, sizeof context);
    for (long round = 0; round < rounds; round++) {
        for (size_t i = 0; i < SIZE; i += 8) {
            uint64_t word = some_word();
            memcpy(stack + i, &word, 8);
        }
        for (int i = 0; i < 100; i++) {
            greg_t *g = context.uc_mcontext.gregs;
            for (int r = 0; r <= REG_RIP; r++)
                g[r] = (greg_t)some_word();
            g[REG_RIP] = (greg_t)some_pc();
            if (random64() % 4)
                g[REG_RSP] = (greg_t)((uint64_t)(uintptr_t)stack + random64() % SIZE);
            walk(&context);
        }
    }
    /* A frame pointer that leads back to itself. */
    for (size_t i = 0; i < SIZE; i += 16) {
        uint64_t frame[2] = {(uint64_t)(uintptr_t)stack + (i + 16 * 40) % SIZE, some_pc()};
        memcpy(stack + i, frame, sizeof frame);
    }
    for (int i = 0; i < 1000; i++) {
        context.uc_mcontext.gregs[REG_RSP] = (greg_t)(uintptr_t)(stack + i * 16 % SIZE);
        context.uc_mcontext.gregs[REG_RBP] = (greg_t)(uintptr_t)(stack + i * 32 % SIZE);
        context.uc_mcontext.gregs[REG_RIP] = (greg_t)some_pc();
        walk(&context);
    }
    return NULL;
}

/*
 * The walks are taken in the main thread, and in one whose own stack is above the
 * fake one: there the fake one might pass for the deeper part of it.
 */
int main(int argc, char **argv)
{
    ehu_stats_t stats;
    if (argc > 1)
        rounds = atol(argv[1]);
    pthread_t thread;
    pthread_attr_t attr;
    char *area = mmap(NULL, SIZE + 2 * GUARD + THREAD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED || mprotect(area + GUARD, SIZE, PROT_READ | PROT_WRITE) != 0 ||
        mprotect(area + 2 * GUARD + SIZE, THREAD, PROT_READ | PROT_WRITE) != 0 || ehu_init() != 0)
        return 2;
    stack = area + GUARD;
    walk_all(NULL);
    pthread_attr_init(&attr);
    pthread_attr_setstack(&attr, area + 2 * GUARD + SIZE, THREAD);
    if (pthread_create(&thread, &attr, walk_all, NULL) != 0)
        return 2;
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    ehu_stats(&stats);
    printf("corrupt walks=%ld frames=%ld no_object=%d not_rising=%d unreadable=%d guessed=%d failures=%ld\n", walks,
        frames,
           stats.no_object > 0, stats.not_rising > 0, stats.unreadable > 0, stats.guessed > 0, failures);
    return failures != 0;
}
