/*
 * A malloc like a heap profiler's: it takes a stack while it holds its lock, from
 * the first call on, which libstdc++ makes before a preloaded library is set up. Whoever allocates for that
 * stack is caught; a real one would wait for the lock for ever. With RESOLVER one is taken earlier still, while the
 * program is relocated.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <unwind.h>

void *__libc_malloc(size_t size);

static _Thread_local int held;
static int stacks, empty;

static _Unwind_Reason_Code frame(struct _Unwind_Context *context, void *n)
{
    (void)context;
    ++*(int *)n;
    return _URC_NO_REASON;
}

void *malloc(size_t size)
{
    static const char text[] = "malloc was called for a stack that malloc takes\n";
    int n = 0;
    if (held && write(STDERR_FILENO, text, sizeof text - 1) >= 0)
        _exit(3);
    held = 1;
    _Unwind_Backtrace(frame, &n);
    held = 0;
    stacks += n > 0;
    empty += n == 0;
    return __libc_malloc(size);
}

#ifdef RESOLVER
static int resolved(void) { return 1; }
static int (*resolve(void))(void)
{
    int n = 0;
    _Unwind_Backtrace(frame, &n);
    return n > 0 ? resolved : NULL;
}
int early(void) __attribute__((ifunc("resolve")));
#else
static int early(void) { return 1; }
#endif

int main(void)
{
    void *volatile p = malloc(100);
    free(p);
    puts(stacks > 1 && empty == 0 && early() ? "stacks taken" : "no stacks");
    return 0;
}
