/* The window of a walk on another stack than the thread's ends where that stack does: switched. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "../src/internal.h"

enum { SIZE = 16 * PAGE };
static ucontext_t caller, coroutine;
static char *stack;
static int failures;

static void run(void)
{
    void *pcs[16];
    eh_elf_memory_t mem;
    uint32_t flags = 0;
    size_t n = ehu_backtrace(pcs, 16);
    uint64_t low = (uint64_t)(uintptr_t)stack;
    bool known = ehu_window_((uint64_t)(uintptr_t)__builtin_frame_address(0), &mem, &flags);
    if (n != 2 || !known || mem.lo < low || mem.lo + mem.size > low + SIZE) {
        printf("%zu frames; %d: %#lx to %#lx of a stack from %#lx to %#lx\n", n, known, mem.lo, mem.lo + mem.size, low,
            low + SIZE);
        failures++;
    }
    swapcontext(&coroutine, &caller);
}

/* on_stack walks on a stack before which and behind which no memory can be read. */
static void *on_stack(void *arg)
{
    char *memory = mmap(NULL, SIZE + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack = memory + PAGE;
    if (memory == MAP_FAILED || mprotect(stack, SIZE, PROT_READ | PROT_WRITE) != 0)
        abort();
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stack;
    coroutine.uc_stack.ss_size = SIZE;
    coroutine.uc_link = NULL;
    makecontext(&coroutine, run, 0);
    swapcontext(&caller, &coroutine);
    munmap(memory, SIZE + 2 * PAGE);
    return arg;
}

int main(void)
{
    pthread_t t;
    if (ehu_init() != 0)
        return 2;
    on_stack(NULL);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&t, NULL, on_stack, NULL) != 0 || pthread_join(t, NULL) != 0)
            return 2;
    printf("%d failures\n", failures);
    return failures != 0;
}
